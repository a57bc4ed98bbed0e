package faults

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// wantLostByRenewal asserts that h ends when the next renewal is sent, within a third of its
// validity.
func wantLostByRenewal(w *coretest.World, h *dlock.Hold) {
	w.T.Helper()
	from := time.Now()
	at, err := w.Ended(h)
	require.ErrorIs(w.T, err, dlock.ErrLost)
	require.LessOrEqual(w.T, at.Sub(from), validity(ttl)/3)
	renewals := w.S1.Calls(faultstore.Renew)
	require.Equal(w.T, renewals[len(renewals)-1].Sent, at)
}

// The store restarts empty. The next renewal reports the loss, waiters get the lock by asking
// again, and tokens still grow.
func TestFault15RestartWithLoss(t *testing.T) {
	for name, reconnects := range map[string]bool{"silent": false, "reconnect event": true} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				q := w.BeginLock(w.C2, "a")
				w.SleepUntil(4 * time.Second)
				w.RestartEmpty()
				bound := askEvery
				if reconnects {
					bound = askGap
					w.S1.Emit(store.Event{})
					w.S2.Emit(store.Event{})
				}
				next, at := q.Granted()
				require.LessOrEqual(t, w.After(at), 4*time.Second+bound)
				require.Greater(t, next.Token(), h.Token())

				wantLostByRenewal(w, h)
				require.Equal(t, 1, w.Losses())
				w.SleepUntil(4 * ttl)
				require.NoError(t, next.Err(), "the release of the lost hold took the new one")
				w.UnlockLost(h)
				w.Unlock(next)
			})
		})
	}
	// The same with an outage between. The loss is not reported during the outage, because
	// no answer shows it.
	t.Run("after an outage", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			w.SleepUntil(4 * time.Second)
			heal := w.S1.Outage(faultstore.DropRequest())
			w.RestartEmpty()
			w.SleepUntil(15 * time.Second)
			require.NoError(t, h.Err())
			heal()
			at, err := w.Ended(h)
			require.ErrorIs(t, err, dlock.ErrLost)
			require.Less(t, w.After(at), validity(ttl))
			w.UnlockLost(h)
			next := w.Lock(w.C2, "a")
			require.Greater(t, next.Token(), h.Token())
			w.Unlock(next)
		})
	})
}

// FLUSHALL: every hold and every place is gone at once. The next renewal reports each loss once.
// No waiter depends on a wake-up that will not come.
func TestFault17Flushed(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		var holds []*dlock.Hold
		var waits []*coretest.Call
		for i := range 3 {
			holds = append(holds, w.Lock(w.C1, fmt.Sprint(i)))
		}
		for i := range 3 {
			waits = append(waits, w.BeginLock(w.C2, fmt.Sprint(i)), w.BeginLock(w.C1, fmt.Sprint(i)))
		}
		w.SleepUntil(4 * time.Second)
		w.RestartEmpty()
		for range 3 { // one of each pair gets the lock, and the other one after it
			w.SleepUntil(4*time.Second + askEvery)
		}
		for _, h := range holds {
			require.NoError(t, h.Err())
		}
		for i := 0; i < len(waits); i += 2 {
			a, b := waits[i], waits[i+1]
			if !a.Returned() {
				a, b = b, a
			}
			next, _ := a.Granted()
			require.Greater(t, next.Token(), holds[2].Token())
			w.Unlock(next)
			next, _ = b.Granted()
			w.Unlock(next)
		}
		wantLostByRenewal(w, holds[0])
		require.Equal(t, 3, w.Losses())
		for _, h := range holds {
			w.UnlockLost(h)
		}
	})
}

// An operator deletes one hold. Its waiter is promoted, and the next renewal reports the loss.
func TestFault17Deleted(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		w.StoreLostData = true
		h := w.Lock(w.C1, "a")
		q := w.BeginLock(w.C2, "a")
		w.SleepUntil(4 * time.Second)
		_, err := w.Memory.Break(t.Context(), "a")
		require.NoError(t, err)
		next, at := q.Granted()
		require.Equal(t, 4*time.Second, w.After(at))
		require.Greater(t, next.Token(), h.Token())
		wantLostByRenewal(w, h)
		w.UnlockLost(h)
		w.SleepUntil(4 * ttl)
		require.NoError(t, next.Err())
		w.Unlock(next)
	})
}

// Unlock comes before the renewal that would have reported the loss. The release finds nothing,
// which is a loss and not success.
func TestFault17UnlockFindsNothing(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		w.SleepUntil(4 * time.Second)
		w.RestartEmpty()
		next := w.Lock(w.C2, "a")
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		require.Equal(t, 1, w.Losses())
		require.NoError(t, next.Err())
		require.Len(t, w.Inspect("a").Holders, 1)
		w.Unlock(next)
	})
}

