package handover

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitingReaders starts n calls that wait for a reader's lock, one after another, while another
// client has the writer's lock.
func waitingReaders(t *testing.T, c *dlock.Client, n int) (got []chan *dlock.Hold, leave []context.CancelFunc) {
	t.Helper()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		ch := make(chan *dlock.Hold, 1)
		got, leave = append(got, ch), append(leave, cancel)
		go func() {
			h, err := c.RWMutex("m").RLockContext(ctx)
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				close(ch)
				return
			}
			ch <- h
		}()
		synctest.Wait()
	}
	return got, leave
}

// A reader that arrives while others of this process read joins them without a store call. It has
// its own token, and the last reader releases the hold.
func TestReadersShareAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		rw := c.RWMutex("m")
		var holds []*dlock.Hold
		var tokens []uint64
		for range 30 {
			h := coretest.MustRLock(t, t.Context(), rw)
			holds, tokens = append(holds, h), append(tokens, h.Token())
		}
		require.True(t, rw.TryRLock())
		coretest.WantRising(t, tokens)
		assert.Equal(t, int64(1), s.Calls())
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		for _, h := range holds {
			require.NoError(t, h.Unlock())
			assert.ErrorIs(t, h.Err(), dlock.ErrNotHeld)
		}
		assert.Equal(t, int64(1), s.Calls())
		rw.RUnlock()
		assert.Equal(t, int64(2), s.Calls())
		coretest.WantFree(t, s, "m")
		w := coretest.MustLock(t, t.Context(), rw)
		assert.Greater(t, w.Token(), tokens[29])
		require.NoError(t, w.Unlock())
	})
}

// A writer of another process waits for the window of local hand-over and the readers within,
// however many readers arrive one after another.
func TestReadersShareForAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, &dlock.Options{LocalHandoffs: 1000}), coretest.Open(t, s.Peer(), nil)
		over := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for !coretest.Closed(over) {
					h := coretest.MustRLock(t, t.Context(), c.RWMutex("m"))
					time.Sleep(3 * time.Millisecond)
					assert.NoError(t, h.Unlock())
				}
			})
		}
		for i := range 10 {
			time.Sleep(time.Duration(i) * time.Millisecond)
			began := time.Now()
			w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
			assert.LessOrEqual(t, time.Since(began), 13*time.Millisecond)
			require.NoError(t, w.Unlock())
		}
		close(over)
		wg.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// An outage ends the wait of every reader that follows another one's request.
func TestOutageReachesReadersThatFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		s.GoDown()
		began := time.Now()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, err := c.RWMutex("m").RLockContext(t.Context())
				assert.ErrorIs(t, err, dlock.ErrUnavailable)
				assert.InDelta(t, ttl, time.Since(began), float64(waitTTL))
			})
		}
		wg.Wait()
		s.Recover()
	})
}

// A lost lease is reported for every reader that shares it, and released once.
func TestLossIsReportedForEveryReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		var lost coretest.Losses
		rw := coretest.Open(t, s, &dlock.Options{OnLost: lost.Add}).RWMutex("m")
		a, b := coretest.MustRLock(t, t.Context(), rw), coretest.MustRLock(t, t.Context(), rw)
		again := coretest.MustRLock(t, b.Context(t.Context()), rw)
		assert.Equal(t, b.Token(), again.Token())
		s.CutRenewals(coretest.Refuse)
		time.Sleep(ttl)
		synctest.Wait()
		assert.ElementsMatch(t, []*dlock.Hold{a, b}, lost.All())
		for _, h := range []*dlock.Hold{a, b, again} {
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
		}
		assert.Equal(t, int64(1), s.Releases.Load())
		s.Recover()
		assert.True(t, rw.TryRLock())
		rw.RUnlock()
	})
}

func TestCloseEndsReadersThatShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		rw := c.RWMutex("m")
		a, b := coretest.MustRLock(t, t.Context(), rw), coretest.MustRLock(t, t.Context(), rw)
		require.NoError(t, c.Close())
		assert.ErrorIs(t, a.Err(), dlock.ErrClosed)
		assert.ErrorIs(t, b.Err(), dlock.ErrClosed)
		assert.Equal(t, int64(1), s.Releases.Load())
		coretest.WantFree(t, s, "m")
	})
}
