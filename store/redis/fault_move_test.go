package redis_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// A lock is released that somebody waits for, while its slot has begun to move and its
// keys have not: what the script deletes, it must not write anew there. It breaks off
// half way, which is no certain answer, and no data that is not a lock's. When the slot
// has moved the release is done, and who waited can have the lock.
func TestFault26HandOverAmidAMove(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, false)
	s := open(t, servers.URL())
	held, waits := long(want("a", 1)), long(want("a", 2))
	waits.Queue = true
	for _, r := range []store.Request{held, waits} {
		_, err := s.Acquire(bounded(t), r)
		require.NoError(t, err)
	}
	slot := redis.Slot(redis.LockKey("a"))
	from := servers.Master(slot)
	to := servers.Nodes[(slices.Index(servers.Nodes, from)+1)%3]
	servers.BeginMove(slot, to)
	err := s.Release(bounded(t), of(held))
	require.NotErrorIs(t, err, store.ErrForeignKey)
	require.NotErrorIs(t, err, store.ErrLost)
	for servers.MoveKeys(slot, to, 10) > 0 {
	}
	servers.EndMove(slot, to)
	if err != nil {
		err = s.Release(bounded(t), of(held))
		if err != nil {
			require.ErrorIs(t, err, store.ErrLost) // it was done
		}
	}
	until(t, "who waited has it", func() bool {
		g, err := s.Acquire(bounded(t), waits)
		return err == nil && g.Held
	})
	require.NoError(t, s.Release(bounded(t), of(waits)))
}
