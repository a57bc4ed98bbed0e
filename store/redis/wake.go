package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

const (
	// linger is how much longer than the last place a subscription is kept: a
	// partition that is waited in now and then does not subscribe each time.
	linger = time.Second
	// farewell bounds the parting words of a handle that closes.
	farewell = time.Second
	// inbox is how many events may be on their way to the sinks. A flood beyond
	// that costs one Event{}, not memory and not a stalled connection.
	inbox = 1024
)

// The pauses before a subscription that ended is opened again.
const (
	firstResubscribe = 10 * time.Millisecond
	lastResubscribe  = 2 * time.Second
)

// wakeups carries events from the server to the sinks. There is one
// subscription for each partition in which a request of this handle waits,
// opened when the first one is queued and ended a while after the last. rueidis
// puts those of one node on one connection.
//
// A request is queued first and the subscription follows, so what is pushed in
// between is lost. Therefore Acquire asks again once the subscription is
// confirmed (listening), and after every reconnection Event{} makes everybody
// ask again.
type wakeups struct {
	s      *Store
	events chan store.Event
	all    chan struct{} // holds one Event{}, for many that would say the same

	mu    sync.Mutex
	sinks []*sink // replaced, never changed in place, so that deliver can use it unlocked
	subs  [partitions]*subscription
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup
	begun bool // deliver runs
}

type sink struct{ call func(store.Event) }

// subscription is open, or about to be, as long as it is in wakeups.subs.
type subscription struct {
	channel string
	until   time.Time     // nothing waits after that
	tried   chan struct{} // closed when the server has confirmed it, or refused, for the first time
	once    sync.Once     // closes tried
}

func newWakeups(s *Store) *wakeups {
	w := &wakeups{s: s, events: make(chan store.Event, inbox), all: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Listen implements [store.Store]. Sinks are called from one goroutine, one
// after the other: one that blocks delays the other sinks' events, but no reply
// and no call.
func (s *Store) Listen(call func(store.Event)) (stop func()) {
	w, k := s.wakeups, &sink{call}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil {
		w.sinks = append(w.sinks[:len(w.sinks):len(w.sinks)], k)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		var rest []*sink
		for _, other := range w.sinks {
			if other != k {
				rest = append(rest, other)
			}
		}
		w.sinks = rest
	}
}

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
		w.done.Go(w.deliver)
	}
	w.done.Go(func() { w.receive(p, sub) })
	return sub.tried
}

// receive keeps a subscription until nothing has waited for a while.
func (w *wakeups) receive(p int, sub *subscription) {
	defer w.endWhenIdle(sub)()
	tried := func() { sub.once.Do(func() { close(sub.tried) }) }
	defer tried()
	pause := firstResubscribe
	for {
		confirmed := w.hear(sub, tried)
		tried()
		if w.retire(p, sub) {
			return
		}
		if confirmed {
			pause = firstResubscribe
		}
		if !sleep(w.ctx, pause) {
			return
		}
		pause = min(2*pause, lastResubscribe)
	}
}

// hear receives until the subscription ends: by us, by the server because its
// slot has moved, or because it is lost. It reports whether it was ever
// confirmed.
//
// rueidis opens a lost one again by itself, but with pauses that double for as
// long as Receive lasts, so that a handle that has lost twenty connections in a
// year waits a second for each one more. Therefore a second confirmation ends
// Receive as well; the next begins with the first pause again.
func (w *wakeups) hear(sub *subscription, tried func()) (confirmed bool) {
	ctx, again := context.WithCancel(w.ctx)
	defer again()
	var confirmations atomic.Int64
	ctx = rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		if s.Kind == "ssubscribe" {
			w.push(store.Event{})
			tried()
			if confirmations.Add(1) > 1 {
				again()
			}
		}
	})
	c := w.s.client
	_ = c.Receive(ctx, c.B().Ssubscribe().Channel(sub.channel).Build(), func(m rueidis.PubSubMessage) {
		switch e, ok := parseEvent(m.Message); {
		case !ok:
		case w.s.replicas > 0:
			w.done.Go(func() { w.s.confirm(w.ctx, e) })
		default:
			w.push(e)
		}
	})
	return confirmations.Load() > 0
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

// endWhenIdle has the server end the subscription, upon which Receive returns,
// once nothing waits any more. Ending Receive by its ctx would leave it at the
// server.
func (w *wakeups) endWhenIdle(sub *subscription) (stop func()) {
	over := make(chan struct{})
	w.done.Go(func() {
		for {
			w.mu.Lock()
			left := time.Until(sub.until)
			w.mu.Unlock()
			if left <= 0 {
				w.unsubscribe(sub)
				left = farewell // it may have failed, or be needed again
			}
			select {
			case <-over:
				return
			case <-w.ctx.Done():
				w.unsubscribe(sub)
				return
			case <-time.After(left):
			}
		}
	})
	return func() { close(over) }
}

func (w *wakeups) unsubscribe(sub *subscription) {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	c := w.s.client
	c.Do(ctx, c.B().Sunsubscribe().Channel(sub.channel).Build())
}

// push hands an event over to deliver. It never blocks: it runs where the
// connection's replies are read. One that does not fit becomes an Event{}.
func (w *wakeups) push(e store.Event) {
	if e != (store.Event{}) {
		select {
		case w.events <- e:
			return
		default:
		}
	}
	select {
	case w.all <- struct{}{}:
	default: // there is one that nobody has heard yet
	}
}

// deliver calls the sinks until the handle is closed.
func (w *wakeups) deliver() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case e := <-w.events:
			w.tell(e)
		case <-w.all:
			w.tell(store.Event{})
		}
	}
}

func (w *wakeups) tell(e store.Event) {
	w.mu.Lock()
	sinks := w.sinks
	w.mu.Unlock()
	for _, k := range sinks {
		k.call(e)
	}
}

func (w *wakeups) close() {
	w.mu.Lock()
	w.stop()
	w.sinks = nil
	w.mu.Unlock()
	w.done.Wait()
}

// parseEvent reads a message of the scripts: id, space, token. Anything else on
// the channel is not from them.
func parseEvent(text string) (store.Event, bool) {
	id, number, ok := strings.Cut(text, " ")
	if !ok || len(id) != 32 {
		return store.Event{}, false
	}
	token, err := strconv.ParseUint(number, 10, 64)
	if err != nil || token == 0 {
		return store.Event{}, false
	}
	return store.Event{ID: id, Token: token}, true
}
