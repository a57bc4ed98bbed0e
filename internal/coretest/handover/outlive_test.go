package handover

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/require"
)

// tooLate is a grant whose lease is over when it arrives.
var tooLate = store.Grant{Held: true, Token: 1, TTL: time.Nanosecond}

// answerOnce has s answer the next Acquire so after a second, and does not ask the store behind.
func answerOnce(s *coretest.Spy, g store.Grant, err error) {
	s.OnAcquire(func(context.Context, store.Request) (store.Grant, error) {
		s.OnAcquire(s.Store.Acquire)
		time.Sleep(time.Second)
		return g, err
	})
}

// The store refuses the id of a reader's first request, or its grant comes too late. That ends the call that
// sent the request. A reader that follows it asks for itself.
func TestReadersOutliveAFirstRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		grant store.Grant
		err   error
	}{"lost": {err: store.ErrLost}, "late": {grant: tooLate}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := coretest.NewSpy(memory.New())
				c := coretest.Open(t, s, nil)
				answerOnce(s, tc.grant, tc.err)
				failed := make(chan error, 1)
				go func() {
					_, err := c.RWMutex("m").RLockContext(t.Context())
					failed <- err
				}()
				synctest.Wait()
				got, _ := waitingReaders(t, c, 1)
				coretest.WantError(t, <-failed, "rlock", "m", dlock.ErrLost)
				h, ok := <-got[0]
				require.True(t, ok, "the reader behind has failed too")
				require.NoError(t, h.Unlock())
				synctest.Wait()
				coretest.WantFree(t, s, "m")
			})
		})
	}
}

// A grant in the background comes too late. The request after it is a new owner's, so the readers share what
// it is granted.
func TestReadersShareAfterALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		s := coretest.NewSpy(locks)
		c, far := coretest.Open(t, s, nil), coretest.Open(t, locks.Peer(), nil)
		w := coretest.MustLock(t, t.Context(), far.Mutex("m"))
		got, _ := waitingReaders(t, c, 2)
		place := coretest.Inspect(t, locks, "m").Queue[0].ID
		answerOnce(s, tooLate, nil)
		time.Sleep(waitTTL)
		require.NotEqual(t, place, coretest.Inspect(t, locks, "m").Queue[0].ID, "the fault has had no effect")
		require.NoError(t, w.Unlock())
		first, second := <-got[0], <-got[1]
		require.NotNil(t, first)
		require.NotNil(t, second)
		onlyHolder(t, locks)
		require.NoError(t, first.Unlock())
		require.NoError(t, second.Unlock())
		coretest.WantFree(t, locks, "m")
	})
}

// A call has failed and stands still before it returns. Its owner gets the lock by another call meanwhile. That
// concerns the failed call no more, and those that wait are served.
func TestCallThatHasFailedDoesNotBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := memory.New()
		s := coretest.NewSpy(locks)
		c := coretest.Open(t, s, nil)
		far := coretest.MustLock(t, t.Context(), coretest.Open(t, locks.Peer(), nil).Mutex("m"))
		owner, m := privateOwner(t, c), c.Mutex("m")
		slow, gate := &slowContext{Context: owner}, make(chan struct{})
		failed := make(chan error, 1)
		go func() {
			_, err := m.LockContext(slow)
			failed <- err
		}()
		synctest.Wait()
		next := make(chan *dlock.Hold, 1)
		go func() { next <- coretest.MustLock(t, t.Context(), m) }()
		synctest.Wait()
		slow.gate.Store(&gate)
		var refused atomic.Bool
		s.OnAcquire(func(ctx context.Context, req store.Request) (store.Grant, error) {
			switch {
			case !req.Queue: // the try below
				return locks.Acquire(ctx, req)
			case refused.CompareAndSwap(false, true):
				return store.Grant{}, store.ErrRefused
			}
			return store.Grant{}, coretest.ErrDown
		})
		time.Sleep(waitTTL / 2) // the first call is refused, and the request of the next has no answer
		require.True(t, refused.Load(), "the fault has had no effect")
		require.NoError(t, far.Unlock())
		tried, err := m.TryLockContext(owner)
		require.NoError(t, err)
		require.NoError(t, tried.Unlock())
		s.Recover()
		require.NoError(t, (<-next).Unlock())
		close(gate)
		coretest.WantError(t, <-failed, "lock", "m", dlock.ErrRefused)
		synctest.Wait()
		coretest.WantFree(t, locks, "m")
	})
}
