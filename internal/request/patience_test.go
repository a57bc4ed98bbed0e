package request_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// abandon gives a request up and waits until nothing of it is left.
func (r *rig) abandon(q *request.Request) {
	r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
	gone := q.Cleared()
	q.Abandon()
	<-gone
}

// Try returns at once when ctx ends or stop closes in a pause, with an unknown outcome.
func TestTryEndsEarly(t *testing.T) {
	for name, end := range map[string]func(cancel context.CancelFunc, stop chan struct{}){
		"ctx":  func(cancel context.CancelFunc, _ chan struct{}) { cancel() },
		"stop": func(_ context.CancelFunc, stop chan struct{}) { close(stop) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.config.Timeout = time.Hour // its pauses grow to a second
				r.answers(failed(errReset))
				ctx, cancel := context.WithCancel(r.t.Context())
				defer cancel()
				stop := make(chan struct{})
				began := time.Now()
				time.AfterFunc(time.Minute, func() { end(cancel, stop) })
				a := r.request("a").Try(ctx, stop, time.Now().Add(r.config.Timeout))
				assert.Equal(r.t, request.Unknown, a.Outcome)
				assert.ErrorIs(r.t, a.Err, errReset)
				assert.Equal(r.t, time.Minute, time.Since(began))
			})
		})
	}
}

// Try goes on after an answer that is unknown, and tells the one that is known.
func TestTryTellsTheFirstKnownAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(failed(errReset), failed(errReset), failed(store.ErrHeld))
		a := r.request("a").Try(r.t.Context(), nil, time.Now().Add(timeout))
		assert.Equal(r.t, request.Refused, a.Outcome)
		assert.Equal(r.t, store.ErrHeld, a.Err)
		assert.Equal(r.t, int64(3), r.spy.Acquires.Load())

		r.answers(queued(time.Second)) // a store that ignores Queue
		a = r.request("a").Try(r.t.Context(), nil, time.Now().Add(timeout))
		assert.Equal(r.t, request.Refused, a.Outcome)
		assert.Equal(r.t, store.ErrHeld, a.Err)
	})
}

// An event with a token that an answer has told already is late: it is a reason to ask, no grant.
func TestLateEventIsNoGrant(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(func(context.Context, store.Request) (store.Grant, error) {
			return store.Grant{Position: 1, Retry: time.Hour, Token: 7}, nil
		}, queued(time.Hour))
		q := r.request("a")
		o := r.poll(q, q.Send(r.t.Context()))
		r.events.Emit(store.Event{ID: q.ID(), Token: 7})
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(r.t, o.get().calls)
		assert.Equal(r.t, int64(2), r.spy.Acquires.Load(), "it has asked")

		r.events.Emit(store.Event{ID: q.ID(), Token: 7}) // the second answer told no token
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(r.t, o.get().calls)
		r.abandon(q)
	})
}

// The pauses of a request that fails grow from a few milliseconds to a tenth of the lease, or a
// second if that is less, and are short again after an answer.
func TestPausesGrowAndBeginAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.config.TTL = 4 * time.Second
		var mu sync.Mutex
		var sent []time.Time
		answers := func(f answer) {
			r.spy.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				mu.Lock()
				sent = append(sent, time.Now())
				mu.Unlock()
				return f(ctx, req)
			})
		}
		answers(failed(errReset))
		q := r.request("a")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		longest := time.Duration(0)
		for i := 1; i < len(sent); i++ {
			longest = max(longest, sent[i].Sub(sent[i-1]))
		}
		assert.LessOrEqual(r.t, sent[1].Sub(sent[0]), 5*time.Millisecond)
		assert.Greater(r.t, longest, 200*time.Millisecond)
		assert.LessOrEqual(r.t, longest, 400*time.Millisecond)

		answers(queued(10 * time.Millisecond))
		time.Sleep(time.Second)
		synctest.Wait()
		before := len(sent)
		answers(failed(errReset))
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		assert.GreaterOrEqual(r.t, len(sent)-before, 4, "the pauses are short again")
		r.abandon(q)
		assert.Zero(r.t, o.get().calls)
	})
}

// A request whose answers are unknown is given up when nothing was confirmed for a whole TTL, and
// its last call ends no later.
func TestPatienceEndsWithTheLease(t *testing.T) {
	for name, answer := range map[string]func(context.Context, store.Request) (store.Grant, error){
		"failures": failed(errReset), "silence": silent,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.answers(queued(500*time.Millisecond), answer)
				q := r.request("a")
				o := r.poll(q, q.Send(r.t.Context()))
				time.Sleep(2 * ttl)
				synctest.Wait()
				got := o.get()
				assert.Equal(r.t, request.Refused, got.Outcome)
				assert.ErrorIs(r.t, got.Err, request.ErrUnavailable)
				assert.LessOrEqual(r.t, got.after, ttl)
				assert.Greater(r.t, got.after, ttl-2*time.Second)
				r.abandon(q)
			})
		})
	}
}

// The ids of a request are 32 hexadecimal digits, and differ.
func TestIDs(t *testing.T) {
	seen := make(map[string]bool)
	for range 1000 {
		a, b := request.NewIDs()
		for _, id := range []string{a, b} {
			assert.Regexp(t, "^[0-9a-f]{32}$", id)
			assert.False(t, seen[id])
			seen[id] = true
		}
	}
}

