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

// The new holder is the owner at the store. It re-enters, also in the other mode, and its lock is
// not passed on while one of its holds is left.
func TestLocalHandoverAndReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context(), t.Context())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		ctx := second.Context(t.Context())
		again := coretest.MustLock(t, ctx, c.Mutex("m"))
		read := coretest.MustRLock(t, ctx, c.RWMutex("m"))
		assert.Equal(t, second.Token(), again.Token())
		assert.Equal(t, second.Token(), read.Token(), "the store knows only the first token of the batch")
		require.NoError(t, again.Unlock())
		require.NoError(t, second.Unlock())
		synctest.Wait()
		state := coretest.Inspect(t, s, "m")
		require.Len(t, state.Holders, 1)
		assert.Equal(t, store.Shared, state.Holders[0].Mode, "a downgrade, with no other holder between")
		require.NoError(t, read.Unlock())
		require.NoError(t, (<-got[1]).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// While a request of the owner is under way, the lock is not passed on under the owner's id: the
// request would re-enter the next holder's hold.
func TestLocalHandoverWaitsForTheOwnersRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		arrive := make(chan struct{})
		s.HoldAcquires(arrive)
		ctx, cancel := context.WithCancel(first.Context(t.Context()))
		read := make(chan *dlock.Hold, 1)
		go func() {
			h, _ := c.RWMutex("m").RLockContext(ctx)
			read <- h
		}()
		synctest.Wait()
		require.NoError(t, first.Unlock())
		cancel()
		assert.Nil(t, <-read)
		close(arrive)
		second := <-got[0]
		state := coretest.Inspect(t, s, "m")
		assert.Len(t, state.Holders, 1)
		s.Recover()
		require.NoError(t, second.Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// The store grants a downgrade while the writer's lock is held, and its answer arrives after the
// Unlock. The reader gets the writer's token, also if the lock was passed on inside the process
// with a token that the store does not know.
func TestDowngradeDuringAnUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		require.NoError(t, first.Unlock())
		w := <-got[0]
		require.Greater(t, w.Token(), first.Token())
		answer := make(chan struct{})
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			g, err := s.Store.Acquire(ctx, req)
			<-answer
			return g, err
		})
		read := make(chan *dlock.Hold, 1)
		go func() {
			r, err := c.RWMutex("m").RLockContext(dlock.WithOwner(t.Context(), w.Owner()))
			assert.NoError(t, err)
			read <- r
		}()
		synctest.Wait()
		require.NoError(t, w.Unlock())
		close(answer)
		r := <-read
		assert.Equal(t, w.Token(), r.Token())
		require.NoError(t, r.Unlock())
	})
}
