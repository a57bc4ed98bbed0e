package dlock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpgradeIsGrantedToTheOnlyReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		rw := coretest.Open(t, s, nil).RWMutex("m")
		r := coretest.MustRLock(t, t.Context(), rw)
		ctx := r.Context(t.Context())
		w := coretest.MustLock(t, ctx, rw)
		assert.Greater(t, w.Token(), r.Token())
		assert.Equal(t, 2, w.Count())
		assert.NoError(t, r.Err())

		require.NoError(t, w.Unlock())
		assert.True(t, rw.TryRLock(), "a reader again")
		rw.RUnlock()
		require.NoError(t, r.Unlock())
		coretest.WantFree(t, s, "m")
	})
}

// Two readers that wait for each other to unlock would wait for ever.
func TestUpgradeBesideOtherReadersFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		rw := c.RWMutex("m")
		r := coretest.MustRLock(t, t.Context(), rw)
		other := coretest.MustRLock(t, t.Context(), peer.RWMutex("m"))
		ctx, start := r.Context(t.Context()), time.Now()

		_, err := rw.LockContext(ctx)
		coretest.WantError(t, err, "lock", "m", dlock.ErrUpgrade)
		_, err = rw.TryLockContext(ctx)
		coretest.WantError(t, err, "trylock", "m", dlock.ErrUpgrade)
		coretest.WantError(t, rw.Do(ctx, nil), "do", "m", dlock.ErrUpgrade)
		assert.Zero(t, time.Since(start))
		assert.NoError(t, r.Err(), "the reader's lock stays")
		assert.Empty(t, coretest.Inspect(t, s, "m").Queue)

		require.NoError(t, other.Unlock())
		w := coretest.MustLock(t, ctx, rw)
		require.NoError(t, w.Unlock())
		require.NoError(t, r.Unlock())
	})
}

// The Locker forms refuse such an upgrade too.
func TestFault80LockUnderOnesOwnRLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		rw, other := c.RWMutex("m").As(dlock.NewOwner()), c.RWMutex("m")
		rw.RLock()
		rw.Lock() // alone
		rw.Unlock()
		other.RLock()
		coretest.WantPanic(t, rw.Lock, "lock", dlock.ErrUpgrade)
		assert.False(t, rw.TryLock())
		other.RUnlock()
		assert.True(t, rw.TryLock())
		rw.Unlock()
		rw.RUnlock()
	})
}

// An upgrade does not wait behind writers that wait for this reader.
func TestUpgradePassesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rw := coretest.Open(t, memory.New(), nil).RWMutex("m")
		r := coretest.MustRLock(t, t.Context(), rw)
		var wg sync.WaitGroup
		wg.Go(func() { rw.Lock(); rw.Unlock() })
		synctest.Wait()
		w := coretest.MustLock(t, r.Context(t.Context()), rw)
		require.NoError(t, w.Unlock())
		require.NoError(t, r.Unlock())
		wg.Wait()
	})
}

// A writer goes on as a reader, and no other writer gets the lock between.
func TestDowngradeLetsNoWriterBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		rw := c.RWMutex("m")
		w := coretest.MustLock(t, t.Context(), rw)
		var wg sync.WaitGroup
		written := make(chan struct{})
		wg.Go(func() { far := peer.RWMutex("m"); far.Lock(); close(written); far.Unlock() })
		synctest.Wait()

		r := coretest.MustRLock(t, w.Context(t.Context()), rw)
		assert.Equal(t, w.Token(), r.Token())
		assert.Equal(t, 2, r.Count())
		modes := func() (modes []store.Mode) {
			for _, e := range coretest.Inspect(t, s, "m").Holders {
				modes = append(modes, e.Mode)
			}
			return modes
		}
		assert.ElementsMatch(t, []store.Mode{store.Exclusive, store.Shared}, modes())
		require.NoError(t, w.Unlock())
		assert.Equal(t, []store.Mode{store.Shared}, modes())

		time.Sleep(time.Hour)
		assert.NoError(t, r.Err())
		assert.False(t, coretest.Closed(written))
		require.NoError(t, r.Unlock())
		<-written
		wg.Wait()
	})
}

// The readers that wait behind a downgraded writer and before the next writer are granted.
func TestDowngradeAdmitsTheReadersNextInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		rw := c.RWMutex("m").As(dlock.NewOwner())
		rw.Lock()
		reading := make(chan struct{})
		go func() { far := peer.RWMutex("m"); far.RLock(); close(reading); far.RUnlock() }()
		synctest.Wait()
		rw.RLock()
		require.False(t, coretest.Closed(reading))
		rw.Unlock()
		<-reading
		rw.RUnlock()
	})
}
