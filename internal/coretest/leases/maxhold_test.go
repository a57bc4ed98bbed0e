package leases

import (
	"context"
	"sync"
	"sync/atomic"
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

func TestMaxHoldEndsAHoldExactlyThen(t *testing.T) {
	const limit = 10 * time.Second
	for name, mutex := range map[string]func(*testing.T, store.Store) *dlock.Mutex{
		"of the client": func(t *testing.T, s store.Store) *dlock.Mutex {
			return coretest.Open(t, s, &dlock.Options{TTL: time.Second, MaxHold: limit}).Mutex("m")
		},
		"of the lock": func(t *testing.T, s store.Store) *dlock.Mutex {
			return coretest.Open(t, s, &dlock.Options{TTL: time.Second, MaxHold: time.Hour}).Mutex("m", dlock.WithMaxHold(limit))
		},
		"shorter than the lease": func(t *testing.T, s store.Store) *dlock.Mutex {
			return coretest.Open(t, s, &dlock.Options{TTL: time.Minute}).Mutex("m", dlock.WithMaxHold(limit))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				m := mutex(t, s)
				start := time.Now()
				h := coretest.MustLock(t, t.Context(), m)
				nested := coretest.MustLock(t, h.Context(t.Context()), m)
				time.Sleep(limit / 2)
				again := coretest.MustLock(t, h.Context(t.Context()), m) // re-entry does not prolong the hold
				<-h.Done()
				assert.Equal(t, limit, time.Since(start))
				synctest.Wait()
				coretest.WantFree(t, s, "m") // released, not left to its lease
				for _, h := range []*dlock.Hold{h, nested, again} {
					assert.ErrorIs(t, h.Err(), dlock.ErrLost)
					assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
				}
			})
		})
	}
}

func TestMaxHoldOfZeroIsNoCap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{MaxHold: time.Second})
		h := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithMaxHold(0)))
		time.Sleep(time.Hour)
		require.NoError(t, h.Unlock())
	})
}

func TestMaxHoldStopsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		h := coretest.MustLock(t, t.Context(), coretest.Open(t, s, &dlock.Options{TTL: time.Minute}).Mutex("m", dlock.WithMaxHold(50*time.Second)))
		<-h.Done()
		assert.Zero(t, s.Renews.Load(), "the first lease was enough")
		assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	})
}

// A cap that is over before the hold can be handed out ends the hold, not the wait: each
// later grant would be over too, so Lock would try for ever.
func TestMaxHoldThatIsOverAtOnceIsALostHold(t *testing.T) {
	for name, modeOf := range map[string]func(*dlock.RWMutex) (sync.Locker, func(context.Context) (*dlock.Hold, error)){
		"writer": func(m *dlock.RWMutex) (sync.Locker, func(context.Context) (*dlock.Hold, error)) {
			return m, m.LockContext
		},
		"reader": func(m *dlock.RWMutex) (sync.Locker, func(context.Context) (*dlock.Hold, error)) {
			return m.RLocker(), m.RLockContext
		},
		"Try": func(m *dlock.RWMutex) (sync.Locker, func(context.Context) (*dlock.Hold, error)) {
			return m, m.TryLockContext
		},
		"explicit owner": func(m *dlock.RWMutex) (sync.Locker, func(context.Context) (*dlock.Hold, error)) {
			m = m.As(dlock.NewOwner())
			return m, m.LockContext
		},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan *dlock.Hold, 2)
			c := coretest.Open(t, memory.New(), &dlock.Options{MaxHold: 1, OnLost: func(h *dlock.Hold) { told <- h }})
			m, lockContext := modeOf(c.RWMutex("m"))
			h, err := lockContext(t.Context())
			require.NoError(t, err)
			assert.ErrorContains(t, h.Err(), "MaxHold reached")
			<-h.Done()
			assert.Same(t, h, <-told)
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)

			m.Lock()
			m.Unlock()
			<-told
			assert.Empty(t, told)
		})
	}
}

// The same for a waiter that is granted in the background.
func TestMaxHoldThatIsOverAtOnceEndsNoWait(t *testing.T) {
	var told atomic.Int32
	c := coretest.Open(t, memory.New(), &dlock.Options{MaxHold: 1, OnLost: func(*dlock.Hold) { told.Add(1) }})
	first := coretest.MustLock(t, t.Context(), c.Mutex("m", dlock.WithMaxHold(0)))
	var waiters sync.WaitGroup
	for range 20 {
		waiters.Go(func() {
			m := c.Mutex("m")
			m.Lock()
			m.Unlock()
		})
	}
	require.Eventually(t, func() bool { return c.Stats().Waiters == 20 }, 10*time.Second, time.Millisecond)
	require.NoError(t, first.Unlock())
	waiters.Wait()
	require.NoError(t, c.Close())
	assert.Eventually(t, func() bool { return told.Load() == 20 }, 10*time.Second, time.Millisecond)
}

func TestDoDoesNotCallFnWithALostHold(t *testing.T) {
	m := coretest.Open(t, memory.New(), &dlock.Options{MaxHold: 1}).Mutex("m")
	err := m.Do(t.Context(), func(context.Context) error {
		t.Error("fn was called")
		return nil
	})
	require.ErrorIs(t, err, dlock.ErrLost)
	assert.NotContains(t, err.Error(), "; and") // it is told once
}

// The owner of a hold that was over at once cannot lock again before it has unlocked that hold.
func TestMaxHoldThatIsOverAtOnceEndsReentry(t *testing.T) {
	m := coretest.Open(t, memory.New(), &dlock.Options{MaxHold: 1}).Mutex("m").As(dlock.NewOwner())
	for range 2 {
		h := coretest.MustLock(t, t.Context(), m)
		require.ErrorIs(t, h.Err(), dlock.ErrLost)
		_, err := m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	}
}
