package request_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type answer = func(context.Context, store.Request) (store.Grant, error)

// Calls counts every call that has ended, and as failed those without a usable answer: an
// unknown outcome, or a refusal by the store itself. "Held" and "lost" are answers.
func TestCallsAreCounted(t *testing.T) {
	inBubble(t, func(r *rig) {
		expect := func(calls, failures, pushed int64, what string) {
			r.t.Helper()
			c, f, p := r.sender.Calls()
			assert.Equal(r.t, [3]int64{calls, failures, pushed}, [3]int64{c, f, p}, what)
		}
		r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
		for i, answer := range []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, errReset, store.ErrRefused} {
			r.answers(failed(answer))
			r.request("a").Send(r.t.Context())
			expect(int64(i+1), int64(max(i-2, 0)), 0, answer.Error())
		}
		r.answers(held(1))
		q := r.request("a")
		require.Equal(r.t, request.Granted, q.Send(r.t.Context()).Outcome)
		expect(6, 2, 0, "granted")
		require.NoError(r.t, q.Release(nil))
		expect(7, 2, 0, "released")

		refs := []store.Ref{{ID: "one"}, {ID: "two"}}
		for i, errs := range [][]error{{nil, nil}, {store.ErrLost, nil}, {errReset, nil}, {nil, store.ErrRefused}} {
			r.spy.OnRenew(func(context.Context, []store.Ref) []error { return errs })
			assert.Equal(r.t, errs, r.sender.Renew(r.t.Context(), refs))
			expect(int64(8+i), int64(2+max(i-1, 0)), 0, "renewed")
		}

		look := func(err error) error {
			return r.sender.AskStore(r.t.Context(), timeout, func(context.Context) error { return err })
		}
		assert.NoError(r.t, look(nil))
		expect(12, 4, 0, "looked")
		assert.ErrorIs(r.t, look(store.ErrUnsupported), store.ErrUnsupported)
		expect(12, 4, 0, "no call of the store was made")
		assert.Equal(r.t, store.ErrForeignKey, look(store.ErrForeignKey))
		expect(13, 4, 0, "a certain answer")
		err := look(errReset)
		assert.ErrorIs(r.t, err, errReset)
		assert.ErrorIs(r.t, err, request.ErrUnavailable)
		expect(14, 5, 0, "no answer")
	})
}

// A grant that comes as an event is counted as one.
func TestPushedGrantsAreCounted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.answers(queued(time.Hour))
		q := r.request("a")
		o := r.poll(q, q.Send(r.t.Context()))
		r.events.Emit(store.Event{ID: q.ID(), Token: 7})
		synctest.Wait()
		require.Equal(r.t, request.Granted, o.get().Outcome)
		_, _, pushed := r.sender.Calls()
		assert.Equal(r.t, int64(1), pushed)
		r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
		require.NoError(r.t, q.Release(nil))
	})
}

// AskStore ends with its timeout, with Close and with ctx, and says which calls had no reply.
func TestAskStoreIsBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		err := r.sender.AskStore(r.t.Context(), 1500*time.Millisecond, wait)
		assert.Equal(r.t, 1500*time.Millisecond, time.Since(began))
		assert.ErrorIs(r.t, err, request.ErrUnavailable)
		assert.ErrorContains(r.t, err, "no reply from the store within 1.5s")
		assert.NotErrorIs(r.t, err, context.DeadlineExceeded, "that would be the caller's")

		ctx, cancel := context.WithCancel(r.t.Context())
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		assert.Error(r.t, r.sender.AskStore(ctx, time.Hour, wait))
		assert.Equal(r.t, time.Second, time.Since(began))

		time.AfterFunc(time.Second, r.sender.StopAcquires)
		began = time.Now()
		assert.Error(r.t, r.sender.AskStore(r.t.Context(), time.Hour, wait))
		assert.Equal(r.t, time.Second, time.Since(began))
	})
}

