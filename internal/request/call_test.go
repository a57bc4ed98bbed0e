package request_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

type key struct{}

// The context of a call has the values of the caller, and the earlier deadline of the
// caller's and the timeout's.
func TestCallHasTheValuesOfItsCaller(t *testing.T) {
	for own, want := range map[time.Duration]time.Duration{0: timeout, time.Minute: timeout, timeout / 2: timeout / 2} {
		inBubble(t, func(r *rig) {
			ctx := context.WithValue(r.t.Context(), key{}, "value")
			if own > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, own)
				defer cancel()
			}
			r.answers(func(ctx context.Context, _ store.Request) (store.Grant, error) {
				assert.Equal(t, "value", ctx.Value(key{}))
				deadline, ok := ctx.Deadline()
				assert.True(t, ok)
				assert.Equal(t, want, time.Until(deadline))
				assert.NoError(t, ctx.Err())
				return store.Grant{}, store.ErrHeld
			})
			assert.Equal(t, request.Refused, r.request("m").Send(ctx).Outcome)
		})
	}
}

// A call ends with its caller, with the timeout or with Close. Its outcome is unknown.
func TestCallEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(r *rig, cancel func())
		took time.Duration
	}{
		"with the caller":  {func(_ *rig, cancel func()) { cancel() }, timeout / 4},
		"with the timeout": {func(*rig, func()) {}, timeout},
		"with Close":       {func(r *rig, _ func()) { r.sender.StopAcquires() }, timeout / 4},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.releases(succeed)
				ctx, cancel := context.WithCancel(r.t.Context())
				defer cancel()
				r.answers(silent)
				time.AfterFunc(timeout/4, func() { tc.end(r, cancel) })
				q, began := r.request("m"), time.Now()
				a := q.Send(ctx)
				assert.Equal(t, tc.took, time.Since(began))
				assert.Equal(t, request.Unknown, a.Outcome)
				assert.NotErrorIs(t, a.Err, context.Canceled, "the caller looks at its own context")
				assert.NotErrorIs(t, a.Err, context.DeadlineExceeded)
				assert.True(t, q.Ref().Bury)
				q.Abandon()
			})
		})
	}
}

// A store that derives a context from that of a call starts no goroutine by that, and
// the derived context ends with the caller's.
func TestDerivedContextStartsNoGoroutine(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.releases(succeed)
		ctx, cancel := context.WithCancel(r.t.Context())
		r.answers(func(ctx context.Context, _ store.Request) (store.Grant, error) {
			before := runtime.NumGoroutine()
			derived, stop := context.WithTimeout(ctx, time.Hour)
			defer stop()
			assert.LessOrEqual(t, runtime.NumGoroutine(), before)
			cancel()
			<-derived.Done()
			return store.Grant{}, derived.Err()
		})
		q := r.request("m")
		assert.Equal(t, request.Unknown, q.Send(ctx).Outcome)
		q.Abandon()
	})
}

// counting is a context that counts what is registered with it.
type counting struct {
	context.Context
	registered *int
}

// Value hides the context inside, so that package context calls AfterFunc.
func (c counting) Value(any) any { return nil }

func (c counting) AfterFunc(f func()) (stop func() bool) {
	*c.registered++
	stopFunc := context.AfterFunc(c.Context, f)
	return func() bool { *c.registered--; return stopFunc() }
}

// When a call has returned, nothing of it is left with the caller's context, and
// contexts that were derived from it have ended.
func TestCallLeavesNothingWithItsCaller(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		registered := 0
		var call, derived context.Context
		r.answers(func(ctx context.Context, _ store.Request) (store.Grant, error) {
			call = ctx
			var stop func()
			derived, stop = context.WithCancel(ctx)
			r.t.Cleanup(stop)
			assert.NotNil(t, ctx.Done())
			assert.Equal(t, 1, registered)
			return store.Grant{}, store.ErrHeld
		})
		r.request("m").Send(counting{ctx, &registered})
		assert.Zero(t, registered)
		synctest.Wait()
		assert.Error(t, derived.Err())
		assert.True(t, coretest.Closed(call.Done()))
		assert.Error(t, call.Err())
	})
}

// A store that does not look at Done registers nothing.
func TestCallThatIsAnsweredAtOnceRegistersNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		registered := 0
		r.answers(func(context.Context, store.Request) (store.Grant, error) {
			assert.Zero(t, registered)
			return store.Grant{}, store.ErrHeld
		})
		r.request("m").Send(counting{ctx, &registered})
		assert.Zero(t, registered)
	})
}

// A store that looks at the context of a call that has returned leaves nothing either.
func TestLateLookAtTheContextOfACall(t *testing.T) {
	inBubble(t, func(r *rig) {
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		registered := 0
		var call context.Context
		r.answers(func(ctx context.Context, _ store.Request) (store.Grant, error) {
			call = ctx
			return store.Grant{}, store.ErrHeld
		})
		r.request("m").Send(counting{ctx, &registered})
		assert.True(t, coretest.Closed(call.Done()))
		assert.Error(t, call.Err())
		assert.Zero(t, registered)
	})
}

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
