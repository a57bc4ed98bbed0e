package faults

import (
	"context"
	"errors"
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

// The store released and its answer was lost. The second release finds nothing, which means
// success then.
func TestFault06ReleaseReplyLost(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut":       faultstore.DropReply(),
		"duplicate": faultstore.Duplicate(),
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				rival := w.BeginLock(w.C2, "a")
				w.S1.On(faultstore.Release, faultstore.Nth(1), fault)
				w.Unlock(h)
				require.Less(t, time.Since(w.Start), 2*askGap)
				next, at := rival.Granted()
				require.Zero(t, w.After(at))
				w.Unlock(next)
				require.Zero(t, w.Losses())
			})
		})
	}
	// StoreTimeout ends before Unlock can try again. The error says unknown and not lost, and
	// the release goes on in the background.
	t.Run("silent", func(t *testing.T) {
		coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
			h := w.Lock(w.C1, "a")
			rival := w.BeginLock(w.C2, "a")
			w.S1.On(faultstore.Release, faultstore.Nth(1), faultstore.MuteReply())
			err := h.Unlock()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.NotErrorIs(t, err, dlock.ErrLost)
			require.Equal(t, storeTimeout, time.Since(w.Start))
			next, at := rival.Granted()
			require.Zero(t, w.After(at))
			synctest.Wait()
			require.Equal(t, 2, w.S1.Count(faultstore.Release))
			w.Unlock(next)
			require.Zero(t, w.Losses())
		})
	})
}

// A release arrives twice or late, when the same owner has locked again. It takes nothing from the
// new hold, because it names a request and not an owner.
func TestFault07StaleReleaseAfterNewAcquire(t *testing.T) {
	for name, plan := range map[string]func(<-chan struct{}) faultstore.Fault{
		"copy": faultstore.DuplicateWhen,
		"late": faultstore.HoldRequest,
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				late := w.Gate()
				w.S1.On(faultstore.Release, faultstore.Nth(1), plan(late.C))
				ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
				m := w.C1.Mutex("a")
				old, err := m.LockContext(ctx)
				require.NoError(t, err)
				w.Claim(old)
				_ = old.Unlock() // a late release has no answer in time
				synctest.Wait()

				h, err := m.LockContext(ctx)
				require.NoError(t, err)
				w.Claim(h)
				rival := w.BeginLock(w.C2, "a")
				late.Open()
				rival.StillWaits()
				stale := w.S1.Calls(faultstore.Release)[0]
				require.Equal(t, map[string]int{"copy": 2, "late": 1}[name], stale.Applied, "the fault has had no effect")
				require.NotEqual(t, w.S1.Calls(faultstore.Acquire)[1].ID(), stale.ID())
				require.Len(t, w.Inspect("a").Holders, 1)
				require.NoError(t, h.Err())
				w.Unlock(h)
				next, _ := rival.Granted()
				w.Unlock(next)
			})
		})
	}
}

// A release never reaches the store. The hold ends at once, and this client does not take it for
// held. A rival waits no longer than the lease, and the client stops retrying when nothing can be
// left.
func TestFault08ReleaseNeverArrives(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		rival := w.BeginLock(w.C2, "a")
		w.SleepUntil(time.Second)

		w.S1.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
		unlocking := w.Begin(func() (*dlock.Hold, error) { return nil, h.Unlock() })
		require.False(t, unlocking.Returned())
		at, err := w.Ended(h)
		require.Equal(t, time.Second, w.After(at), "the hold ends at once, before the store knows")
		require.ErrorIs(t, err, dlock.ErrNotHeld)
		require.Zero(t, h.Count())
		_, err = w.C1.Mutex("a").TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrHeld)

		at, err = unlocking.Failed()
		require.ErrorIs(t, err, dlock.ErrUnavailable)
		require.ErrorIs(t, err, faultstore.ErrTransport)
		require.LessOrEqual(t, w.After(at), time.Second+storeTimeout)
		require.Equal(t, 1, w.C1.Stats().Releases)

		next, at := rival.Granted()
		require.WithinRange(t, at, w.Start.Add(ttl), w.Start.Add(ttl+2*time.Millisecond))
		require.Zero(t, w.S1.Count(faultstore.Renew))
		w.SleepUntil(time.Second + storeTimeout + storeTimeout + ttl + time.Second)
		require.Zero(t, w.C1.Stats().Releases, "the lease is over, and the release is still tried")
		require.Less(t, w.S1.Count(faultstore.Release), 500, "retries without pauses")
		require.NoError(t, next.Err())
		w.Unlock(next)
		require.Zero(t, w.Losses(), "an unlocked hold was reported as lost")
	})
}

// The store refuses writes for a while (NOREPLICAS, MISCONF), the release among them. The hold
// ends at once all the same. The release is applied as soon as the store takes it.
func TestFault31ReleaseRefusedForAWhile(t *testing.T) {
	for name, refusal := range map[string]error{
		"unknown": errors.New("NOREPLICAS Not enough good replicas to write."),
		"refused": fmt.Errorf("%w: MISCONF Errors writing to the AOF file", store.ErrRefused),
	} {
		t.Run(name, func(t *testing.T) {
			coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
				h := w.Lock(w.C1, "a")
				rival := w.BeginLock(w.C2, "a")
				heal := w.S1.On(faultstore.Release, faultstore.Every, faultstore.Answer(refusal))
				unlocking := w.Begin(func() (*dlock.Hold, error) { return nil, h.Unlock() })
				at, err := w.Ended(h)
				require.Zero(t, w.After(at))
				require.ErrorIs(t, err, dlock.ErrNotHeld)
				at, err = unlocking.Failed()
				require.ErrorIs(t, err, refusal)
				require.LessOrEqual(t, w.After(at), storeTimeout)

				w.SleepUntil(10 * time.Second)
				rival.StillWaits()
				heal()
				next, at := rival.Granted()
				require.LessOrEqual(t, w.After(at), 10*time.Second+200*time.Millisecond)
				w.Unlock(next)
			})
		})
	}
}

// A waiter gives up and cannot reach the store, which grants its place at the end of WaitTTL. The
// grant then lives for another WaitTTL. It is released when the store can be reached again, before
// its lease has run out.
func TestFault08ReleaseOfAPlaceThatWasGranted(t *testing.T) {
	const waitTTL = 5 * time.Second
	coretest.InWorld(t, &dlock.Options{TTL: 3 * time.Second, WaitTTL: waitTTL}, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := w.C2.Mutex("a").LockContext(ctx)
			gaveUp <- err
		}()
		synctest.Wait()
		heal := w.S2.Outage(faultstore.DropRequest())
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		time.Sleep(waitTTL - time.Millisecond)
		w.Unlock(h)
		require.Len(t, w.Inspect("a").Holders, 1)
		time.Sleep(waitTTL - time.Second)
		require.Len(t, w.Inspect("a").Holders, 1)
		heal()
		time.Sleep(200 * time.Millisecond) // the longest pause between two tries
		require.Empty(t, w.Inspect("a").Holders)
	})
}
