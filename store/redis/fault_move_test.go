package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// A lock is released that others wait for, while its slot has begun to move and its keys
// have not: what a script deletes it cannot write anew there. The lock is handed to the
// first of them all the same.
func TestFault26HandOverAmidAMove(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, false)
	s := open(t, servers.URL())
	for name, c := range map[string]struct {
		waiters int
		shared  bool // the first of them
		bury    bool
	}{
		"one": {1, false, false}, "one, buried": {1, false, true}, "a reader": {1, true, false},
		"two": {2, false, false}, "two, buried": {2, false, true}, "a reader and a writer": {2, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var all []store.Request
			for i := range 1 + c.waiters {
				r := long(want("a "+name, 1+i))
				r.Queue = i > 0
				if c.shared && i == 1 {
					r.Mode = store.Shared
				}
				all = append(all, r)
				g, err := s.Acquire(bounded(t), r)
				require.NoError(t, err)
				require.Equal(t, i == 0, g.Held)
			}
			slot := redis.Slot(redis.LockKey(all[0].Name))
			from := servers.Master(slot)
			to := servers.Nodes[(slices.Index(servers.Nodes, from)+1)%3]
			servers.BeginMove(slot, to)
			released := of(all[0])
			released.Bury = c.bury
			err := s.Release(bounded(t), released)
			for servers.MoveKeys(slot, to, 10) > 0 {
			}
			servers.EndMove(slot, to)
			require.NoError(t, err)
			state, err := s.Inspect(bounded(t), all[0].Name)
			require.NoError(t, err)
			require.Len(t, state.Holders, 1)
			require.Equal(t, store.Short(all[1].ID), state.Holders[0].ID)
			require.Len(t, state.Queue, c.waiters-1)
			for _, r := range all[1:] {
				g, err := s.Acquire(bounded(t), r)
				require.NoError(t, err)
				require.True(t, g.Held)
				require.NoError(t, s.Release(bounded(t), of(r)))
			}
		})
	}
}

// While a slot moves, a free name has no lock key beside the counter, and no call may name both. A Try
// hears that, a lone hold is released, and locks can be taken when the move has ended.
func TestFault26FreeNameAmidAMove(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, false)
	s := open(t, servers.URL())
	c := locktest.NewClient(t, s, dlock.Options{StoreTimeout: lease / 4})
	free := newRequest(0).Name
	held := newRequest(1)
	for i := 2; redis.Partition(held.Name) != redis.Partition(free); i++ {
		held = newRequest(i)
	}
	locktest.Hold(t, s, held)
	slot := redis.Slot(redis.LockKey(free))
	from := servers.Master(slot)
	to := servers.Nodes[(slices.Index(servers.Nodes, from)+1)%3]
	servers.BeginMove(slot, to)
	_, err := c.Mutex(free).TryLockContext(t.Context())
	require.ErrorIs(t, err, dlock.ErrUnavailable)
	locktest.Release(t, s, held)
	for servers.MoveKeys(slot, to, 10) > 0 {
	}
	_, err = c.Mutex(free).TryLockContext(t.Context())
	require.ErrorIs(t, err, dlock.ErrUnavailable)
	servers.EndMove(slot, to)
	locktest.Unlock(t, locktest.Lock(t, c, free))
}

// While the keys of a slot move, some commands cannot run for as long as that takes. Inspect tells what it has seen, and
// does not wait until it can delete what has died.
func TestInspectAmidAMove(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, false)
	s := open(t, servers.URL())
	lives, dies := long(want("a", 1)), long(want("a", 2))
	lives.Mode, dies.Mode = store.Shared, store.Shared
	dies.TTL = 200 * time.Millisecond
	for _, r := range []store.Request{lives, dies} {
		g, err := s.Acquire(bounded(t), r)
		require.NoError(t, err)
		require.True(t, g.Held)
	}
	slot := redis.Slot(redis.LockKey("a"))
	from := servers.Master(slot)
	to := servers.Nodes[(slices.Index(servers.Nodes, from)+1)%3]
	servers.BeginMove(slot, to)
	time.Sleep(dies.TTL + 100*time.Millisecond)
	began := time.Now()
	state, err := s.Inspect(bounded(t), "a")
	require.NoError(t, err)
	require.Len(t, state.Holders, 1)
	require.Less(t, time.Since(began), time.Second)
}
