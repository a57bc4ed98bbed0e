package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

// The store released and its answer was lost. The second release finds nothing,
// which is what success looks like then.
func TestFault06ReleaseReplyLost(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"cut":       faultstore.DropReply(),
		"duplicate": faultstore.Duplicate(),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				rival := w.beginLock(w.c2, "a")
				w.s1.On(faultstore.Release, faultstore.Nth(1), fault)
				w.unlock(h)
				require.Less(t, time.Since(w.start), 2*askGap)
				next, at := rival.granted()
				require.Zero(t, w.after(at))
				w.unlock(next)
				require.Zero(t, w.toldLost())
			})
		})
	}
	// Unlock's own time is used up before it can ask again: the error says
	// unknown, not lost, and the release goes on in the background.
	t.Run("mute", func(t *testing.T) {
		inWorld(t, nil, func(t *testing.T, w *world) {
			h := w.lock(w.c1, "a")
			rival := w.beginLock(w.c2, "a")
			w.s1.On(faultstore.Release, faultstore.Nth(1), faultstore.MuteReply())
			err := h.Unlock()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.NotErrorIs(t, err, dlock.ErrLost)
			require.Equal(t, timeout, time.Since(w.start))
			next, at := rival.granted()
			require.Zero(t, w.after(at))
			synctest.Wait()
			require.Equal(t, 2, w.s1.Count(faultstore.Release))
			w.unlock(next)
			require.Zero(t, w.toldLost())
		})
	})
}

// A release that arrives again, or late, when the same owner has acquired anew,
// takes nothing from the new hold: it names an acquisition, not an owner.
func TestFault07StaleReleaseAfterNewAcquire(t *testing.T) {
	for name, plan := range map[string]func(<-chan struct{}) faultstore.Fault{
		"copy": faultstore.DuplicateWhen,
		"late": faultstore.HoldRequest,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				late := w.gate()
				w.s1.On(faultstore.Release, faultstore.Nth(1), plan(late.ch))
				ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
				m := w.c1.Mutex("a")
				old, err := m.LockContext(ctx)
				require.NoError(t, err)
				w.claim(old)
				_ = old.Unlock() // a late one has no answer in time
				synctest.Wait()

				h, err := m.LockContext(ctx)
				require.NoError(t, err)
				w.claim(h)
				rival := w.beginLock(w.c2, "a")
				late.open()
				rival.waits()
				stale := w.s1.Calls(faultstore.Release)[0]
				require.Equal(t, map[string]int{"copy": 2, "late": 1}[name], stale.Applied, "the fault has not bitten")
				require.NotEqual(t, w.s1.Calls(faultstore.Acquire)[1].ID(), stale.ID())
				require.Len(t, w.inspect("a").Holders, 1)
				require.NoError(t, h.Err())
				w.unlock(h)
				next, _ := rival.granted()
				w.unlock(next)
			})
		})
	}
}

// A release that never gets through: the holder is out at once, nobody here is
// taken for it, a rival waits no longer than the lease, and the client lets go
// when nothing can be left.
func TestFault08ReleaseNeverArrives(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		rival := w.beginLock(w.c2, "a")
		w.sleepUntil(time.Second)

		w.s1.On(faultstore.Release, faultstore.Every, faultstore.DropRequest())
		unlocking := w.begin(func() (*dlock.Hold, error) { return nil, h.Unlock() })
		require.False(t, unlocking.returned())
		at, err := w.ended(h)
		require.Equal(t, time.Second, w.after(at), "out at once, before the store knows")
		require.ErrorIs(t, err, dlock.ErrNotHeld)
		require.Zero(t, h.Count())
		_, err = w.c1.Mutex("a").TryLockContext(t.Context())
		require.ErrorIs(t, err, dlock.ErrHeld)

		at, err = unlocking.failed()
		require.ErrorIs(t, err, dlock.ErrUnavailable)
		require.ErrorIs(t, err, faultstore.ErrTransport)
		require.LessOrEqual(t, w.after(at), time.Second+timeout)
		require.Equal(t, 1, dlock.Chores(w.c1))

		next, at := rival.granted()
		require.WithinRange(t, at, w.start.Add(ttl), w.start.Add(ttl+2*time.Millisecond))
		require.Zero(t, w.s1.Count(faultstore.Renew))
		w.sleepUntil(time.Second + timeout + timeout + ttl + time.Second)
		require.Zero(t, dlock.Chores(w.c1), "nothing of it can be alive")
		require.Less(t, w.s1.Count(faultstore.Release), 500, "tries are spaced out")
		require.NoError(t, next.Err())
		w.unlock(next)
		require.Zero(t, w.toldLost(), "it was unlocked, not lost")
	})
}

// A store that refuses writes for a while (NOREPLICAS, MISCONF) refuses the
// release too: out at once all the same, and released when the store takes it.
func TestFault31ReleaseRefusedForAWhile(t *testing.T) {
	for name, refusal := range map[string]error{
		"unknown": errors.New("NOREPLICAS Not enough good replicas to write."),
		"refused": fmt.Errorf("%w: MISCONF Errors writing to the AOF file", store.ErrRefused),
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				h := w.lock(w.c1, "a")
				rival := w.beginLock(w.c2, "a")
				heal := w.s1.On(faultstore.Release, faultstore.Every, faultstore.Answer(refusal))
				unlocking := w.begin(func() (*dlock.Hold, error) { return nil, h.Unlock() })
				at, err := w.ended(h)
				require.Zero(t, w.after(at))
				require.ErrorIs(t, err, dlock.ErrNotHeld)
				at, err = unlocking.failed()
				require.ErrorIs(t, err, refusal)
				require.LessOrEqual(t, w.after(at), timeout)

				w.sleepUntil(10 * time.Second)
				rival.waits()
				heal()
				next, at := rival.granted()
				require.LessOrEqual(t, w.after(at), 10*time.Second+200*time.Millisecond)
				w.unlock(next)
			})
		})
	}
}

// Whoever waited has given up and cannot say so, and the store grants the place at
// the end of its time. What is to be released lives longer for that; it is released
// when the store can be reached again, and not left to its lease.
func TestFault08ReleaseOfAPlaceThatWasGranted(t *testing.T) {
	const waitTTL = 5 * time.Second
	inWorld(t, &dlock.Options{TTL: 3 * time.Second, WaitTTL: waitTTL}, func(t *testing.T, w *world) {
		h := w.lock(w.c1, "a")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := w.c2.Mutex("a").LockContext(ctx)
			gaveUp <- err
		}()
		synctest.Wait()
		heal := w.s2.Outage(faultstore.DropRequest())
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		time.Sleep(waitTTL - time.Millisecond)
		w.unlock(h)
		require.Len(t, w.inspect("a").Holders, 1)
		time.Sleep(waitTTL - time.Second)
		require.Len(t, w.inspect("a").Holders, 1)
		heal()
		time.Sleep(200 * time.Millisecond) // the longest pause of a cleaner
		require.Empty(t, w.inspect("a").Holders)
	})
}
