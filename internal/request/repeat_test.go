package request_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// A grant that Try gets with a repeat lasts from the sending of that repeat.
func TestTryCountsFromItsRepeat(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.releases(succeed)
		var sent time.Time
		r.answers(failed(errReset), func(ctx context.Context, req store.Request) (store.Grant, error) {
			sent = time.Now()
			return held(1)(ctx, req)
		})
		q, began := r.request("a"), time.Now()
		a := q.Try(r.t.Context(), nil, began.Add(timeout))
		assert.Equal(t, request.Granted, a.Outcome)
		assert.True(t, sent.After(began))
		assert.Equal(t, ttl-request.Margin(ttl), a.Grant.Deadline.Sub(sent))
		assert.NoError(t, q.Release(nil))
	})
}

// A Release that is not confirmed tells for how long its last call had no reply, not all of them.
func TestReleaseTellsTheLastSilence(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.granted("m")
		var silence time.Duration
		calls := 0
		r.spy.OnRelease(func(ctx context.Context, _ store.Ref) error {
			switch calls++; calls {
			case 1:
				time.Sleep(timeout / 2)
				return errReset
			case 2:
				began := time.Now()
				<-ctx.Done()
				silence = time.Since(began)
				return ctx.Err()
			}
			return nil
		})
		gone := q.Cleared()
		err := q.Release(nil)
		assert.ErrorIs(t, err, request.ErrUnavailable)
		assert.ErrorContains(t, err, "within "+silence.Truncate(time.Millisecond).String())
		r.cleared(gone)
	})
}

// A release whose goroutine the store has ended is repeated after a pause, not at once.
func TestReleaseThatEndsItsGoroutinePauses(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.abandoned(1, "m")[0]
		r.spy.OnRelease(func(context.Context, store.Ref) error {
			time.Sleep(time.Millisecond)
			runtime.Goexit()
			return nil
		})
		gone := q.Cleared()
		q.Abandon()
		time.Sleep(timeout)
		assert.Less(t, r.spy.Releases.Load(), int64(50))
		r.releases(succeed)
		r.cleared(gone)
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
