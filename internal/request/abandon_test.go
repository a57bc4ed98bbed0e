package request_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// A request that was cut is unknown. To abandon it buries its id for as long as
// anything of it may come to life.
func TestCutRequestIsBuried(t *testing.T) {
	inBubble(t, func(r *rig) {
		refs := r.releases(succeed)
		ctx, cancel := context.WithTimeout(r.t.Context(), timeout/2)
		defer cancel()
		r.answers(silent)
		q := r.request("m")
		assert.Equal(t, request.Unknown, q.Send(ctx).Outcome)
		gone := q.Cleared()
		q.Abandon()
		assert.Zero(t, r.cleared(gone))
		want := q.Ref()
		assert.True(t, want.Bury)
		assert.Equal(t, ttl, want.TTL)
		assert.Equal(t, []store.Ref{want}, refs.all())
	})
}

// The release of a place whose requests were all answered need not bury the id.
func TestAnsweredRequestIsNotBuried(t *testing.T) {
	inBubble(t, func(r *rig) {
		refs := r.releases(succeed)
		r.answers(queued(time.Second))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		gone := q.Cleared()
		q.Abandon()
		assert.Zero(t, r.cleared(gone))
		if all := refs.all(); assert.Len(t, all, 1) {
			assert.False(t, all[0].Bury)
		}
		assert.Zero(t, r.sender.Listening())
		r.events.Emit(store.Event{ID: q.ID(), Token: 9})
		time.Sleep(time.Minute)
		assert.Zero(t, o.get().calls, "a request that was abandoned told an outcome")
		assert.EqualValues(t, 1, r.spy.Acquires.Load())
	})
}

// A request that was refused, and never queued, leaves nothing to release.
func TestRefusedRequestIsNotReleased(t *testing.T) {
	inBubble(t, func(r *rig) {
		refs := r.releases(succeed)
		r.answers(failed(store.ErrHeld))
		q := r.request("m")
		assert.ErrorIs(t, q.Send(r.t.Context()).Err, store.ErrHeld)
		gone := q.Cleared()
		q.Abandon()
		assert.True(t, coretest.Closed(gone))
		synctest.Wait()
		assert.Empty(t, refs.all())
	})
}

// A request that is abandoned before it is sent sends nothing.
func TestAbandonBeforeStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		q, o := r.request("m"), new(told)
		gone := q.Cleared()
		q.Abandon()
		q.Start(o.take())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.True(t, coretest.Closed(gone))
		assert.Zero(t, r.spy.Calls())
		assert.Zero(t, o.get().calls)
		assert.Zero(t, r.sender.Listening())
	})
}

// Started in the background, a request is sent at once.
func TestStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(held(4))
		q, o := r.request("m"), new(told)
		q.Start(o.take())
		synctest.Wait()
		got := o.get()
		assert.Equal(t, 1, got.calls)
		assert.Equal(t, request.Granted, got.Outcome)
		assert.Equal(t, request.Grant{Token: 4, At: time.Now(), Deadline: time.Now().Add(ttl - request.Margin(ttl)), Alone: true}, got.Grant)
	})
}

// What is abandoned while a request is under way is released once that was answered,
// whatever the answer says.
func TestAbandonWhileUnderWay(t *testing.T) {
	for name, answer := range map[string]struct {
		f    func(context.Context, store.Request) (store.Grant, error)
		refs int
		bury bool
	}{
		"granted": {held(2), 1, false},
		"queued":  {queued(time.Second), 1, false},
		"refused": {failed(store.ErrHeld), 0, false},
		"unknown": {failed(errReset), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				refs := r.releases(succeed)
				r.answers(func(ctx context.Context, req store.Request) (store.Grant, error) {
					time.Sleep(timeout / 2)
					return answer.f(ctx, req)
				})
				q, o := r.request("m"), new(told)
				q.Start(o.take())
				synctest.Wait()
				gone := q.Cleared()
				q.Abandon()
				assert.Empty(t, refs.all(), "released before the answer")
				assert.Equal(t, timeout/2, r.cleared(gone))
				if all := refs.all(); assert.Len(t, all, answer.refs) && answer.refs > 0 {
					assert.Equal(t, answer.bury, all[0].Bury)
				}
				assert.Zero(t, o.get().calls)
			})
		})
	}
}

// The silence of a store ends a request after a TTL, and no sooner.
func TestSilenceOfATTLEndsARequest(t *testing.T) {
	for name, answer := range map[string]func(context.Context, store.Request) (store.Grant, error){
		"silent": silent, "down": failed(errReset),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.releases(succeed)
				r.answers(answer)
				q, o := r.request("m"), new(told)
				q.Start(o.take())
				time.Sleep(ttl - 2*timeout)
				assert.Zero(t, o.get().calls)
				time.Sleep(3 * timeout)
				got := o.get()
				assert.Equal(t, 1, got.calls)
				assert.Equal(t, request.Refused, got.Outcome)
				assert.ErrorIs(t, got.Err, request.ErrUnavailable)
				assert.LessOrEqual(t, got.after, ttl)
				assert.False(t, o.get().Late)
				q.Abandon()
			})
		})
	}
}

// A late request that fails is repeated for as long as it might have taken.
func TestLateRequestIsRepeated(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.releases(succeed)
		r.config.WaitTTL = 10 * ttl
		r.answers(queued(ttl), failed(errReset), failed(errReset), held(5))
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(ttl + timeout)
		synctest.Wait()
		assert.Equal(t, request.Granted, o.get().Outcome)
	})
}

// Of a late request that fails and then is silent both are told, and it stays late.
func TestLateRequestStaysLate(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.releases(succeed)
		r.config.WaitTTL = 10 * ttl
		r.answers(queued(ttl), failed(errReset), silent)
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(ttl + 2*timeout)
		synctest.Wait()
		assert.ErrorIs(t, o.get().Err, request.ErrUnavailable)
		assert.ErrorIs(t, o.get().Err, errReset)
		assert.ErrorContains(t, o.get().Err, "no reply")
		assert.True(t, o.get().Late)
		q.Abandon()
	})
}

// A request that the store wished to be sent at the end of the TTL has a whole timeout
// for its answer.
func TestLateRequestHasAWholeTimeout(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.releases(succeed)
		r.config.WaitTTL = 10 * ttl // so that the store may wish for a sleep as long as the TTL
		r.answers(queued(ttl), silent)
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(ttl + timeout/2)
		synctest.Wait()
		assert.Zero(t, o.get().calls, "the request under way has a timeout left")
		time.Sleep(timeout)
		synctest.Wait()
		assert.ErrorIs(t, o.get().Err, request.ErrUnavailable)
		assert.True(t, o.get().Late)
		q.Abandon()
	})
}

// Patience counts from the first request, also if that was sent on the caller's goroutine and had no answer.
func TestSilenceCountsFromTheFirstRequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.releases(succeed)
		r.config.TTL = timeout + timeout/10
		r.answers(silent)
		q, began := r.request("m"), time.Now()
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(time.Until(began.Add(r.config.TTL)))
		synctest.Wait()
		assert.ErrorIs(t, o.get().Err, request.ErrUnavailable)
		assert.False(t, o.get().Late)
		q.Abandon()
	})
}

// A request that was abandoned may be started, abandoned again and asked how it stands. None of these waits.
func TestAbandonedRequestBlocksNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		q, o := r.request("m"), new(told)
		q.Abandon()
		q.Start(o.take())
		q.Abandon()
		assert.Zero(t, q.Standing())
		assert.Zero(t, r.spy.Calls())
		assert.Zero(t, o.get().calls)
	})
}
