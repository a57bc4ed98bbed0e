package etcdtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

func TestLeaderMovesAndIsReplaced(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := Start(t, 3)
	t.Log("cluster up after", time.Since(began))
	require.Len(t, c.Members, 3)
	client := c.Client(t)
	require.NoError(t, put(client, "a", long))

	first := c.Leader()
	began = time.Now()
	second := c.MoveLeader()
	t.Log("move took", time.Since(began))
	require.NotSame(t, first, second)

	second.Kill()
	began = time.Now()
	third := c.Leader()
	t.Log("election after a kill took", time.Since(began))
	require.NotSame(t, second, third)
	fourth := c.MoveLeader()
	require.NotSame(t, second, fourth, "it is dead")
	require.NotSame(t, third, fourth)
	second.Restart()

	fourth.Pause()
	began = time.Now()
	require.NotSame(t, fourth, c.Leader())
	t.Log("election after a pause took", time.Since(began))
	fourth.Resume()
	for _, m := range c.Members {
		require.True(t, has(t, c.Client(t, m), "a"))
	}
}

func TestMajorityServesAndMinorityDoesNot(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	leader := c.Leader()
	var others []*Member
	for _, m := range c.Members {
		if m != leader {
			others = append(others, m)
		}
	}
	client := c.Client(t, leader)
	others[0].Pause()
	require.NoError(t, put(client, "a", long))

	others[1].Pause()
	// The server may say so itself, when it notices that it leads no majority any more.
	err := put(client, "b", short)
	served := !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpctypes.ErrTimeout) &&
		!errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail) && !errors.Is(err, rpctypes.ErrNoLeader)
	require.False(t, served, "put at a minority: %v", err)
	leader.Restart() // does not wait for those that do not run
	require.Nil(t, leader.status(), "it has no leader to serve with")

	others[0].Resume()
	others[1].Resume()
	c.Leader()
	write(c, client, "c")
	for _, m := range c.Members {
		require.True(t, has(t, c.Client(t, m), "a"))
		require.True(t, has(t, c.Client(t, m), "c"))
	}
}

func TestAllMembersRestart(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	client := c.Client(t)
	require.NoError(t, put(client, "a", long))
	for _, m := range c.Members {
		m.Kill()
	}
	for _, m := range c.Members {
		m.Restart()
	}
	require.True(t, has(t, client, "a"))
}
