package handover

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

// A writer that waits in this process ends the sharing at once.
func TestReadersDoNotJoinPastAWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), nil)
		rw := c.RWMutex("m")
		r := coretest.MustRLock(t, t.Context(), rw)
		wrote := make(chan struct{})
		go func() {
			w := coretest.MustLock(t, t.Context(), rw)
			close(wrote)
			assert.NoError(t, w.Unlock())
		}()
		synctest.Wait()
		assert.False(t, rw.TryRLock())
		got, _ := waitingReaders(t, c, 1)
		assert.Empty(t, got[0])
		require.NoError(t, r.Unlock())
		late := <-got[0]
		assert.True(t, coretest.Closed(wrote))
		require.NoError(t, late.Unlock())
	})
}

// Readers do not join past calls that wait behind readers with requests of their own.
func TestReadersDoNotJoinPastALocalQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		rw := c.RWMutex("m")
		r := coretest.MustRLock(t, t.Context(), rw)
		arrive := make(chan struct{})
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			if req.TTL == time.Minute {
				<-arrive
			}
			return s.Store.Acquire(ctx, req)
		})
		asked := make(chan *dlock.Hold, 1)
		go func() { asked <- coretest.MustRLock(t, t.Context(), c.RWMutex("m", dlock.WithTTL(time.Minute))) }()
		synctest.Wait()
		wrote := make(chan *dlock.Hold, 1)
		go func() { wrote <- coretest.MustLock(t, t.Context(), rw) }()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 1)
		assert.Empty(t, got[0], "joined past a writer")
		close(arrive)
		require.NoError(t, (<-asked).Unlock())
		require.NoError(t, r.Unlock())
		w := <-wrote
		assert.Empty(t, got[0])
		require.NoError(t, w.Unlock())
		require.NoError(t, (<-got[0]).Unlock())
		coretest.WantFree(t, s, "m")
	})
}

// Readers that do not share have one hold each at the store.
func TestReadersThatDoNotShare(t *testing.T) {
	for what, tc := range map[string]struct {
		opts   dlock.Options
		first  []dlock.LockOption
		second []dlock.LockOption
		as     func(*dlock.RWMutex) *dlock.RWMutex
	}{
		"off":             {opts: dlock.Options{LocalHandoffs: -1}},
		"MaxHold":         {opts: dlock.Options{MaxHold: time.Hour}},
		"fixed":           {first: []dlock.LockOption{dlock.WithoutRenewal()}, second: []dlock.LockOption{dlock.WithoutRenewal()}},
		"another TTL":     {second: []dlock.LockOption{dlock.WithTTL(time.Minute)}},
		"explicit owners": {as: func(rw *dlock.RWMutex) *dlock.RWMutex { return rw.As(dlock.NewOwner()) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			c := coretest.Open(t, s, &tc.opts)
			one, two := c.RWMutex("m", tc.first...), c.RWMutex("m", tc.second...)
			if tc.as != nil {
				one, two = tc.as(one), tc.as(two)
			}
			a, b := coretest.MustRLock(t, t.Context(), one), coretest.MustRLock(t, t.Context(), two)
			assert.Len(t, coretest.Inspect(t, s, "m").Holders, 2, what)
			require.NoError(t, a.Unlock())
			require.NoError(t, b.Unlock())
			coretest.WantFree(t, s, "m")
		})
	}
}

// Two calls of one owner are two requests under its id. Their holds are not shared, because the
// owner could otherwise upgrade beside readers that share with it.
func TestReadersOfOneOwnerWithTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		rw, other := c.RWMutex("m"), coretest.MustLock(t, t.Context(), c.Mutex("other"))
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		once, cancel := context.WithCancel(other.Context(t.Context()))
		go func() {
			_, err := rw.RLockContext(once)
			assert.ErrorIs(t, err, context.Canceled)
		}()
		synctest.Wait()
		twice := make(chan *dlock.Hold, 1)
		go func() { twice <- coretest.MustRLock(t, other.Context(t.Context()), rw) }()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 1)
		cancel()
		synctest.Wait()
		require.NoError(t, w.Unlock())
		r, beside := <-twice, <-got[0]
		_, err := rw.LockContext(r.Context(t.Context()))
		assert.ErrorIs(t, err, dlock.ErrUpgrade)
		require.NoError(t, beside.Unlock())
		require.NoError(t, r.Unlock())
		require.NoError(t, other.Unlock())
	})
}
