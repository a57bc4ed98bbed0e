package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// A request that never arrived is asked again under the same id, so that it
// would have been harmless had it arrived after all.
func TestFault01AcquireRequestLost(t *testing.T) {
	t.Run("retried", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Acquire, faultstore.Nth(1, 2), faultstore.DropRequest())
			h := w.lock(w.c1, "a")

			asks := w.s1.Calls(faultstore.Acquire)
			require.Len(t, asks, 3)
			for _, ask := range asks {
				require.Equal(t, asks[0].ID(), ask.ID())
			}
			require.Less(t, w.after(asks[2].Sent), 2*askGap)
			require.Equal(t, []int{0, 0, 1}, []int{asks[0].Applied, asks[1].Applied, asks[2].Applied})
			w.unlock(h)
		})
	})
	t.Run("until the caller's deadline", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			off := w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.DropRequest())
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			q := w.begin(func() (*dlock.Hold, error) { return w.c1.Mutex("a").LockContext(ctx) })
			at, err := q.failed()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 2*time.Second, w.after(at))
			off()
		})
	})
	t.Run("a try answers within StoreTimeout", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.DropRequest())
			_, err := w.c1.Mutex("a").TryLockContext(t.Context())
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.ErrorIs(t, err, faultstore.ErrTransport)
			require.NotErrorIs(t, err, dlock.ErrHeld)
			require.LessOrEqual(t, time.Since(w.start), timeout)
		})
	})
}

// The store granted and its answer was lost. Asking again with the same id gets
// the same grant: no second hold, no second token, no false "held".
func TestFault02AcquireReplyLost(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut":            faultstore.DropReply(),
		"mute":           faultstore.MuteReply(),
		"late":           faultstore.DelayReply(2 * timeout),
		"duplicate":      faultstore.Duplicate(),
		"late duplicate": faultstore.DuplicateAfter(time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.s1.On(faultstore.Acquire, faultstore.Nth(1), fault)
				h, _ := w.beginLock(w.c1, "a").granted()
				w.sleepUntil(2 * timeout)

				state := w.inspect("a")
				require.Len(t, state.Holders, 1)
				require.Equal(t, h.Token(), state.Holders[0].Token)
				require.EqualValues(t, 1, state.Token, "tokens issued")
				w.unlock(h)
			})
		})
	}
}

// The same for a request that was queued: it keeps its one place and its turn.
func TestFault02QueuedReplyLost(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut":       faultstore.DropReply(),
		"mute":      faultstore.MuteReply(),
		"duplicate": faultstore.Duplicate(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c2, "a")
				w.s1.On(faultstore.Acquire, faultstore.Nth(1), fault)
				q1 := w.beginLock(w.c1, "a")
				q2 := w.beginLock(w.c2, "a")
				w.sleepUntil(timeout + time.Second)
				require.Len(t, w.inspect("a").Queue, 2)

				w.unlock(h)
				h1, at1 := q1.granted()
				require.Equal(t, timeout+time.Second, w.after(at1))
				q2.waits()
				w.unlock(h1)
				h2, _ := q2.granted()
				w.unlock(h2)
			})
		})
	}
}

// The store granted, its answer was lost and the caller has gone: the client
// gives the grant back by itself, with the id buried, and goes on trying until
// the store has confirmed or the lease is over.
func TestFault03AcquireReplyLostCallerGone(t *testing.T) {
	const gone = time.Second
	begin := func(t *testing.T, w *world) (rival *wait) {
		w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
		ctx, cancel := context.WithTimeout(t.Context(), gone)
		defer cancel()
		q := w.begin(func() (*dlock.Hold, error) { return w.c1.Mutex("a").LockContext(ctx) })
		rival = w.beginLock(w.c2, "a")
		at, err := q.failed()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, gone, w.after(at))
		require.Len(t, w.inspect("a").Holders, 1, "the fault has not bitten")
		return rival
	}
	t.Run("store answers", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			rival := begin(t, w)
			h, at := rival.granted()
			require.Equal(t, timeout, w.after(at), "given back when the call has timed out")
			releases := w.s1.Calls(faultstore.Release)
			require.Len(t, releases, 1)
			require.True(t, releases[0].Refs[0].Bury)
			w.unlock(h)
		})
	})
	t.Run("store answers later", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			heal := w.s1.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
			rival := begin(t, w)
			w.sleepUntil(10 * time.Second)
			rival.waits()
			heal()
			h, at := rival.granted()
			require.LessOrEqual(t, w.after(at), 10*time.Second+200*time.Millisecond)
			w.unlock(h)
		})
	})
	t.Run("queued", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c2, "a")
			w.s1.On(faultstore.Acquire, faultstore.Every, faultstore.MuteReply())
			ctx, cancel := context.WithTimeout(t.Context(), gone)
			defer cancel()
			q := w.begin(func() (*dlock.Hold, error) { return w.c1.Mutex("a").LockContext(ctx) })
			at, err := q.failed()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, gone, w.after(at))
			require.Len(t, w.inspect("a").Queue, 1, "the fault has not bitten")
			w.sleepUntil(timeout)
			require.Empty(t, w.inspect("a").Queue)
			w.unlock(h)
		})
	})
	t.Run("store never answers", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			w.s1.On(faultstore.Release, faultstore.Every, faultstore.Mute())
			h, at := begin(t, w).granted()
			require.WithinRange(t, at, w.start.Add(ttl), w.start.Add(ttl+2*time.Millisecond), "by the end of the lease")
			w.unlock(h)
			require.Equal(t, 1, dlock.Chores(w.c1))
			w.sleepUntil(timeout + timeout + ttl + timeout + time.Second)
			require.Zero(t, dlock.Chores(w.c1), "nothing of it can be alive")
		})
	})
}

