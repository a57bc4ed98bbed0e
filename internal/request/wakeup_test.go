package request_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// A grant that overtakes the answer "queued" is not lost.
func TestEventOvertakesTheAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(r.during(func(req store.Request) {
			r.events.Emit(store.Event{ID: req.ID, Token: 7})
		}, queued(time.Second)))
		q := r.request("m")
		a := q.Send(r.t.Context())
		assert.Equal(t, request.Queued, a.Outcome)
		o := r.poll(q, a)
		synctest.Wait()
		assert.Equal(t, 1, o.get().calls)
		assert.Equal(t, request.Granted, o.get().Outcome)
		assert.Equal(t, uint64(7), o.get().Grant.Token)
		assert.Equal(t, waitTTL-request.Margin(waitTTL), time.Until(o.get().Grant.Deadline), "the lease of a promotion")
		assert.Zero(t, o.get().after)
		assert.EqualValues(t, 1, r.spy.Acquires.Load())
	})
}

// Of two events that overtake the answer, the one with a grant counts.
func TestTwoEventsOvertakeTheAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(r.during(func(req store.Request) {
			r.events.Emit(store.Event{ID: req.ID, Token: 7})
			r.events.Emit(store.Event{ID: req.ID})
		}, queued(time.Second)))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		synctest.Wait()
		assert.Equal(t, request.Granted, o.get().Outcome)
		assert.Equal(t, uint64(7), o.get().Grant.Token)
	})
}

// An event that is forgotten among thousands of others costs the time of Retry.
func TestForgottenEventCostsRetry(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(r.during(func(req store.Request) {
			r.events.Emit(store.Event{ID: req.ID, Token: 7})
			for i := range 10_000 {
				r.events.Emit(store.Event{ID: fmt.Sprintf("%032x", i), Token: 8})
			}
		}, queued(time.Second)), held(7))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		synctest.Wait()
		assert.Zero(t, o.get().calls)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, request.Granted, o.get().Outcome)
		assert.Equal(t, time.Second, o.get().after)
	})
}

// "Anything may have changed" between a request and its answer, or after it, makes
// the request be sent again soon.
func TestResetMakesARequestAskAgain(t *testing.T) {
	for name, overtakes := range map[string]bool{"before the answer": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.answers(r.during(func(store.Request) {
					if overtakes {
						r.events.Emit(store.Event{})
					}
				}, queued(2*time.Second)), held(3))
				q := r.request("m")
				o := r.poll(q, q.Send(r.t.Context()))
				if !overtakes {
					r.events.Emit(store.Event{})
				}
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				assert.Equal(t, request.Granted, o.get().Outcome)
				assert.Equal(t, 1, o.get().calls)
			})
		})
	}
}

// An event and a reconnection that come together make one grant.
func TestGrantAndResetTogether(t *testing.T) {
	for name, list := range map[string][]bool{"grant first": {true, false}, "reset first": {false, true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.answers(queued(2*time.Second), held(3))
				q := r.request("m")
				o := r.poll(q, q.Send(r.t.Context()))
				for _, grant := range list {
					if grant {
						r.events.Emit(store.Event{ID: q.ID(), Token: 3})
					} else {
						r.events.Emit(store.Event{})
					}
				}
				time.Sleep(20 * time.Millisecond)
				synctest.Wait()
				assert.Equal(t, 1, o.get().calls)
				assert.Equal(t, uint64(3), o.get().Grant.Token)
				assert.EqualValues(t, 1, r.spy.Acquires.Load())
			})
		})
	}
}

// A flood of events makes no more than one request in ten milliseconds.
func TestEventsAreBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(queued(2 * time.Second))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		for range 1000 {
			r.events.Emit(store.Event{ID: q.ID()})
			r.events.Emit(store.Event{})
			time.Sleep(time.Millisecond)
		}
		assert.LessOrEqual(t, r.spy.Acquires.Load(), int64(102))
		assert.Greater(t, r.spy.Acquires.Load(), int64(50))
		synctest.Wait() // a request that begins at this moment is answered as the others
		r.spy.Recover()
		r.releases(succeed)
		q.Abandon()
		assert.Zero(t, o.get().calls)
	})
}

