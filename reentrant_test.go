package dlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNestedHandlesShareAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, nil)
		first := mustLock(t, t.Context(), c.Mutex("m"))
		calls := s.calls()
		ctx := first.Context(t.Context())
		second := mustLock(t, ctx, c.Mutex("m"))
		third, err := c.RWMutex("m").TryLockContext(second.Context(ctx))
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, calls, s.calls(), "re-entry makes no call of the store")

		for _, h := range []*dlock.Hold{first, second, third} {
			assert.Equal(t, 3, h.Count())
			assert.Equal(t, first.Token(), h.Token())
			assert.Equal(t, first.Owner(), h.Owner())
			assert.Equal(t, "m", h.Name())
		}
		require.NoError(t, first.Unlock()) // in any order
		assert.Equal(t, 2, third.Count())
		require.NoError(t, third.Unlock())
		assert.NoError(t, second.Err())
		assert.Equal(t, calls, s.calls(), "nor does an Unlock that is not the last")
		assert.Len(t, inspect(t, s, "m").Holders, 1)
		require.NoError(t, second.Unlock())
		assert.Zero(t, second.Count())
		assert.Equal(t, calls+1, s.calls())
		wantFree(t, s, "m")

		next := mustLock(t, t.Context(), c.Mutex("m"))
		assert.Greater(t, next.Token(), first.Token())
		assert.NotEqual(t, first.Owner(), next.Owner())
		require.NoError(t, next.Unlock())
	})
}

func TestNestingInASharedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		rw := open(t, s, nil).RWMutex("m")
		first := mustRLock(t, t.Context(), rw)
		calls := s.calls()
		second := mustRLock(t, first.Context(t.Context()), rw)
		assert.Equal(t, calls, s.calls())
		assert.Equal(t, first.Token(), second.Token())
		assert.Equal(t, 2, second.Count())
		require.NoError(t, first.Unlock())
		require.NoError(t, second.Unlock())
	})
}

// A lost hold can be taken again only when all of its handles are unlocked.
func TestNestingInALostHoldFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(memory.New())
		c := open(t, s, &dlock.Options{TTL: time.Second})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		m := c.Mutex("m", dlock.WithMaxHold(time.Second))
		handles := []*dlock.Hold{mustLock(t, ctx, m), mustLock(t, ctx, m), mustLock(t, ctx, m)}
		time.Sleep(time.Second)
		synctest.Wait()
		calls := s.acquires.Load()
		for _, h := range handles {
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			assert.Zero(t, h.Count())
			_, err := m.LockContext(ctx)
			wantError(t, err, "lock", "m", dlock.ErrLost)
			_, err = c.RWMutex("m").TryRLockContext(ctx)
			wantError(t, err, "tryrlock", "m", dlock.ErrLost)
			wantError(t, m.Do(ctx, nil), "do", "m", dlock.ErrLost)
			wantError(t, h.Unlock(), "unlock", "m", dlock.ErrLost)
			wantError(t, handles[0].Unlock(), "unlock", "m", dlock.ErrNotHeld)
		}
		assert.Equal(t, calls, s.acquires.Load(), "nothing is silently re-acquired")

		h := mustLock(t, ctx, m)
		assert.Greater(t, h.Token(), handles[0].Token())
		require.NoError(t, h.Unlock())
	})
}

// A goroutine's other locks are not concerned by the loss of one.
func TestNestingUnderAnotherLostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, memory.New(), &dlock.Options{TTL: time.Second})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		lost := mustLock(t, ctx, c.Mutex("a", dlock.WithMaxHold(time.Second)))
		time.Sleep(time.Second)
		h := mustLock(t, ctx, c.Mutex("b"))
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, lost.Unlock(), dlock.ErrLost)
	})
}

func TestAsNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := open(t, s, nil)
		owner := dlock.NewOwner()
		m := c.Mutex("m").As(owner)
		m.Lock()
		m.Lock()
		require.True(t, m.TryLock())
		stranger := dlock.WithOwner(t.Context(), dlock.NewOwner())
		h := mustLock(t, stranger, m) // As goes before what the context carries
		assert.Equal(t, owner, h.Owner())
		assert.Equal(t, 4, h.Count())
		require.NoError(t, h.Unlock())

		other := c.Mutex("m").As(owner) // another value of the same owner
		other.Lock()
		other.Unlock()
		wantPanic(t, other.Unlock, "unlock", dlock.ErrNotHeld)

		m.Unlock()
		m.Unlock()
		assert.False(t, c.Mutex("m").TryLock())
		m.Unlock()
		wantFree(t, s, "m")
		assert.Equal(t, "m", m.Name())
	})
}

func TestContextFannedOutIsOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), nil).Mutex("m")
		h := mustLock(t, t.Context(), m)
		ctx := h.Context(t.Context())
		inside := make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { // all are in at the same time
				h := mustLock(t, ctx, m)
				inside <- struct{}{}
				assert.NoError(t, h.Unlock())
			})
		}
		synctest.Wait()
		assert.Equal(t, 11, h.Count())
		for range 10 {
			<-inside
		}
		wg.Wait()
		require.NoError(t, h.Unlock())
	})
}

// Goroutines of one owner that come before any of them holds do not deadlock
// with each other, nor with the strangers between them in the line.
func TestContextFannedOutBeforeTheFirstHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		busy := mustLock(t, t.Context(), open(t, s.Peer(), nil).Mutex("m"))
		m := open(t, s, nil).Mutex("m")
		parent := mustLock(t, t.Context(), open(t, memory.New(), nil).Mutex("elsewhere"))
		ctx := parent.Context(t.Context())
		var wg, inside sync.WaitGroup
		inside.Add(3)
		for range 3 {
			wg.Go(func() {
				h := mustLock(t, ctx, m)
				inside.Done()
				inside.Wait()
				assert.NoError(t, h.Unlock())
			})
			wg.Go(func() { m.Lock(); m.Unlock() })
			synctest.Wait()
		}
		require.NoError(t, busy.Unlock())
		wg.Wait()
		require.NoError(t, parent.Unlock())
	})
}

func TestWithOwnerSeparatesGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, memory.New(), nil).Mutex("m")
		h := mustLock(t, t.Context(), m)
		ctx := dlock.WithOwner(h.Context(t.Context()), dlock.NewOwner())
		_, err := m.TryLockContext(ctx)
		wantError(t, err, "trylock", "m", dlock.ErrHeld)
		require.NoError(t, h.Unlock())
	})
}

// The nested call must not stand in line behind a stranger of this process who
// waits for the outer one, whichever way it goes.
func TestNestedCallPassesTheLine(t *testing.T) {
	for name, nested := range map[string]func(context.Context, *dlock.Client, *dlock.Client) error{
		"local": func(ctx context.Context, c, _ *dlock.Client) error {
			return c.Mutex("m").Do(ctx, func(context.Context) error { return nil })
		},
		"read under write": func(ctx context.Context, c, _ *dlock.Client) error {
			return c.RWMutex("m").RDo(ctx, func(context.Context) error { return nil })
		},
		"by way of another process": func(ctx context.Context, _, peer *dlock.Client) error {
			return peer.Mutex("m").Do(ctx, func(context.Context) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				c, peer := open(t, s, nil), open(t, s.Peer(), nil)
				start := time.Now()
				h := mustLock(t, dlock.WithOwner(t.Context(), dlock.NewOwner()), c.RWMutex("m"))
				var strangers sync.WaitGroup
				for _, client := range []*dlock.Client{c, c, peer, peer} {
					strangers.Go(func() { m := client.Mutex("m"); m.Lock(); m.Unlock() })
				}
				synctest.Wait()
				require.NoError(t, nested(h.Context(t.Context()), c, peer))
				require.NoError(t, h.Unlock())
				strangers.Wait()
				assert.Zero(t, time.Since(start))
			})
		})
	}
}
