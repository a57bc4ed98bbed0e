package request_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// The context of a call ends with the caller, with the timeout or with Close, also for a store that asks for its error
// and never for Done.
func TestErrorOfAContextWithoutDone(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(r *rig, cancel func())
		want error
	}{
		"with the caller":  {func(_ *rig, cancel func()) { cancel() }, context.Canceled},
		"with the timeout": {func(*rig, func()) { time.Sleep(timeout) }, context.DeadlineExceeded},
		"with Close":       {func(r *rig, _ func()) { r.sender.StopAcquires() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				ctx, cancel := context.WithCancel(r.t.Context())
				defer cancel()
				r.answers(func(ctx context.Context, _ store.Request) (store.Grant, error) {
					assert.NoError(t, ctx.Err())
					tc.end(r, cancel)
					assert.Equal(t, tc.want, ctx.Err())
					return store.Grant{}, store.ErrHeld
				})
				assert.Equal(t, request.Refused, r.request("m").Send(ctx).Outcome)
			})
		})
	}
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