// An error of a context is the caller's or nobody's: what the store says with one is put in
// other words, and stays certain if it is.
func TestErrorsOfContextsAreReplaced(t *testing.T) {
	inBubble(t, func(r *rig) {
		dialing := fmt.Errorf("dialing: %w", context.DeadlineExceeded)
		late := func(ctx context.Context, _ store.Request) (store.Grant, error) {
			<-ctx.Done()
			return store.Grant{}, fmt.Errorf("reading: %w", ctx.Err())
		}
		send := func(answer func(context.Context, store.Request) (store.Grant, error)) error {
			r.answers(answer)
			return r.request("a").Send(r.t.Context()).Err
		}
		for want, answer := range map[string]answer{
			"no reply from the store within 1s":                                     silent,
			"no reply from the store within 1s: reading: context deadline exceeded": late,
			"the store gave up: context canceled":                                   failed(context.Canceled),
			"the store gave up: dialing: context deadline exceeded":                 failed(dialing),
		} {
			err := send(answer)
			require.EqualError(r.t, err, want)
			assert.False(r.t, request.Certain(err), want)
			assert.NotErrorIs(r.t, err, context.DeadlineExceeded)
			assert.NotErrorIs(r.t, err, context.Canceled)
		}
		err := send(failed(fmt.Errorf("%w: %w", store.ErrRefused, context.DeadlineExceeded)))
		assert.ErrorIs(r.t, err, store.ErrRefused)
		assert.NotErrorIs(r.t, err, context.DeadlineExceeded)
		assert.Same(r.t, errReset, send(failed(errReset)), "what is no error of a context stays as it is")

		// A silence of some milliseconds is told exactly, a longer one in whole milliseconds.
		for after, want := range map[time.Duration]string{9_500_000: "9.5ms", 20_700_000: "20ms"} {
			r.config.Timeout = after
			assert.ErrorContains(r.t, send(silent), "within "+want)
		}
	})
}

// A reply says more than the silence after it; a later reply says more than an earlier one.
func TestErrorBeforeTheSilenceIsKept(t *testing.T) {
	other := errors.New("not the leader")
	for name, test := range map[string]struct {
		answers []answer
		want    string
	}{
		"reply, then silence": {
			[]answer{failed(errReset), silent},
			"no reply from the store within 1s, and before that: connection reset",
		},
		"replies":  {[]answer{failed(errReset), failed(other)}, "not the leader"},
		"silences": {[]answer{silent, silent}, "no reply from the store within 1s"},
		"reply and silences": {
			[]answer{failed(errReset), silent, silent},
			"no reply from the store within 1s, and before that: connection reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.answers(test.answers...)
				q := r.request("a")
				for range test.answers {
					q.Send(r.t.Context())
				}
				assert.EqualError(r.t, q.Standing().Trouble, test.want)
				r.abandon(q)
			})
		})
	}
}

// How a request stands: who holds the lock and since when, and what is wrong with the store.
func TestStanding(t *testing.T) {
	inBubble(t, func(r *rig) {
		time.Sleep(time.Hour)
		q := r.request("a")
		assert.Zero(r.t, q.Standing(), "before it was sent")
		began := time.Now()
		by := func(err error) func(context.Context, store.Request) (store.Grant, error) {
			return func(context.Context, store.Request) (store.Grant, error) {
				time.Sleep(100 * time.Millisecond)
				return store.Grant{Position: 1, Retry: time.Hour, HeldBy: "them", HeldFor: time.Minute}, err
			}
		}
		r.answers(by(store.ErrHeld), failed(errReset), queued(time.Hour), by(nil))
		q.Send(r.t.Context())
		assert.Equal(r.t, request.Standing{HeldBy: "them", HeldSince: began.Add(-time.Minute)}, q.Standing())
		q.Send(r.t.Context())
		st := q.Standing()
		assert.Equal(r.t, "them", st.HeldBy)
		assert.Equal(r.t, began.Add(-time.Minute), st.HeldSince)
		assert.Equal(r.t, errReset, st.Trouble)
		q.Send(r.t.Context())
		assert.Zero(r.t, q.Standing(), "the answer names no holder")
		began = time.Now()
		q.Send(r.t.Context())
		assert.Equal(r.t, request.Standing{HeldBy: "them", HeldSince: began.Add(-time.Minute)}, q.Standing())
		r.answers(held(1))
		q.Send(r.t.Context())
		assert.Zero(r.t, q.Standing(), "it is granted")
		r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
		require.NoError(r.t, q.Release(nil))
	})
}

