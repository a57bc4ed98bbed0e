package redis

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/internal/sinks"
	"github.com/dlock-go/dlock/store"
)

const (
	// linger is how much longer than the last place a subscription is kept: a
	// partition that is waited in now and then does not subscribe each time.
	linger = time.Second
	// closeTimeout is for a client whose pool is all in use by others: it is waited for
	// there without a bound, and Close must not be.
	closeTimeout = 10 * time.Second
)

const (
	// The pauses before a subscription that ended is opened again.
	firstResubscribe = 10 * time.Millisecond
	lastResubscribe  = 2 * time.Second
	// mostHops is how many redirections are followed without a pause. One node is behind at
	// most; while a move ends, two may send each to the other.
	mostHops = 2
)

// wakeups carries events from the server to the sinks. There is one
// subscription for each partition in which a request of this handle waits,
// opened when the first one is queued and ended a while after the last.
//
// A request is queued first and the subscription follows, so what is pushed in
// between is lost. Therefore Acquire asks again once the subscription is
// confirmed (listening), and after every reconnection Event{} makes everybody
// ask again.
type wakeups struct {
	s     *Store
	sinks *sinks.Sinks
	links links
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu    sync.Mutex
	subs  [partitions]*subscription
	begun bool // events are delivered
}

// subscription is open, or about to be, as long as it is in wakeups.subs.
type subscription struct {
	channel string
	until   time.Time     // nothing waits after that
	tried   chan struct{} // closed when the server has confirmed it, or refused, for the first time
	once    sync.Once     // closes tried
}

func newWakeups(s *Store) *wakeups {
	w := &wakeups{s: s, sinks: sinks.New()}
	w.links = links{client: s.client, open: make(map[string]*link)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Listen implements [store.Store]. An event is told to one sink after the other, on the goroutine
// that receives the messages of its partition. Event{} and, with MinReplicas, all events have another
// goroutine. A sink that blocks delays later events, and the answer to a request that waits for
// its subscription.
func (s *Store) Listen(sink func(store.Event)) (stop func()) { return s.wakeups.sinks.Listen(sink) }

// listening sees to it that events of a partition are heard for as long as a
// place taken now may last. It returns nil if they were already when the place
// was taken, else a channel that is closed as soon as they are, or cannot be
// for the time being.
func (w *wakeups) listening(p int, wait time.Duration) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil
	}
	until := time.Now().Add(wait + linger)
	if sub := w.subs[p]; sub != nil {
		if until.After(sub.until) {
			sub.until = until
		}
		select {
		case <-sub.tried:
			return nil
		default:
			return sub.tried
		}
	}
	sub := &subscription{channel: w.s.keys.channel(p, w.s.id), until: until, tried: make(chan struct{})}
	w.subs[p] = sub
	if !w.begun {
		w.begun = true
		w.done.Go(func() { w.sinks.Deliver(w.ctx) })
	}
	w.done.Go(func() { w.receive(p, sub) })
	return sub.tried
}

// receive keeps a subscription until nothing has waited for a while.
func (w *wakeups) receive(p int, sub *subscription) {
	defer sub.settled()
	node, hops, pause := "", 0, firstResubscribe
	for {
		confirmed, err := w.hear(sub, node)
		if moved, ok := movedTo(err); ok && moved != node && hops < mostHops {
			node, hops = moved, hops+1
			continue
		}
		sub.settled()
		if w.retire(p, sub) {
			return
		}
		if confirmed {
			pause = firstResubscribe
		}
		if !sleep(w.ctx, pause) {
			return
		}
		node, hops, pause = "", 0, min(2*pause, lastResubscribe)
	}
}

func (s *subscription) settled() { s.once.Do(func() { close(s.tried) }) }

// hear receives until nothing waits any more, the server ends the subscription,
// because its slot has moved, another server is the master, or the connection is lost. It reports whether the
// subscription was confirmed.
func (w *wakeups) hear(sub *subscription, node string) (confirmed bool, err error) {
	l := w.links.take(node)
	defer func() { w.links.put(l, err != nil && !isReply(err)) }()

	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	idle := w.whenIdle(sub, cancel)
	defer idle.Stop()
	if w.s.client.Mode() == rueidis.ClientModeSentinel {
		w.done.Go(func() { w.follow(ctx, l, cancel) })
	}
	var heard atomic.Bool
	hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "ssubscribe" {
			heard.Store(true)
			w.sinks.Push(store.Event{})
			sub.settled()
		}
	})
	err = l.receive(hooked, sub.channel, func(m rueidis.PubSubMessage) {
		switch e, ok := parseEvent(m.Message); {
		case !ok:
		case w.s.replicas > 0:
			w.done.Go(func() { w.s.confirm(w.ctx, e) })
		default:
			w.sinks.Tell(e)
		}
	})
	if ctx.Err() != nil {
		err = nil // we have ended it; the connection is fine
	}
	return heard.Load(), err
}

// follow calls end once the sentinels name another master.
func (w *wakeups) follow(ctx context.Context, l *link, end func()) {
	for sleep(ctx, topologyLook) {
		if w.links.deposed(l) {
			end()
		}
	}
}

// whenIdle calls end once nothing waits in the partition any more.
func (w *wakeups) whenIdle(sub *subscription, end func()) *time.Timer {
	var timer *time.Timer
	left := func() time.Duration {
		w.mu.Lock()
		defer w.mu.Unlock()
		return time.Until(sub.until)
	}
	ready := make(chan struct{}) // timer is set
	timer = time.AfterFunc(max(left(), 0), func() {
		<-ready
		if d := left(); d > 0 {
			timer.Reset(d)
			return
		}
		end()
	})
	close(ready)
	return timer
}

// retire takes a subscription that has ended off the list, if nothing needs it.
func (w *wakeups) retire(p int, sub *subscription) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil && time.Now().Before(sub.until) {
		return false
	}
	w.subs[p] = nil
	return true
}

// begin has f run in a goroutine of its own, for which close waits. It reports false,
// and does nothing, if close has begun.
func (w *wakeups) begin(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return false
	}
	w.done.Go(f)
	return true
}

func (w *wakeups) close() {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.sinks.Close()
	ended := make(chan struct{})
	go func() { w.done.Wait(); close(ended) }()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	}
}

// parseEvent reads a message of the scripts: id, space, and what parseSpan reads.
// Anything else on the channel is not from them.
func parseEvent(text string) (store.Event, bool) {
	id, span, _ := strings.Cut(text, " ")
	token, short, ok := parseSpan(span)
	if !ok || len(id) != 32 {
		return store.Event{}, false
	}
	return store.Event{ID: id, Token: token, Short: short}, true
}
