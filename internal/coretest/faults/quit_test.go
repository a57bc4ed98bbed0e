package faults

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call whose context panics while it waits leaves its place at the store to the call behind it.
func TestPanicInTheContextLeavesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		far := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("m"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		over := make(chan any)
		go func() {
			defer func() { over <- recover() }()
			_, _ = c.Mutex("m").LockContext(panicsAtEnd{ctx})
		}()
		synctest.Wait()
		next := make(chan *dlock.Hold, 1)
		go func() { next <- coretest.MustLock(t, t.Context(), c.Mutex("m")) }()
		synctest.Wait()
		place := coretest.Inspect(t, s, "m").Queue[0].ID
		require.Equal(t, "the context is broken", <-over)
		synctest.Wait()
		require.NoError(t, far.Unlock())
		synctest.Wait()
		holders := coretest.Inspect(t, s, "m").Holders
		require.Len(t, holders, 1)
		assert.Equal(t, place, holders[0].ID)
		require.NoError(t, (<-next).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The answer to a call's request is lost. Its owner has got the lock by another call meanwhile, so the call
// re-enters.
func TestCallWithoutAnAnswerReenters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		m := c.Mutex("m").As(dlock.NewOwner())
		s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
			s.OnAcquire(s.Store.Acquire)
			time.Sleep(time.Second)
			return store.Grant{}, coretest.ErrDown
		})
		got := make(chan *dlock.Hold, 1)
		go func() { got <- coretest.MustLock(t, t.Context(), m) }()
		synctest.Wait()
		other := coretest.MustLock(t, t.Context(), m)
		h := <-got
		assert.Equal(t, other.Token(), h.Token())
		assert.Equal(t, 2, h.Count())
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		require.NoError(t, other.Unlock())
		require.NoError(t, h.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
		assert.Zero(t, coretest.Gauges(c))
	})
}

// The store refuses the request of the first waiter. The call behind it asks for itself.
func TestRefusalConcernsNoCallBehind(t *testing.T) {
	coretest.InWorld(t, nil, func(t *testing.T, w *coretest.World) {
		h := w.Lock(w.C1, "a")
		w.S2.On(faultstore.Acquire, faultstore.Nth(2), faultstore.Answer(store.ErrRefused))
		first, behind := w.BeginLock(w.C2, "a"), w.BeginLock(w.C2, "a")
		_, err := first.Failed()
		require.ErrorIs(t, err, dlock.ErrRefused)
		behind.StillWaits()
		w.Unlock(h)
		next, _ := behind.Granted()
		w.Unlock(next)
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
