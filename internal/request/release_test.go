package request_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
)

// granted returns a request that is a hold.
func (r *rig) granted(name string) *request.Request {
	r.t.Helper()
	r.answers(held(1))
	q := r.request(name)
	assert.Equal(r.t, request.Granted, q.Send(r.t.Context()).Outcome)
	return q
}

// What Release returns for what the store says, and how often it asks.
func TestRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []error // the last one is repeated
		want    error   // nil: released
		asked   int     // 0: more than once
		pending int
	}{
		"released":                   {[]error{nil}, nil, 1, 0},
		"after a lost reply":         {[]error{errReset, store.ErrLost}, nil, 2, 0},
		"after several lost replies": {[]error{errReset, errReset, errReset, nil}, nil, 4, 0},
		"gone before":                {[]error{store.ErrLost}, store.ErrLost, 1, 0},
		"foreign key":                {[]error{store.ErrForeignKey}, store.ErrForeignKey, 1, 0},
		"refused for a moment":       {[]error{store.ErrRefused, nil}, nil, 2, 0},
		"gone after a refusal":       {[]error{store.ErrRefused, store.ErrLost}, store.ErrLost, 2, 0},
		"closed":                     {[]error{store.ErrClosed}, store.ErrClosed, 0, 1},
		"down":                       {[]error{errReset}, request.ErrUnavailable, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				q := r.granted("m")
				refs := r.releases(func(n int) error { return tc.answers[min(n, len(tc.answers))-1] })
				began := time.Now()
				err := q.Release(make(chan struct{}))
				assert.LessOrEqual(t, time.Since(began), timeout)
				assert.ErrorIs(t, err, tc.want)
				if tc.asked > 0 {
					assert.Len(t, refs.all(), tc.asked)
				} else {
					synctest.Wait()
					assert.Greater(t, len(refs.all()), 1, "it goes on in the background")
				}
				assert.Equal(t, tc.pending, r.sender.PendingReleases())
				assert.Len(t, r.logs.Of(slog.LevelWarn, ""), tc.pending, "what is not released is logged")
				for _, ref := range refs.all() {
					assert.Equal(t, q.Ref(), ref)
				}
				r.releases(succeed)
				time.Sleep(time.Minute)
			})
		})
	}
}

// A release that is not confirmed is logged once, and goes on until it is.
func TestUnconfirmedReleaseGoesOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.granted("m")
		r.releases(func(int) error { return errReset })
		gone := q.Cleared()
		err := q.Release(nil)
		assert.ErrorIs(t, err, request.ErrUnavailable)
		assert.ErrorIs(t, err, errReset)
		assert.Len(t, r.logs.Of(slog.LevelWarn, "release not confirmed"), 1)
		time.Sleep(time.Second)
		assert.Equal(t, 1, r.sender.PendingReleases())
		r.releases(succeed)
		assert.LessOrEqual(t, r.cleared(gone), 200*time.Millisecond)
		synctest.Wait()
		assert.Zero(t, r.sender.PendingReleases())
	})
}

// Close of the client ends the repeats of a Release, which then goes on in the
// background.
func TestReleaseStops(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.granted("m")
		r.releases(func(int) error { return errReset })
		stop := make(chan struct{})
		close(stop)
		began := time.Now()
		assert.ErrorIs(t, q.Release(stop), request.ErrUnavailable)
		assert.Zero(t, time.Since(began))
		r.releases(succeed)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, r.sender.PendingReleases())
	})
}

// A late reply to a request of a hold that is being released means that the request
// may have arrived after the release. The hold is released once more.
func TestReplyDuringReleaseIsReleasedToo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(func(_ context.Context, req store.Request) (store.Grant, error) {
			return queued(time.Second)(r.t.Context(), req)
		}, func(_ context.Context, req store.Request) (store.Grant, error) {
			time.Sleep(timeout / 2)
			return held(5)(r.t.Context(), req)
		})
		q := r.request("m")
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(time.Second) // the second request is under way
		synctest.Wait()
		r.events.Emit(store.Event{ID: q.ID(), Token: 5})
		assert.Equal(t, request.Granted, o.get().Outcome)
		refs := r.releases(func(n int) error {
			if n == 1 {
				time.Sleep(timeout * 3 / 4)
			}
			return nil
		})
		time.AfterFunc(timeout*5/8, func() {
			assert.Len(t, refs.all(), 1, "the first release would find the hold gone")
		})
		assert.NoError(t, q.Release(nil))
		synctest.Wait()
		all := refs.all()
		if assert.Len(t, all, 2) {
			assert.True(t, all[0].Bury, "a request may still arrive")
		}
		assert.Zero(t, r.sender.PendingReleases())
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
