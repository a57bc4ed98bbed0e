package request_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// In an outage a Try goes on for its time, whatever the pauses are: the last request is sent when a tenth of the time
// is left, not later.
func TestTryUsesItsTime(t *testing.T) {
	for range 50 {
		inBubble(t, func(r *rig) {
			began := time.Now()
			var last time.Duration
			r.spy.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
				last = time.Since(began)
				return store.Grant{}, errReset
			})
			q := r.request("a")
			answer := q.Try(r.t.Context(), nil, time.Now().Add(timeout))
			assert.Equal(r.t, request.Refused, answer.Outcome)
			assert.ErrorIs(r.t, answer.Err, errReset)
			assert.Equal(r.t, timeout*9/10, last)
			assert.Equal(r.t, timeout*9/10, time.Since(began))
			assert.ErrorIs(r.t, q.Release(nil), store.ErrLost) // the store has done nothing
		})
	}
}

// The lease of a grant begins when the request that was granted is sent, not when the first one is.
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
