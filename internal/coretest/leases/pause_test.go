package leases

import (
	"context"
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

// pausing is a store whose events arrive late.
type pausing struct {
	*coretest.Spy
	pause time.Duration
}

func (s *pausing) Listen(sink func(store.Event)) (stop func()) {
	return s.Spy.Listen(func(e store.Event) {
		time.AfterFunc(s.pause, func() { sink(e) })
	})
}

// A pause between the grant and the return of Lock is longer than the lease. Lock returns ErrLost
// and gives the grant back.
func TestFault58PauseBetweenGrantAndReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var lost coretest.Losses
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second, StoreTimeout: time.Hour, OnLost: lost.Add})
		for pause, ok := range map[time.Duration]bool{
			time.Second - coretest.Margin(time.Second) - 1: true,
			time.Second - coretest.Margin(time.Second):     false,
			time.Second:     false,
			2 * time.Second: false,
		} {
			s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
				g, err := s.Store.Acquire(ctx, req)
				time.Sleep(pause)
				return g, err
			})
			h, err := c.Mutex("m").TryLockContext(t.Context())
			if !ok {
				coretest.WantError(t, err, "trylock", "m", dlock.ErrLost)
				synctest.Wait()
				coretest.WantFree(t, s, "m")
				continue
			}
			require.NoError(t, err)
			require.NoError(t, h.Err())
			require.NoError(t, h.Unlock())
		}
		assert.Empty(t, lost.All(), "a lock that was never held was reported as lost")
	})
}

// The same with Lock, which tries again.
func TestFault58LockTriesAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		m := coretest.Open(t, s, &dlock.Options{TTL: time.Second, StoreTimeout: time.Hour}).Mutex("m")
		pauses := 3
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, req)
			if pauses--; pauses >= 0 {
				time.Sleep(990 * time.Millisecond)
			}
			return g, err
		})
		m.Lock()
		assert.Negative(t, pauses)
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		m.Unlock()
	})
}

// The same with a grant by event. It is worth the rest of a promotion's short lease, so the waiter
// asks the store instead.
func TestFault58PauseBeforeTheEventIsSeen(t *testing.T) {
	for _, pause := range []time.Duration{900 * time.Millisecond, 990 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &pausing{coretest.NewSpy(memory.New()), pause}
				peer := coretest.Open(t, s.Store.(*memory.Store).Peer(), nil)
				c := coretest.Open(t, s, &dlock.Options{TTL: time.Minute, WaitTTL: time.Second})
				first := coretest.MustLock(t, t.Context(), peer.Mutex("m"))
				m := c.Mutex("m")
				done := make(chan *dlock.Hold)
				go func() {
					h, err := m.LockContext(t.Context())
					assert.NoError(t, err)
					done <- h
				}()
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, first.Unlock())
				h := <-done
				require.NoError(t, h.Err())
				holders := coretest.Inspect(t, s, "m").Holders
				require.Len(t, holders, 1)
				assert.Equal(t, h.Token(), holders[0].Token, "the store agrees")
				time.Sleep(time.Hour)
				require.NoError(t, h.Unlock())
				coretest.WantFree(t, s, "m")
			})
		})
	}
}
