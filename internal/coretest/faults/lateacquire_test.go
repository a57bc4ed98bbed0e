package faults

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// An Acquire that arrives after its own release finds its id buried.
func TestFault05AcquireOvertakenByItsCleanup(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		late := w.Gate()
		w.S1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.HoldRequest(late.C))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := w.Begin(func() (*dlock.Hold, error) { return w.C1.Mutex("a").LockContext(ctx) })
		q.Failed()
		w.SleepUntil(storeTimeout)
		require.Equal(t, 1, w.S1.Count(faultstore.Release))
		require.Zero(t, w.C1.Stats().Releases)

		late.Open()
		synctest.Wait()
		require.Equal(t, 1, w.S1.Calls(faultstore.Acquire)[0].Applied, "the fault has had no effect")
		require.Empty(t, w.Inspect("a").Holders)
		w.Unlock(w.Lock(w.C2, "a"))
	})
}

// The same for a copy of a granted request: the reply was lost, the hold was released, then the
// copy arrives.
func TestFault05LateDuplicateAfterBuriedRelease(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		late := w.Gate()
		w.S1.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DropReply(), faultstore.DuplicateWhen(late.C))
		h := w.Lock(w.C1, "a") // by the second request
		w.Unlock(h)
		require.True(t, w.S1.Calls(faultstore.Release)[0].Refs[0].Bury)

		rival := w.Lock(w.C2, "a")
		late.Open()
		synctest.Wait()
		require.Equal(t, 2, w.S1.Calls(faultstore.Acquire)[0].Applied, "the fault has had no effect")
		state := w.Inspect("a")
		require.Len(t, state.Holders, 1)
		require.Empty(t, state.Queue, "the copy took a place")
		w.Unlock(rival)
		require.Empty(t, w.Inspect("a").Holders)
	})
}

// The same for a request that an event has overtaken: the lock was granted, used and released
// while the request was under way.
func TestFault05AskOvertakenByEventAndRelease(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		late := w.Gate()
		w.S2.On(faultstore.Acquire, faultstore.Nth(2), faultstore.HoldRequest(late.C))
		q := w.BeginLock(w.C2, "a")
		w.SleepUntil(2 * time.Second)
		require.Equal(t, 2, w.S2.Count(faultstore.Acquire))
		w.Unlock(h)
		next, at := q.Granted()
		require.Equal(t, 2*time.Second, w.After(at))
		w.Unlock(next)
		late.Open()
		synctest.Wait()
		require.Equal(t, 1, w.S2.Calls(faultstore.Acquire)[1].Applied, "the fault has had no effect")
		require.Empty(t, w.Inspect("a").Holders)
	})
}

// The same for a request that arrives when its id is not refused any more, because store calls may
// take longer than leases.
func TestFault05AskOvertakenByMoreThanALease(t *testing.T) {
	coretest.InWorld(t, &dlock.Options{TTL: time.Second, StoreTimeout: 10 * time.Second}, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		late := w.Gate()
		w.S2.On(faultstore.Acquire, faultstore.Nth(2), faultstore.HoldRequest(late.C))
		q := w.BeginLock(w.C2, "a")
		w.SleepUntil(400 * time.Millisecond)
		require.Equal(t, 2, w.S2.Count(faultstore.Acquire))
		w.Unlock(h)
		next, at := q.Granted()
		require.Equal(t, 400*time.Millisecond, w.After(at))
		w.Unlock(next)
		w.SleepUntil(2 * time.Second)
		late.Open()
		synctest.Wait()
		require.Equal(t, 1, w.S2.Calls(faultstore.Acquire)[1].Applied, "the fault has had no effect")
		require.Empty(t, w.Inspect("a").Holders)
	})
}
