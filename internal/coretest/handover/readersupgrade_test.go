package handover

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A reader that shares with others of this process cannot upgrade. The store is not asked, because
// it takes them for one owner. The last one can upgrade, and then no reader joins.
func TestReadersThatShareUpgradeAlone(t *testing.T) {
	for _, last := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := coretest.NewSpy(memory.New())
			rw := coretest.Open(t, s, nil).RWMutex("m")
			holds := []*dlock.Hold{coretest.MustRLock(t, t.Context(), rw), coretest.MustRLock(t, t.Context(), rw)}
			for _, h := range holds {
				_, err := rw.LockContext(h.Context(t.Context()))
				assert.ErrorIs(t, err, dlock.ErrUpgrade)
			}
			assert.Equal(t, int64(1), s.Calls())
			require.NoError(t, holds[1-last].Unlock())
			r := holds[last]
			w := coretest.MustLock(t, r.Context(t.Context()), rw)
			assert.Greater(t, w.Token(), r.Token())
			assert.False(t, rw.TryRLock())
			require.NoError(t, w.Unlock())
			assert.True(t, rw.TryRLock())
			rw.RUnlock()
			require.NoError(t, r.Unlock())
			coretest.WantFree(t, s, "m")
		})
	}
}

// While an upgrade is under way no reader joins its owner.
func TestReadersDoNotJoinAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		rw := c.RWMutex("m")
		r := coretest.MustRLock(t, t.Context(), rw)
		arrive := make(chan struct{})
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			if req.Mode == store.Exclusive {
				<-arrive
			}
			return s.Store.Acquire(ctx, req)
		})
		wrote := make(chan *dlock.Hold)
		go func() { wrote <- coretest.MustLock(t, r.Context(t.Context()), rw) }()
		synctest.Wait()
		beside := coretest.MustRLock(t, t.Context(), rw) // with its own hold at the store
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 2)
		require.NoError(t, beside.Unlock())
		close(arrive)
		w := <-wrote
		require.NoError(t, w.Unlock())
		require.NoError(t, r.Unlock())
		coretest.WantFree(t, s, "m")
	})
}