// A request that is sent after patience has run out, because the store wished it so late, has a
// whole timeout, in which what fails is repeated. An answer ends that: the next one has it again.
func TestPatienceBeginsAgainAfterAnAnswer(t *testing.T) {
	for name, trouble := range map[string]answer{"failures": failed(errReset), "silence": silent} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.config.TTL = timeout
				r.answers(queued(2*time.Second), failed(errReset), queued(2*time.Second), trouble)
				q := r.request("a")
				o := r.poll(q, q.Send(r.t.Context()))
				time.Sleep(2*time.Second + timeout/2) // the late request failed, and another was answered
				synctest.Wait()
				assert.Equal(r.t, int64(3), r.spy.Acquires.Load())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				got := o.get()
				assert.ErrorIs(r.t, got.Err, request.ErrUnavailable)
				assert.Greater(r.t, got.after, 4*time.Second+timeout*8/10)
				assert.LessOrEqual(r.t, got.after, 4*time.Second+timeout+5*time.Millisecond)
				assert.True(r.t, got.Late)
				r.abandon(q)
			})
		})
	}
}

// Try reports the reply that came before a silence.
func TestTryKeepsTheReplyBeforeASilence(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(failed(errReset), silent)
		began := time.Now()
		a := r.request("a").Try(r.t.Context(), nil, time.Now().Add(timeout))
		assert.LessOrEqual(r.t, time.Since(began), timeout)
		assert.ErrorIs(r.t, a.Err, request.ErrUnavailable)
		assert.ErrorIs(r.t, a.Err, errReset)
	})
}

// Release takes no longer than one call may take, whatever comes after a failure.
func TestReleaseIsBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.granted("a")
		var calls int
		r.spy.OnRelease(func(ctx context.Context, _ store.Ref) error {
			if calls++; calls == 1 {
				return errReset
			}
			<-ctx.Done()
			return ctx.Err()
		})
		began, gone := time.Now(), q.Cleared()
		assert.ErrorIs(r.t, q.Release(nil), request.ErrUnavailable)
		assert.LessOrEqual(r.t, time.Since(began), timeout)
		r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
		<-gone
	})
}

// However long a release may go on, it is tried again within a second: a lock that is not released keeps others out.
func TestReleaseIsTriedAgainSoon(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.config.Timeout = 5 * time.Minute
		q, began := r.granted("a"), time.Now()
		r.releases(func(int) error {
			if time.Since(began) < 40*time.Second {
				return errReset
			}
			return nil
		})
		assert.NoError(r.t, q.Release(nil))
		assert.LessOrEqual(r.t, time.Since(began), 41*time.Second)
	})
}

// A request listens from its place to its end, and what happened before it was sent is no reason
// to ask.
func TestListensWhileItWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.events.Emit(store.Event{}) // anything may have changed
		synctest.Wait()
		r.answers(queued(time.Hour))
		q, other := r.request("a"), r.request("b")
		r.poll(q, q.Send(r.t.Context()))
		r.poll(other, other.Send(r.t.Context()))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(r.t, int64(2), r.spy.Acquires.Load())
		assert.Equal(r.t, 2, r.sender.Listening())
		r.events.Emit(store.Event{})
		time.Sleep(500 * time.Millisecond) // not as long as they wait in any case
		synctest.Wait()
		assert.Equal(r.t, int64(4), r.spy.Acquires.Load())
		r.abandon(q)
		r.abandon(other)
	})
}

// deaf is a store that notes whether it is listened to.
type deaf struct {
	store.Store
	listening int
}

func (d *deaf) Listen(func(store.Event)) (stop func()) {
	d.listening++
	return func() { d.listening-- }
}

func TestClosedSenderDoesNotListen(t *testing.T) {
	inBubble(t, func(r *rig) {
		d := &deaf{Store: r.spy}
		sender := request.NewSender(d, slog.New(r.logs).Warn)
		assert.Equal(r.t, 1, d.listening)
		sender.StopAcquires()
		assert.Zero(r.t, d.listening)
		sender.StopReleases()
	})
}

// A request that is sent shortly before patience ends has a whole timeout for its answer.
func TestRequestNearTheEndHasAWholeTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.config.WaitTTL = 3 * ttl
		slow := func(ctx context.Context, req store.Request) (store.Grant, error) {
			select {
			case <-time.After(timeout * 7 / 10):
				return held(3)(ctx, req)
			case <-ctx.Done():
				return store.Grant{}, ctx.Err()
			}
		}
		r.answers(queued(ttl-timeout/2), slow)
		q := r.request("a")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(ttl + timeout)
		synctest.Wait()
		assert.Equal(r.t, request.Granted, o.get().Outcome)
		assert.Equal(r.t, int64(2), r.spy.Acquires.Load())
		r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
		assert.NoError(r.t, q.Release(nil))
	})
}

// A request that is sent in the background from the beginning is patient as any other.
func TestStartIsPatient(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(failed(errReset))
		q, o := r.request("a"), new(told)
		q.Start(o.take())
		time.Sleep(2 * ttl)
		synctest.Wait()
		got := o.get()
		assert.ErrorIs(r.t, got.Err, request.ErrUnavailable)
		assert.LessOrEqual(r.t, got.after, ttl)
		assert.Greater(r.t, got.after, ttl-2*time.Second)
		r.abandon(q)
	})
}
