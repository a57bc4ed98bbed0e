package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/stretchr/testify/require"
)

// hungShard makes one shard of the store hang after the client has locked 2,000 of its names, and
// returns when all of these holds are lost.
func hungShard(t *testing.T, w *coretest.World) (lost []*dlock.Hold, heal func()) {
	t.Helper()
	for i := range 2_000 {
		h, err := w.C1.Mutex(fmt.Sprint("hung ", i)).LockContext(t.Context())
		require.NoError(t, err)
		lost = append(lost, h)
	}
	heal = w.S1.On(faultstore.Any, func(c faultstore.Call) bool { return strings.HasPrefix(c.Name(), "hung ") }, faultstore.Mute())
	for _, h := range lost {
		w.Await(h.Done())
	}
	return lost, heal
}

// endOfShard lets the shard answer again and unlocks the lost holds.
func endOfShard(w *coretest.World, lost []*dlock.Hold, heal func()) {
	heal()
	for _, h := range lost {
		w.UnlockLost(h)
	}
	time.Sleep(2*ttl + 20*storeTimeout)
}

// One shard of the store hangs with 2,000 lost holds. Unlock of another name has to give up a place
// in the store's queue as well, and is not delayed.
func TestFault104HungShardDelaysNoUnlock(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		lost, heal := hungShard(t, w)
		before := w.Lock(w.C1, "healthy")
		q1, q2 := w.BeginLock(w.C1, "healthy"), w.BeginLock(w.C1, "healthy")
		w.Unlock(before)
		synctest.Wait()
		first, _ := q1.Granted()
		w.Unlock(first)
		second, _ := q2.Granted()
		require.Len(t, w.Inspect("healthy").Queue, 1, "no place to give up")

		began := time.Now()
		w.Unlock(second)
		require.Zero(t, time.Since(began), "Unlock waited for releases of the hung shard")
		require.Empty(t, w.Inspect("healthy").Queue)
		w.Unlock(w.Lock(w.C2, "healthy"))
		endOfShard(w, lost, heal)
	})
}

// The same for a grant whose reply was lost and whose caller has gone: it is released as soon as
// the call has timed out.
func TestFault104HungShardDelaysNoLateGrant(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		lost, heal := hungShard(t, w)
		healthy := func(c faultstore.Call) bool { return c.Name() == "healthy" }
		cut := w.S1.On(faultstore.Acquire, healthy, faultstore.MuteReply())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := w.Begin(func() (*dlock.Hold, error) { return w.C1.Mutex("healthy").LockContext(ctx) }).Failed()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cut()
		lastOf := w.S1.Calls(faultstore.Acquire)
		require.Equal(t, 1, lastOf[len(lastOf)-1].Applied, "the fault has had no effect")
		next, at := w.BeginLock(w.C2, "healthy").Granted()
		require.LessOrEqual(t, at.Sub(began), storeTimeout, "the release waited for those of the hung shard")
		w.Unlock(next)
		endOfShard(w, lost, heal)
	})
}
