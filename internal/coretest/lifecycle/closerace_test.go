package lifecycle

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Close comes during many calls of all kinds. When it returns nil, nothing may be left at the
// store.
func TestCloseDuringAStorm(t *testing.T) {
	for range 10 {
		s := memory.New()
		c, err := dlock.New(s.Peer(), &dlock.Options{TTL: time.Minute})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for {
					rw := c.RWMutex(string(rune('a' + rand.N(4))))
					f := rw.LockContext
					switch rand.N(4) {
					case 0:
						f = rw.RLockContext
					case 1:
						f = rw.TryLockContext
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.N(int64(5*time.Millisecond))))
					h, err := f(ctx)
					cancel()
					if err == nil {
						err = h.Unlock()
					}
					if errors.Is(err, dlock.ErrClosed) {
						return
					}
				}
			})
		}
		for range rand.N(200) {
			_ = c.Mutex("x").Do(context.Background(), func(context.Context) error { return nil })
		}
		err = c.Close()
		names, _ := s.List(context.Background())
		wg.Wait()
		require.NoError(t, err)
		require.Empty(t, names)
	}
}

// Close waits for an Unlock that has begun, as for everything that Close itself releases.
func TestCloseBesideUnlock(t *testing.T) {
	for range coretest.Closings {
		s := memory.New()
		c, err := dlock.New(s, nil)
		require.NoError(t, err)
		var unlocking sync.WaitGroup
		begin := make(chan struct{})
		for i := range 8 {
			h := coretest.MustLock(t, t.Context(), c.Mutex(string(rune('a'+i))))
			unlocking.Go(func() {
				<-begin
				if err := h.Unlock(); err != nil {
					assert.ErrorIs(t, err, dlock.ErrNotHeld)
					assert.ErrorIs(t, err, dlock.ErrClosed)
				}
			})
		}
		close(begin)
		err = c.Close()
		names, _ := s.List(t.Context())
		unlocking.Wait()
		require.NoError(t, err)
		require.Empty(t, names, "Close returned nil, and holds are left to their leases")
	}
}

// Close waits for a lock call that is on its way to the store. A later call does not reach the
// store.
func TestCloseBesideLock(t *testing.T) {
	for range coretest.Closings / 4 {
		s := memory.New()
		c, err := dlock.New(s, nil)
		require.NoError(t, err)
		var locking sync.WaitGroup
		begin := make(chan struct{})
		for i := range 8 {
			locking.Go(func() {
				<-begin
				for m := c.Mutex(string(rune('a' + i))); ; {
					h, err := m.LockContext(context.Background())
					if err != nil {
						assert.ErrorIs(t, err, dlock.ErrClosed)
						return
					}
					_ = h.Unlock()
				}
			})
		}
		close(begin)
		for range rand.N(50) {
			runtime.Gosched()
		}
		err = c.Close()
		names, _ := s.List(t.Context())
		locking.Wait()
		require.NoError(t, err)
		require.Empty(t, names)
	}
}
