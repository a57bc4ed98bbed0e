package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"
)

// patience is for libraries that bound the wait for a lock by themselves.
const patience = 10 * time.Minute

type redsyncClient struct {
	sync    *redsync.Redsync
	options []redsync.Option
}

func openRedsync(pause time.Duration) func(string, time.Duration) (client, error) {
	return func(addr string, lease time.Duration) (client, error) {
		r := goredislib.NewClient(&goredislib.Options{Addr: addr})
		options := []redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(1 << 30)}
		if pause > 0 {
			options = append(options, redsync.WithRetryDelay(pause))
		}
		return &redsyncClient{redsync.New(goredis.NewPool(r)), options}, nil
	}
}

// openRedsyncRueidis has redsync on rueidis as it comes.
func openRedsyncRueidis(addr string, lease time.Duration) (client, error) {
	r, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	return newRedsyncRueidis(r, lease), err
}

// openRedsyncOnOurOptions has redsync on the client that dlock's redis.Open makes.
func openRedsyncOnOurOptions(addr string, lease time.Duration) (client, error) {
	r, err := dialRedis(addr)
	return newRedsyncRueidis(r, lease), err
}

func newRedsyncRueidis(r rueidis.Client, lease time.Duration) client {
	options := []redsync.Option{redsync.WithExpiry(lease), redsync.WithTries(1 << 30)}
	return &redsyncClient{redsync.New(redsyncrueidis.NewPool(rueidiscompat.NewAdapter(r))), options}
}

func (c *redsyncClient) locker(name string, _ use) (locker, error) {
	return &redsyncLocker{mutex: c.sync.NewMutex(name, c.options...)}, nil
}

type redsyncLocker struct {
	renewal
	mutex *redsync.Mutex
}

func (l *redsyncLocker) lock(bool) error { return l.mutex.LockContext(in) }

func (l *redsyncLocker) unlock() error {
	_, err := l.mutex.Unlock()
	return err
}

func (l *redsyncLocker) keep(lease time.Duration) {
	go l.renew(lease, func() bool { ok, err := l.mutex.Extend(); return ok && err == nil })
}

type redislockClient struct {
	locks        *redislock.Client
	lease, pause time.Duration
}

func openRedislock(pause time.Duration) func(string, time.Duration) (client, error) {
	return func(addr string, lease time.Duration) (client, error) {
		r := goredislib.NewClient(&goredislib.Options{Addr: addr})
		return &redislockClient{redislock.New(r), lease, pause}, nil
	}
}

func (c *redislockClient) locker(name string, _ use) (locker, error) {
	return &redislockLocker{c: c, name: name}, nil
}

type redislockLocker struct {
	renewal
	c    *redislockClient
	name string
	held *redislock.Lock
}

func (l *redislockLocker) lock(bool) (err error) {
	ctx, cancel := context.WithTimeout(in, patience)
	defer cancel()
	l.held, err = l.c.locks.Obtain(ctx, l.name, l.c.lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(l.c.pause)})
	return err
}

func (l *redislockLocker) unlock() error { return l.held.Release(in) }

func (l *redislockLocker) keep(lease time.Duration) {
	go l.renew(lease, func() bool { return l.held.Refresh(in, lease, nil) == nil })
}

// renewal is what the caller of a library does that does not renew by itself: as
// the documentation of both shows it, for each lock.
type renewal struct{ failed atomic.Bool }

func (r *renewal) renew(lease time.Duration, extend func() bool) {
	for range time.Tick(lease / 3) {
		if !extend() {
			r.failed.Store(true)
			return
		}
	}
}

func (r *renewal) lost() bool { return r.failed.Load() }

type rueidislockClient struct{ rueidislock.Locker }

// openRueidislock follows the README for one server of Redis 7, but for the time
// that a reply may take. Its default of 20 ms is for going on to the next key,
// and there is only one: a late reply would leave WithContext waiting for news of
// a lock that is free.
func openRueidislock(addr string, lease time.Duration) (client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lease,
		TryNextAfter:   lease / 3,
	})
	return rueidislockClient{l}, err
}

func (c rueidislockClient) locker(name string, _ use) (locker, error) {
	return &rueidislockLocker{locks: c.Locker, name: name}, nil
}

type rueidislockLocker struct {
	locks   rueidislock.Locker
	name    string
	held    context.Context
	release context.CancelFunc
}

func (l *rueidislockLocker) lock(bool) (err error) {
	l.held, l.release, err = l.locks.WithContext(in, l.name)
	return err
}

func (l *rueidislockLocker) unlock() error      { l.release(); return nil }
func (l *rueidislockLocker) keep(time.Duration) {}
func (l *rueidislockLocker) lost() bool         { return l.held.Err() != nil }
