package leases

import (
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
