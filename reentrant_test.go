package dlock_test

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

func TestNestedHandlesShareAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, nil)
		first := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		calls := s.Calls()
		ctx := first.Context(t.Context())
		second := coretest.MustLock(t, ctx, c.Mutex("m"))
		third, err := c.RWMutex("m").TryLockContext(second.Context(ctx))
		require.NoError(t, err)
		synctest.Wait()
		assert.Equal(t, calls, s.Calls(), "re-entry makes no call of the store")

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
		assert.Equal(t, calls, s.Calls(), "an Unlock that is not the last makes no store call")
		assert.Len(t, coretest.Inspect(t, s, "m").Holders, 1)
		require.NoError(t, second.Unlock())
		assert.Zero(t, second.Count())
		assert.Equal(t, calls+1, s.Calls())
		coretest.WantFree(t, s, "m")

		next := coretest.MustLock(t, t.Context(), c.Mutex("m"))
		assert.Greater(t, next.Token(), first.Token())
		assert.NotEqual(t, first.Owner(), next.Owner())
		require.NoError(t, next.Unlock())
	})
}

func TestNestingInASharedHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		rw := coretest.Open(t, s, nil).RWMutex("m")
		first := coretest.MustRLock(t, t.Context(), rw)
		calls := s.Calls()
		second := coretest.MustRLock(t, first.Context(t.Context()), rw)
		assert.Equal(t, calls, s.Calls())
		assert.Equal(t, first.Token(), second.Token())
		assert.Equal(t, 2, second.Count())
		require.NoError(t, first.Unlock())
		require.NoError(t, second.Unlock())
	})
}

// A lost hold can be taken again only when all of its handles are unlocked.
func TestNestingInALostHoldFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := coretest.NewSpy(memory.New())
		c := coretest.Open(t, s, &dlock.Options{TTL: time.Second})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		m := c.Mutex("m", dlock.WithMaxHold(time.Second))
		handles := []*dlock.Hold{coretest.MustLock(t, ctx, m), coretest.MustLock(t, ctx, m), coretest.MustLock(t, ctx, m)}
		time.Sleep(time.Second)
		synctest.Wait()
		calls := s.Acquires.Load()
		for _, h := range handles {
			assert.ErrorIs(t, h.Err(), dlock.ErrLost)
			assert.Zero(t, h.Count())
			_, err := m.LockContext(ctx)
			coretest.WantError(t, err, "lock", "m", dlock.ErrLost)
			_, err = c.RWMutex("m").TryRLockContext(ctx)
			coretest.WantError(t, err, "tryrlock", "m", dlock.ErrLost)
			coretest.WantError(t, m.Do(ctx, nil), "do", "m", dlock.ErrLost)
			coretest.WantError(t, h.Unlock(), "unlock", "m", dlock.ErrLost)
			coretest.WantError(t, handles[0].Unlock(), "unlock", "m", dlock.ErrNotHeld)
		}
		assert.Equal(t, calls, s.Acquires.Load(), "nothing is silently re-acquired")

		h := coretest.MustLock(t, ctx, m)
		assert.Greater(t, h.Token(), handles[0].Token())
		require.NoError(t, h.Unlock())
	})
}

// The loss of one lock does not concern the owner's other locks.
func TestNestingUnderAnotherLostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coretest.Open(t, memory.New(), &dlock.Options{TTL: time.Second})
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		lost := coretest.MustLock(t, ctx, c.Mutex("a", dlock.WithMaxHold(time.Second)))
		time.Sleep(time.Second)
		h := coretest.MustLock(t, ctx, c.Mutex("b"))
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, lost.Unlock(), dlock.ErrLost)
	})
}

func TestAsNests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := coretest.Open(t, s, nil)
		owner := dlock.NewOwner()
		m := c.Mutex("m").As(owner)
		m.Lock()
		m.Lock()
		require.True(t, m.TryLock())
		ctx := dlock.WithOwner(t.Context(), dlock.NewOwner())
		h := coretest.MustLock(t, ctx, m) // As overrides the owner of the context
		assert.Equal(t, owner, h.Owner())
		assert.Equal(t, 4, h.Count())
		require.NoError(t, h.Unlock())

		other := c.Mutex("m").As(owner) // another value of the same owner
		other.Lock()
		other.Unlock()
		coretest.WantPanic(t, other.Unlock, "unlock", dlock.ErrNotHeld)

		m.Unlock()
		m.Unlock()
		assert.False(t, c.Mutex("m").TryLock())
		m.Unlock()
		coretest.WantFree(t, s, "m")
		assert.Equal(t, "m", m.Name())
	})
}

func TestContextFannedOutIsOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)
		ctx := h.Context(t.Context())
		inside := make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { // all hold at the same time
				h := coretest.MustLock(t, ctx, m)
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

// Goroutines of one owner wait before any of them holds. They do not deadlock with each other or
// with other owners between them in the queue.
func TestContextFannedOutBeforeTheFirstHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		busy := coretest.MustLock(t, t.Context(), coretest.Open(t, s.Peer(), nil).Mutex("m"))
		m := coretest.Open(t, s, nil).Mutex("m")
		parent := coretest.MustLock(t, t.Context(), coretest.Open(t, memory.New(), nil).Mutex("elsewhere"))
		ctx := parent.Context(t.Context())
		var wg, inside sync.WaitGroup
		inside.Add(3)
		for range 3 {
			wg.Go(func() {
				h := coretest.MustLock(t, ctx, m)
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
		m := coretest.Open(t, memory.New(), nil).Mutex("m")
		h := coretest.MustLock(t, t.Context(), m)
		ctx := dlock.WithOwner(h.Context(t.Context()), dlock.NewOwner())
		_, err := m.TryLockContext(ctx)
		coretest.WantError(t, err, "trylock", "m", dlock.ErrHeld)
		require.NoError(t, h.Unlock())
	})
}

// A nested call must not wait behind another owner that waits for the outer hold, in any form.
func TestNestedCallPassesTheQueue(t *testing.T) {
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
				c, peer := coretest.Open(t, s, nil), coretest.Open(t, s.Peer(), nil)
				start := time.Now()
				h := coretest.MustLock(t, dlock.WithOwner(t.Context(), dlock.NewOwner()), c.RWMutex("m"))
				var others sync.WaitGroup
				for _, client := range []*dlock.Client{c, c, peer, peer} {
					others.Go(func() { m := client.Mutex("m"); m.Lock(); m.Unlock() })
				}
				synctest.Wait()
				require.NoError(t, nested(h.Context(t.Context()), c, peer))
				require.NoError(t, h.Unlock())
				others.Wait()
				assert.Zero(t, time.Since(start))
			})
		})
	}
}
