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

// onlyHolder returns the one hold of m at the store.
func onlyHolder(t *testing.T, s store.Store) store.Entry {
	t.Helper()
	holders := coretest.Inspect(t, s, "m").Holders
	require.Len(t, holders, 1)
	holders[0].Remaining = 0
	return holders[0]
}

// privateOwner returns a context that acts for a private owner of c, which holds another lock until
// the end of the test.
func privateOwner(t *testing.T, c *dlock.Client) context.Context {
	t.Helper()
	other := coretest.MustLock(t, t.Context(), c.Mutex("other"))
	t.Cleanup(func() { _ = other.Unlock() })
	return dlock.WithOwner(t.Context(), other.Owner())
}

// A local hand-over changes nothing at the store: the hold keeps its id, owner and token.
func TestLocalHandoverChangesNothingAtTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		first, got := handing(t, coretest.Open(t, s, nil), t.Context())
		before := onlyHolder(t, s)
		require.NoError(t, first.Unlock())
		second := <-got[0]
		assert.Equal(t, first.Token()+1, second.Token())
		assert.Equal(t, before, onlyHolder(t, s))
		require.NoError(t, second.Unlock())
	})
}

// An owner that sent two requests of the name may have two holds at the store, or the second may
// still arrive. Its lock goes back to the store, and the next waiter gets another hold.
func TestLockOfAnOwnerWithTwoRequestsIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		first, got := handing(t, c, t.Context())
		before := onlyHolder(t, s)
		read := coretest.MustRLock(t, first.Context(t.Context()), c.RWMutex("m"))
		require.NoError(t, read.Unlock())
		require.NoError(t, first.Unlock())
		second := <-got[0]
		assert.NotEqual(t, before.ID, onlyHolder(t, s).ID)
		assert.Greater(t, second.Token(), first.Token()+1)
		require.NoError(t, second.Unlock())
	})
}

// The lock is passed on to an owner that waits with two calls. Both get it, the second as a
// re-entry, and the store has one hold.
func TestLockIsPassedOnToAnOwnerWithTwoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		owner := privateOwner(t, c)
		first, got := handing(t, c, owner, owner)
		before := onlyHolder(t, s)
		require.NoError(t, first.Unlock())
		second, third := <-got[0], <-got[1]
		assert.Equal(t, before, onlyHolder(t, s))
		assert.Equal(t, second.Owner(), third.Owner())
		assert.Equal(t, first.Token()+1, second.Token())
		assert.Equal(t, second.Token(), third.Token())
		assert.Equal(t, 2, second.Count())
		require.NoError(t, second.Unlock())
		assert.Equal(t, before, onlyHolder(t, s))
		require.NoError(t, third.Unlock())
		coretest.WantFree(t, s, "m")
	})
}

// The reader that sent the request unlocks first, and another reader goes on with its hold. The
// first reader's owner is now another owner for the store: it cannot upgrade that hold.
func TestReaderThatUnlocksTakesNoRightsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		owner, rw := privateOwner(t, c), c.RWMutex("m")
		first := coretest.MustRLock(t, owner, rw)
		second := coretest.MustRLock(t, t.Context(), rw)
		before := onlyHolder(t, s)
		require.NoError(t, first.Unlock())
		assert.Equal(t, before, onlyHolder(t, s))
		_, err := rw.TryLockContext(owner)
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		again := coretest.MustRLock(t, owner, rw)
		_, err = rw.LockContext(dlock.WithOwner(t.Context(), again.Owner()))
		coretest.WantError(t, err, "lock", "m", dlock.ErrUpgrade)
		require.NoError(t, again.Unlock())
		require.NoError(t, second.Unlock())
	})
}

// The same for a reader that is cancelled while it waits: the readers that followed its request are
// granted with it, and its owner has no part in their hold.
func TestReaderThatIsCancelledTakesNoRightsAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		owner, rw := privateOwner(t, c), c.RWMutex("m")
		ctx, cancel := context.WithCancel(owner)
		failed := make(chan error, 1)
		go func() {
			_, err := rw.RLockContext(ctx)
			failed <- err
		}()
		synctest.Wait()
		got, _ := waitingReaders(t, c, 1)
		place := coretest.Inspect(t, s, "m").Queue[0].ID
		cancel()
		coretest.WantError(t, <-failed, "rlock", "m", context.Canceled)
		require.NoError(t, w.Unlock())
		second := <-got[0]
		assert.Equal(t, place, onlyHolder(t, s).ID, "the place of the cancelled reader is kept")
		_, err := rw.TryLockContext(owner)
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		require.NoError(t, second.Unlock())
	})
}
