package property

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// weather is what happens to the calls on a link.
type weather string

const (
	fair      weather = "fair"
	refused   weather = "refused"    // not applied, an error at once
	replyLost weather = "reply lost" // applied, an error at once
	silent    weather = "silent"     // not applied, no reply
	mute      weather = "mute"       // applied, no reply
	slow      weather = "slow"       // applied and answered late, or applied after the caller has given up
)

var errLink = errors.New("the link failed")

// link is one client's way to the store, with weather of its own. It also
// writes down what the client has been told, which is what the client's idea
// of its holds must follow from.
type link struct {
	label  string
	remote store.Store

	mu      sync.Mutex
	weather weather
	calls   int // that the weather lasts for; negative: until it is changed
	delay   time.Duration
	deaf    bool          // events do not arrive
	kept    []store.Event // while deaf, to arrive afterwards
	sinks   []func(store.Event)
	faulty  int       // calls under way that the weather has
	trouble time.Time // when the last one ended; zero: there was none
	told    map[string]*told
}

func newLink(label string, remote store.Store) *link {
	return &link{label: label, remote: remote, weather: fair, told: make(map[string]*told)}
}

func (l *link) set(w weather, calls int, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.weather, l.calls, l.delay = w, calls, delay
}

// block keeps events back; unblock lets them arrive, late, or drops them.
func (l *link) block() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = true
}

func (l *link) unblock(deliver bool) {
	l.mu.Lock()
	kept := l.kept
	if l.deaf {
		l.trouble = time.Now()
	}
	l.deaf, l.kept = false, nil
	l.mu.Unlock()
	if deliver {
		for _, e := range kept {
			l.deliver(e)
		}
	}
}

// troubled: the weather has an effect, or had one later than since.
func (l *link) troubled(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weather != fair || l.deaf || l.faulty > 0 || !l.trouble.IsZero() && !l.trouble.Before(since)
}

// next is the weather for one call, which has to call done when it has been
// applied, or never will be, and its caller has gone.
func (l *link) next() (w weather, delay time.Duration, done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = l.weather
	if l.calls--; l.calls == 0 {
		l.weather = fair
	}
	if w == fair {
		return w, 0, func() {}
	}
	l.faulty++
	return w, l.delay, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.faulty--
		l.trouble = time.Now()
	}
}

// send makes one call. The store never sees the caller's context: what has been
// sent arrives, whether its sender still waits or not.
func send[R any](ctx context.Context, l *link, call func(context.Context) R, lost func(error) R) R {
	w, delay, done := l.next()
	switch w {
	case refused:
		defer done()
		return lost(errLink)
	case replyLost:
		defer done()
		call(context.Background())
		return lost(errLink)
	case silent, mute:
		defer done()
		if w == mute {
			call(context.Background())
		}
		<-ctx.Done()
		return lost(ctx.Err())
	case slow:
		reply := make(chan R, 1)
		time.AfterFunc(delay, func() {
			defer done()
			reply <- call(context.Background())
		})
		select {
		case r := <-reply:
			return r
		case <-ctx.Done():
			return lost(ctx.Err())
		}
	}
	return call(context.Background())
}

type acquired struct {
	grant store.Grant
	err   error
}

func (l *link) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	sent := time.Now()
	l.asked(req, sent)
	r := send(ctx, l, func(ctx context.Context) acquired {
		g, err := l.remote.Acquire(ctx, req)
		return acquired{g, err}
	}, func(err error) acquired { return acquired{err: err} })
	if r.err == nil {
		l.answered(req, r.grant, sent)
	}
	return r.grant, r.err
}

func (l *link) Renew(ctx context.Context, refs []store.Ref) []error {
	sent := time.Now()
	results := send(ctx, l, func(ctx context.Context) []error {
		return l.remote.Renew(ctx, refs)
	}, func(err error) []error { return slices.Repeat([]error{err}, len(refs)) })
	for i, err := range results {
		l.renewed(refs[i], err, sent)
	}
	return results
}

func (l *link) Release(ctx context.Context, ref store.Ref) error {
	return send(ctx, l, func(ctx context.Context) error {
		return l.remote.Release(ctx, ref)
	}, func(err error) error { return err })
}

func (l *link) Listen(sink func(store.Event)) (stop func()) {
	l.mu.Lock()
	l.sinks = append(l.sinks, sink)
	l.mu.Unlock()
	return l.remote.Listen(l.hear)
}

func (l *link) hear(e store.Event) {
	l.mu.Lock()
	if l.deaf {
		l.kept = append(l.kept, e)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.deliver(e)
}

func (l *link) deliver(e store.Event) {
	l.pushed(e)
	l.mu.Lock()
	sinks := slices.Clone(l.sinks)
	l.mu.Unlock()
	for _, sink := range sinks {
		sink(e)
	}
}

func (l *link) Inspect(ctx context.Context, name string) (store.State, error) {
	return l.remote.Inspect(ctx, name)
}

func (l *link) MinTTL() time.Duration { return l.remote.MinTTL() }

func (l *link) Close() error { return l.remote.Close() }