// Re-entry makes no call, so no reply of it can be lost: the count is local.
func TestFault04ReentryDuringOutage(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		outer := w.lock(w.c1, "a")
		heal := w.s1.Outage(faultstore.DropReply())
		inner, err := w.c1.Mutex("a").LockContext(outer.Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 2, inner.Count())
		require.Equal(t, outer.Token(), inner.Token())
		w.unlock(inner)
		require.NoError(t, outer.Err())
		require.Equal(t, 1, w.s1.Count(faultstore.Any))
		heal()
		w.unlock(outer)
		require.Equal(t, 2, w.s1.Count(faultstore.Any))
	})
}

// What the store has to know of, a read under one's own write, it counts by id:
// asked three times over it is one hold, and one release ends it.
func TestFault04RepeatedReadUnderWriteCountsOnce(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		rw := w.c1.RWMutex("a")
		write, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		w.s1.On(faultstore.Acquire, faultstore.Nth(2, 3), faultstore.DropReply(), faultstore.Duplicate())
		read, err := rw.RLockContext(write.Context(t.Context()))
		require.NoError(t, err)
		require.Equal(t, 4, w.s1.Count(faultstore.Acquire))
		require.Len(t, w.inspect("a").Holders, 2)
		require.Equal(t, write.Token(), read.Token())
		w.unlock(read)
		require.Len(t, w.inspect("a").Holders, 1)
		w.unlock(write)
	})
}

// An acquire that arrives after its own clean-up finds its id buried.
func TestFault05AcquireOvertakenByItsCleanup(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		late := w.gate()
		w.s1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldRequest(late.ch))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := w.begin(func() (*dlock.Hold, error) { return w.c1.Mutex("a").LockContext(ctx) })
		q.failed()
		w.sleepUntil(timeout)
		require.Equal(t, 1, w.s1.Count(faultstore.Release))
		require.Zero(t, dlock.Chores(w.c1))

		late.open()
		synctest.Wait()
		require.Equal(t, 1, w.s1.Calls(faultstore.Acquire)[0].Applied, "the fault has not bitten")
		require.Empty(t, w.inspect("a").Holders)
		w.unlock(w.lock(w.c2, "a"))
	})
}

// The same for a copy of a request that was granted: its reply was lost, it was
// released, and then the copy arrives.
func TestFault05LateDuplicateAfterBuriedRelease(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		late := w.gate()
		w.s1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DropReply(), faultstore.DuplicateWhen(late.ch))
		h := w.lock(w.c1, "a") // by the second ask
		w.unlock(h)
		require.True(t, w.s1.Calls(faultstore.Release)[0].Refs[0].Bury)

		rival := w.lock(w.c2, "a")
		late.open()
		synctest.Wait()
		require.Equal(t, 2, w.s1.Calls(faultstore.Acquire)[0].Applied, "the fault has not bitten")
		state := w.inspect("a")
		require.Len(t, state.Holders, 1)
		require.Empty(t, state.Queue, "the copy took a place")
		w.unlock(rival)
		require.Empty(t, w.inspect("a").Holders)
	})
}

// The same for an ask that an event has overtaken: the lock was granted, used
// and released while the ask was on its way.
func TestFault05AskOvertakenByEventAndRelease(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		late := w.gate()
		w.s2.On(faultstore.Acquire, faultstore.Nth(2), faultstore.HoldRequest(late.ch))
		q := w.beginLock(w.c2, "a")
		w.sleepUntil(2 * time.Second)
		require.Equal(t, 2, w.s2.Count(faultstore.Acquire))
		w.unlock(h)
		next, at := q.granted()
		require.Equal(t, 2*time.Second, w.after(at))
		w.unlock(next)
		late.open()
		synctest.Wait()
		require.Equal(t, 1, w.s2.Calls(faultstore.Acquire)[1].Applied, "the fault has not bitten")
		require.Empty(t, w.inspect("a").Holders)
	})
}

// The same for an ask that arrives when its id is not refused any more, because calls
// of the store may take longer than leases.
func TestFault05AskOvertakenByMoreThanALease(t *testing.T) {
	inWorld(t, &dlock.Options{TTL: time.Second, StoreTimeout: 10 * time.Second}, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		late := w.gate()
		w.s2.On(faultstore.Acquire, faultstore.Nth(2), faultstore.HoldRequest(late.ch))
		q := w.beginLock(w.c2, "a")
		w.sleepUntil(400 * time.Millisecond)
		require.Equal(t, 2, w.s2.Count(faultstore.Acquire))
		w.unlock(h)
		next, at := q.granted()
		require.Equal(t, 400*time.Millisecond, w.after(at))
		w.unlock(next)
		w.sleepUntil(2 * time.Second)
		late.open()
		synctest.Wait()
		require.Equal(t, 1, w.s2.Calls(faultstore.Acquire)[1].Applied, "the fault has not bitten")
		require.Empty(t, w.inspect("a").Holders)
	})
}
