package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

var errHeld = errors.New("the lock of a floor is held: it cannot wait")

// dialRedis makes the client that dlock's redis.Open makes.
func dialRedis(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{addr},
		DisableCache: true, AlwaysPipelining: true, PipelineMultiplex: -1,
		ClientSetInfo:    rueidis.DisableClientSetInfo,
		Dialer:           net.Dialer{Timeout: 3 * time.Second, KeepAlive: time.Second},
		ConnWriteTimeout: 3 * time.Second,
	})
}

var (
	compareAndDelete = rueidis.NewLuaScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("DEL", KEYS[1]) end return 0`)
	deleteAndPublish = rueidis.NewLuaScript(`if redis.call("GET", KEYS[1]) == ARGV[1] then redis.call("DEL", KEYS[1]) redis.call("PUBLISH", "floor", KEYS[1]) return 1 end return 0`)
)

// pair is the least that a lock in Redis can be: two calls, nobody waits.
type pair struct {
	redis rueidis.Client
	lease string // milliseconds
}

func openPair(addr string, lease time.Duration) (client, error) {
	c, err := dialRedis(addr)
	return &pair{c, strconv.FormatInt(lease.Milliseconds(), 10)}, err
}

func (c *pair) locker(name string, _ use) (locker, error) {
	return &pairLocker{c, name, "", compareAndDelete}, nil
}

type pairLocker struct {
	c       *pair
	name    string
	value   string
	release *rueidis.Lua
}

func (l *pairLocker) lock(bool) error {
	l.value = rand.Text()
	err := l.c.redis.Do(in, l.c.redis.B().Arbitrary("SET").Keys(l.name).Args(l.value, "NX", "PX", l.c.lease).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return errHeld
	}
	return err
}

func (l *pairLocker) unlock() error {
	return l.release.Exec(in, l.c.redis, []string{l.name}, []string{l.value}).Error()
}

// publish is a minimal lock that tells those who wait: who gives up the lock
// publishes its name, and each process has one of its waiters try again.
type publish struct {
	pair

	mu      sync.Mutex
	waiting map[string][]chan struct{}
}

func openPublish(addr string, lease time.Duration) (client, error) {
	r, err := dialRedis(addr)
	if err != nil {
		return nil, err
	}
	c := &publish{pair: pair{r, strconv.FormatInt(lease.Milliseconds(), 10)}, waiting: map[string][]chan struct{}{}}
	subscribed, failed := make(chan struct{}), make(chan error, 1)
	ctx := rueidis.WithOnSubscriptionHook(context.Background(), func(s rueidis.PubSubSubscription) { close(subscribed) })
	go func() {
		failed <- r.Receive(ctx, r.B().Subscribe().Channel("floor").Build(), func(m rueidis.PubSubMessage) { c.wake(m.Message) })
	}()
	select {
	case <-subscribed:
		return c, nil
	case err := <-failed:
		return nil, err
	}
}

func (c *publish) wake(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if line := c.waiting[name]; len(line) > 0 {
		c.waiting[name] = line[1:]
		line[0] <- struct{}{}
	}
}

func (c *publish) locker(name string, _ use) (locker, error) {
	return &publishLocker{pairLocker{&c.pair, name, "", deleteAndPublish}, c, make(chan struct{}, 1)}, nil
}

type publishLocker struct {
	pairLocker
	c    *publish
	told chan struct{}
}

// lock stands in line before it tries, so that no message is missed in between.
// Who leaves the line by its own luck leaves it to the next.
func (l *publishLocker) lock(bool) error {
	for {
		l.c.mu.Lock()
		l.c.waiting[l.name] = append(l.c.waiting[l.name], l.told)
		l.c.mu.Unlock()
		if err := l.pairLocker.lock(false); !errors.Is(err, errHeld) {
			l.leave()
			return err
		}
		select {
		case <-l.told:
		case <-time.After(time.Second):
			l.leave()
		}
	}
}

func (l *publishLocker) leave() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for i, w := range l.c.waiting[l.name] {
		if w == l.told {
			l.c.waiting[l.name] = append(l.c.waiting[l.name][:i:i], l.c.waiting[l.name][i+1:]...)
			return
		}
	}
	<-l.told // it is out of line, so it was told
}