// A nested call is the first to reach the store after the data were deleted. Its grant is the
// owner's only hold there, so the outer hold is lost: that is told at once, and the nested call
// fails. Else its fresh token would let the owner write beside, or after, another owner.
func TestFault17NestedCallAfterTheLoss(t *testing.T) {
	calls := map[string]func(*dlock.RWMutex, context.Context) (*dlock.Hold, error){
		"RLock":    (*dlock.RWMutex).RLockContext,
		"TryRLock": (*dlock.RWMutex).TryRLockContext,
	}
	for name, nested := range calls {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			rw := w.C1.RWMutex("a")
			outer, err := rw.LockContext(t.Context())
			require.NoError(t, err)
			w.SleepUntil(time.Second)
			w.RestartEmpty()
			w.Unlock(w.Lock(w.C2, "a"))

			_, err = nested(rw, outer.Context(t.Context()))
			require.ErrorIs(t, err, dlock.ErrLost, name)
			require.Equal(t, time.Second, w.After(time.Now()), name)
			require.ErrorIs(t, outer.Err(), dlock.ErrLost, name)
			require.Equal(t, 1, w.Losses(), name)
			require.Empty(t, w.Inspect("a").Holders, name)
			w.UnlockLost(outer)
		})
	}
}

// The store has lost the reader's hold of an owner, which asks for the writer's lock in it and has to wait. The event
// of its grant does not say so: the rival may have written since the owner read.
func TestFault17QueuedUpgradeAfterTheLoss(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		rw := w.C1.RWMutex("a")
		outer, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		rival := w.BeginLock(w.C2, "a")
		w.SleepUntil(time.Second)
		_, err = w.Memory.Break(t.Context(), "a")
		require.NoError(t, err)
		rivalHold, _ := rival.Granted()
		upgrade := w.Begin(func() (*dlock.Hold, error) { return rw.LockContext(outer.Context(t.Context())) })
		require.Len(t, w.Inspect("a").Queue, 1)
		w.Unlock(rivalHold)
		at, err := upgrade.Failed()
		require.ErrorIs(t, err, dlock.ErrLost)
		require.Equal(t, time.Second, w.After(at))
		require.ErrorIs(t, outer.Err(), dlock.ErrLost)
		require.Equal(t, 1, w.Losses())
		require.Empty(t, w.Inspect("a").Holders)
		w.UnlockLost(outer)
	})
}

// A nested call waits for a rival when the loss of the outer hold is found. It can only fail from then on, so it fails
// at once and keeps no place, also without a context that would end it.
func TestFault17WaitingNestedCallFailsWithTheLoss(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		rw, ctx := w.C1.RWMutex("a"), dlock.WithOwner(t.Context(), dlock.NewOwner())
		outer, err := rw.LockContext(ctx)
		require.NoError(t, err)
		rival := w.BeginLock(w.C2, "a")
		w.SleepUntil(time.Second)
		_, err = w.Memory.Break(t.Context(), "a")
		require.NoError(t, err)
		rivalHold, _ := rival.Granted()
		nested := w.Begin(func() (*dlock.Hold, error) { return rw.RLockContext(ctx) })
		require.Len(t, w.Inspect("a").Queue, 1)
		lostAt, err := w.Ended(outer)
		require.ErrorIs(t, err, dlock.ErrLost)
		at, err := nested.Failed()
		require.ErrorIs(t, err, dlock.ErrLost)
		require.Equal(t, w.After(lostAt), w.After(at))
		synctest.Wait()
		require.Empty(t, w.Inspect("a").Queue)
		require.NoError(t, rivalHold.Err())
		w.Unlock(rivalHold)
		w.UnlockLost(outer)
	})
}

// One key is evicted. The next renewal reports that loss, and the other holds of the same batch go
// on.
func TestFault30OneKeyEvicted(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		gone := w.Lock(w.C1, "gone")
		var others []*dlock.Hold
		for i := range 16 {
			others = append(others, w.Lock(w.C1, fmt.Sprint(i)))
		}
		w.SleepUntil(4 * time.Second)
		_, err := w.Memory.Break(t.Context(), "gone")
		require.NoError(t, err)
		at, err := w.Ended(gone)
		require.LessOrEqual(t, w.After(at), 4*time.Second+validity(ttl)/3)
		require.ErrorIs(t, err, dlock.ErrLost)
		synctest.Wait()
		batch := 0
		for _, renewal := range w.S1.Calls(faultstore.Renew) {
			if renewal.Result.Err != nil {
				batch = len(renewal.Refs)
			}
		}
		require.Greater(t, batch, 1, "the evicted hold was renewed alone")
		w.SleepUntil(4 * ttl)
		for _, h := range others {
			w.Unlock(h)
		}
		require.Equal(t, 1, w.Losses())
		w.UnlockLost(gone)
	})
}

// The store has lost the outer hold, so the grant of a nested call is given back. That release does not
// arrive. The grant is not renewed, and a rival waits no longer than its lease.
func TestGrantThatIsGivenBackIsNotRenewed(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		rw := w.C1.RWMutex("a")
		outer, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		w.SleepUntil(time.Second)
		w.RestartEmpty()
		heal := w.S1.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
		_, err = rw.RLockContext(outer.Context(t.Context()))
		require.ErrorIs(t, err, dlock.ErrLost)
		require.Len(t, w.Inspect("a").Holders, 1, "the fault has had no effect")
		next, at := w.BeginLock(w.C2, "a").Granted()
		require.WithinRange(t, at, w.Start.Add(time.Second+ttl), w.Start.Add(time.Second+ttl+50*time.Millisecond))
		heal()
		w.UnlockLost(outer)
		w.Unlock(next)
		time.Sleep(time.Second) // until the releases are tried again
	})
}