// A wish of the store that is out of bounds is not followed: the place has to be kept,
// and "at once" is no hot loop.
func TestRetryIsBounded(t *testing.T) {
	for wish, most := range map[time.Duration]int64{time.Hour: 3, -time.Second: 6000} {
		inBubble(t, func(r *rig) {
			r.answers(queued(wish))
			q := r.request("m")
			r.poll(q, q.Send(r.t.Context()))
			time.Sleep(waitTTL - time.Millisecond)
			synctest.Wait()
			assert.LessOrEqual(t, r.spy.Acquires.Load(), most, wish)
			assert.GreaterOrEqual(t, r.spy.Acquires.Load(), int64(3), wish)
			r.releases(succeed)
			q.Abandon()
		})
	}
}

// An event that comes while a request in the background is under way is not lost,
// though the answer may have been made up before it.
func TestEventWhileARequestIsUnderWay(t *testing.T) {
	hint := func(q *request.Request) store.Event { return store.Event{ID: q.ID()} }
	grant := func(q *request.Request) store.Event { return store.Event{ID: q.ID(), Token: 7} }
	reset := func(*request.Request) store.Event { return store.Event{} }
	for name, tc := range map[string]struct {
		fixed  bool
		events []func(*request.Request) store.Event
		after  time.Duration // the second request was sent, at most
		token  uint64
		calls  int64
	}{
		"grant":                  {false, []func(*request.Request) store.Event{grant}, timeout / 4, 7, 2},
		"grant and reset":        {false, []func(*request.Request) store.Event{grant, reset}, timeout / 4, 7, 2},
		"hint":                   {false, []func(*request.Request) store.Event{hint}, timeout / 2, 9, 3},
		"reset":                  {false, []func(*request.Request) store.Event{reset}, timeout / 2, 9, 3},
		"hint and reset":         {false, []func(*request.Request) store.Event{hint, reset}, timeout / 2, 9, 3},
		"grant of a fixed lease": {true, []func(*request.Request) store.Event{grant}, timeout / 2, 9, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.config.Fixed = tc.fixed
				r.answers(queued(time.Second), func(ctx context.Context, req store.Request) (store.Grant, error) {
					time.Sleep(timeout / 2)
					return queued(time.Second)(ctx, req)
				}, held(9))
				q := r.request("m")
				o := r.poll(q, q.Send(r.t.Context()))
				time.Sleep(time.Second + timeout/4)
				synctest.Wait()
				for _, e := range tc.events {
					r.events.Emit(e(q))
				}
				time.Sleep(timeout / 2)
				synctest.Wait()
				got := o.get()
				assert.Equal(t, 1, got.calls)
				assert.Equal(t, tc.token, got.Grant.Token)
				assert.Equal(t, time.Second+tc.after, got.after)
				assert.Equal(t, tc.calls, r.spy.Acquires.Load())
			})
		})
	}
}

// A grant that came as an event before any reply has to be released, and is cleared
// only then.
func TestPushedGrantBeforeAnyReply(t *testing.T) {
	inBubble(t, func(r *rig) {
		arrive := make(chan struct{})
		r.answers(func(ctx context.Context, req store.Request) (store.Grant, error) {
			<-arrive
			return store.Grant{Held: true, Token: 7, TTL: req.TTL, Holds: 1}, nil
		})
		q := r.request("m")
		var got request.Answer
		q.Start(func(a request.Answer) { got = a })
		synctest.Wait()
		r.events.Emit(store.Event{ID: q.ID(), Token: 7})
		synctest.Wait()
		assert.Equal(t, request.Granted, got.Outcome)
		cleared := q.Cleared()
		q.Abandon()
		synctest.Wait()
		assert.Positive(t, r.spy.Releases.Load(), "nothing was released")
		close(arrive)
		synctest.Wait()
		<-cleared
	})
}

// An event without a token that overtakes the answer "queued" has the request sent again soon.
func TestHintOvertakesTheAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(r.during(func(req store.Request) {
			r.events.Emit(store.Event{ID: req.ID})
		}, queued(time.Second)), held(7))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, o.get().calls)
		assert.Equal(t, uint64(7), o.get().Grant.Token)
	})
}