// A request under way is a trouble at once if nothing of its id was confirmed before, and else
// when its answer takes longer than a quarter of the timeout.
func TestStandingDuringARequest(t *testing.T) {
	inBubble(t, func(r *rig) {
		q := r.request("a")
		r.answers(silent)
		go func() {
			time.Sleep(100 * time.Millisecond)
			assert.ErrorContains(r.t, q.Standing().Trouble, "no reply from the store within 100ms")
		}()
		q.Send(r.t.Context())

		q = r.request("b")
		r.answers(queued(2*time.Second), silent)
		o := r.poll(q, q.Send(r.t.Context()))
		time.Sleep(2*time.Second + timeout/4 - 1)
		assert.NoError(r.t, q.Standing().Trouble)
		time.Sleep(time.Nanosecond)
		assert.ErrorContains(r.t, q.Standing().Trouble, "no reply from the store within 250ms")
		r.abandon(q)
		assert.Zero(r.t, o.get().calls)
	})
}

// The tokens that are reserved beside the first, as the store says how many are short.
func TestSpareTokens(t *testing.T) {
	for _, test := range []struct{ asked, short, want int }{
		{1, 0, 0}, {4, 0, 3}, {4, 1, 2}, {4, 3, 0}, {4, 9, 0}, {4, -2, 3},
	} {
		inBubble(t, func(r *rig) {
			r.answers(func(_ context.Context, req store.Request) (store.Grant, error) {
				assert.Equal(r.t, test.asked, req.Tokens)
				return store.Grant{Held: true, Token: 5, Short: test.short, TTL: req.TTL, Holds: 1}, nil
			})
			q := r.request("a")
			q.Init(r.sender, &r.config, store.Request{Name: "a", ID: q.ID(), Owner: "owner", Queue: true, Tokens: test.asked})
			a := q.Send(r.t.Context())
			assert.Equal(r.t, test.want, a.Grant.Spare, "%+v", test)
			r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
			require.NoError(r.t, q.Release(nil))
		})
	}
}

// A grant lasts as long as the lease at the store, counted from the sending, without the margin,
// and never longer than the TTL.
func TestDeadlineOfAGrant(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		ttl: ttl - 102*time.Millisecond, 2 * ttl: ttl - 102*time.Millisecond, time.Second: 988 * time.Millisecond,
	} {
		inBubble(t, func(r *rig) {
			began := time.Now()
			r.answers(func(context.Context, store.Request) (store.Grant, error) {
				time.Sleep(300 * time.Millisecond)
				return store.Grant{Held: true, Token: 1, TTL: lease, Holds: 1}, nil
			})
			q := r.request("a")
			a := q.Send(r.t.Context())
			assert.Equal(r.t, want, a.Grant.Deadline.Sub(began))
			assert.Equal(r.t, 300*time.Millisecond, a.Grant.At.Sub(began))
			r.spy.OnRelease(func(context.Context, store.Ref) error { return nil })
			require.NoError(r.t, q.Release(nil))
		})
	}
}

// A store that is closed before its client is found by a release.
func TestClosedStoreIsFound(t *testing.T) {
	inBubble(t, func(r *rig) {
		assert.NoError(r.t, r.sender.StoreClosed())
		r.answers(held(1))
		q := r.request("a")
		q.Send(r.t.Context())
		r.spy.OnRelease(func(context.Context, store.Ref) error { return store.ErrClosed })
		gone := q.Cleared()
		q.Abandon()
		<-gone
		err := r.sender.StoreClosed()
		assert.ErrorIs(r.t, err, store.ErrClosed)
		assert.Equal(r.t, err, request.WhichClosed(store.ErrClosed))
		assert.NotEqual(r.t, err, request.WhichClosed(request.ErrClosed), "the client was closed, not the store")
		assert.Equal(r.t, errReset, request.WhichClosed(errReset))
	})
}
