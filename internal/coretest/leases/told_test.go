package leases

import (
	"context"
	"fmt"
	"log/slog"
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

// The log of a loss says which hold of which lock was lost. Of the id it shows the beginning.
func TestLogOfALossNamesTheHold(t *testing.T) {
	for name, find := range map[string]func(*testing.T, *dlock.Hold){
		"renewal": func(_ *testing.T, h *dlock.Hold) { <-h.Done() },
		"unlock":  func(t *testing.T, h *dlock.Hold) { require.ErrorIs(t, h.Unlock(), dlock.ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, logs := memory.New(), new(coretest.Logs)
				c := coretest.Open(t, s, &dlock.Options{Logger: slog.New(logs)})
				h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
				id := coretest.Inspect(t, s, "m").Holders[0].ID
				_, err := c.Break(t.Context(), "m")
				require.NoError(t, err)
				find(t, h)
				synctest.Wait()
				records := logs.Of(slog.LevelWarn, "hold")
				require.Len(t, records, 1)
				for attr, want := range map[string]any{"name": "m", "token": h.Token(), "id": id} {
					assert.Equal(t, want, records[0].Attrs[attr].Any(), attr)
				}
				_ = h.Unlock()
			})
		})
	}
}

// OnLost runs at most 64 times at once, as long as the calls return soon, and each loss is told.
func TestOnLostHasABound(t *testing.T) {
	const holds, most = 200, 64
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, greatest, told := 0, 0, 0
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{OnLost: func(*dlock.Hold) {
			mu.Lock()
			running++
			greatest, told = max(greatest, running), told+1
			mu.Unlock()
			time.Sleep(50 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
		}})
		list := make([]*dlock.Hold, holds)
		for i := range list {
			list[i] = coretest.MustLock(t, t.Context(), c.Mutex(fmt.Sprint(i)))
		}
		s.CutRenewals(coretest.Refuse)
		time.Sleep(2 * ttl)
		synctest.Wait()
		mu.Lock()
		assert.Equal(t, most, greatest)
		assert.Equal(t, holds, told)
		mu.Unlock()
		for _, h := range list {
			require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
	})
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

// A grant is lost before its call has it, so no caller unlocks it. The next hold of the owner is lost too. The
// owner cannot lock again before it has unlocked that one.
func TestLossAfterAGrantThatNobodyHadEndsReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		s := coretest.NewSpy(locks)
		c := coretest.Open(t, s, &dlock.Options{TTL: 4 * time.Second})
		m := c.Mutex("m").As(dlock.NewOwner())
		late := grantedLate(t, c, m)
		s.CutRenewals(func(context.Context) error { return store.ErrLost })
		time.Sleep(4 * time.Second) // the renewal finds the hold lost
		s.Recover()
		h := coretest.MustLock(t, t.Context(), m)
		require.Error(t, <-late)
		_, err := locks.Break(t.Context(), "m")
		require.NoError(t, err)
		<-h.Done()
		_, err = m.LockContext(t.Context())
		coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
		require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		require.NoError(t, coretest.MustLock(t, t.Context(), m).Unlock())
	})
}

// A nested handle is unlocked at the moment of its warning, before or after that is told. Later renewals of
// the hold are nothing that the log tells of it.
func TestGraceEndsWithItsHandleAtTheMomentOfTheWarning(t *testing.T) {
	for range rounds {
		inGrace(t, func(t *testing.T, c *dlock.Client, s *coretest.Spy, m *dlock.Mutex, logs *coretest.Logs) {
			h := coretest.MustLock(t, t.Context(), c.Mutex("m"))
			nested := coretest.MustLock(t, h.Context(t.Context()), m)
			s.GoDown()
			time.Sleep(coretest.Validity(ttl) - grace)
			require.NoError(t, nested.Unlock())
			s.Recover()
			time.Sleep(ttl)
			require.NoError(t, h.Unlock())
			synctest.Wait()
			assert.Empty(t, logs.Of(slog.LevelInfo, "renewed after its warning"))
		})
	}
}
