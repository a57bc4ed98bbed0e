package etcdtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	require.Same(t, second, c.Leader())

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
	require.ErrorIs(t, put(client, "b", short), context.DeadlineExceeded)
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
