package handover

import (
	"context"
	"errors"
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

// slowContext is a context whose Err waits for a gate once the gate is set. A lock call looks at
// Err before each request, so the call stands still there.
type slowContext struct {
	context.Context
	gate atomic.Pointer[chan struct{}]
}

func (c *slowContext) Err() error {
	if gate := c.gate.Load(); gate != nil {
		<-*gate
	}
	return c.Context.Err()
}

// secondCall starts a call that waits as the second one of its owner. The call stands still when
// its owner gets the lock by the first call, until the test calls goOn.
func secondCall(ctx context.Context, lock func(context.Context) (*dlock.Hold, error)) (got chan *dlock.Hold, goOn func()) {
	slow, gate := &slowContext{Context: ctx}, make(chan struct{})
	got = make(chan *dlock.Hold, 1)
	go func() {
		h, err := lock(slow)
		if err == nil {
			got <- h
		}
	}()
	synctest.Wait()
	slow.gate.Store(&gate)
	return got, func() {
		close(gate)
		synctest.Wait()
	}
}

// An owner waits with two calls. The first gets the lock and passes it on to another owner, before
// the second has sent a request. The second call does not re-enter the lock of the other owner.
func TestOwnerThatPassedItsLockOnDoesNotReenterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		owner, m := privateOwner(t, c), c.Mutex("m")
		before, got := handing(t, c, owner)
		again, goOn := secondCall(owner, m.LockContext)
		next := make(chan *dlock.Hold, 1)
		go func() { next <- coretest.MustLock(t, t.Context(), m) }()
		synctest.Wait()
		require.NoError(t, before.Unlock())
		first := <-got[0]
		require.NoError(t, first.Unlock())
		other := <-next
		require.Equal(t, first.Token()+1, other.Token(), "the lock was not passed on")
		goOn()
		assert.Empty(t, again, "two holders")
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		require.NoError(t, other.Unlock())
		require.NoError(t, (<-again).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// The same for a reader that leaves its hold to another reader. Its second call, a writer's, waits
// for the other reader: it is no upgrade.
func TestReaderThatLeftOthersDoesNotUpgradeTheirHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c, far := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		owner, rw := privateOwner(t, c), c.RWMutex("m")
		read := make(chan *dlock.Hold, 1)
		go func() { read <- coretest.MustRLock(t, owner, rw) }()
		synctest.Wait()
		others, _ := waitingReaders(t, c, 1)
		write, goOn := secondCall(owner, rw.LockContext)
		require.NoError(t, w.Unlock())
		first, other := <-read, <-others[0]
		require.Len(t, coretest.Inspect(t, s, "m").Holders, 1, "the readers do not share")
		require.NoError(t, first.Unlock())
		goOn()
		assert.Empty(t, write, "a writer beside a reader")
		assert.NoError(t, other.Err())
		require.NoError(t, other.Unlock())
		require.NoError(t, (<-write).Unlock())
		synctest.Wait()
		coretest.WantFree(t, s, "m")
	})
}

// The store gives up the id of a waiting call, which asks again under the same owner. That request goes on for
// another owner, while the first call has got the lock by another call of its owner. Then the first call asks once more,
// by an owner of its own: the other owner's hold is none of its.
func TestOwnerOfALostIDIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		s := coretest.NewSpy(locks)
		c := coretest.Open(t, s, nil)
		far := coretest.MustLock(t, t.Context(), coretest.Open(t, locks.Peer(), nil).Mutex("m"))
		owner, m := privateOwner(t, c), c.Mutex("m")
		var first atomic.Pointer[string]
		var down atomic.Bool
		unheard := make(chan struct{}) // closed when the next id has been asked for
		var once sync.Once
		down.Store(true)
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			switch {
			case !req.Queue || first.CompareAndSwap(nil, &req.ID):
			case req.ID == *first.Load(): // asked again
				return store.Grant{}, store.ErrLost
			case down.Load():
				once.Do(func() { close(unheard) })
				return store.Grant{}, errors.New("connection reset")
			}
			return locks.Acquire(ctx, req)
		})
		slow, gate := &slowContext{Context: owner}, make(chan struct{})
		a, b := make(chan *dlock.Hold, 1), make(chan *dlock.Hold, 1)
		go func() {
			h, err := m.LockContext(slow)
			assert.NoError(t, err)
			a <- h
		}()
		synctest.Wait()
		go func() { b <- coretest.MustLock(t, t.Context(), m) }()
		<-unheard
		synctest.Wait()
		slow.gate.Store(&gate)
		require.NoError(t, far.Unlock())
		tried, err := m.TryLockContext(owner)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, tried.Unlock())
		down.Store(false)
		other := <-b
		close(gate)
		time.Sleep(time.Second)
		assert.Empty(t, a, "two holders")
		assert.Len(t, coretest.Inspect(t, locks, "m").Holders, 1)
		require.NoError(t, other.Unlock())
		require.NoError(t, (<-a).Unlock())
		synctest.Wait()
		coretest.WantFree(t, locks, "m")
	})
}

// Two calls of one owner ask the store at once: one at the front of the queue, one past it. The owner
// gets one hold at the store, so it does not stand in its own way later.
func TestTwoCallsOfAnOwnerGetOneHold(t *testing.T) {
	for name, exclusive := range map[string]bool{"two readers": false, "reader and writer": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := memory.New()
				s := coretest.NewSpy(locks)
				c := coretest.Open(t, s, nil)
				owner, rw := privateOwner(t, c), c.RWMutex("m")
				arrive := make(chan struct{})
				s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
					if !req.Queue {
						<-arrive
					}
					return locks.Acquire(ctx, req)
				})
				tried := make(chan *dlock.Hold, 1)
				go func() {
					try := rw.TryRLockContext
					if exclusive {
						try = rw.TryLockContext
					}
					h, err := try(owner)
					assert.NoError(t, err)
					tried <- h
				}()
				synctest.Wait()
				read := coretest.MustRLock(t, owner, rw)
				close(arrive)
				second := <-tried
				require.NotNil(t, second)
				synctest.Wait()
				if !exclusive {
					onlyHolder(t, locks)
				}
				require.NoError(t, second.Unlock())
				brief, cancel := context.WithTimeout(owner, time.Second)
				defer cancel()
				write, err := rw.LockContext(brief)
				require.NoError(t, err)
				require.NoError(t, write.Unlock())
				require.NoError(t, read.Unlock())
				coretest.WantFree(t, locks, "m")
			})
		})
	}
}
