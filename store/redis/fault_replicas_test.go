package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// confirmed is what a store that wants one replica is opened with.
const confirmed = "?min_replicas=1&replica_timeout=100ms"

// stall stops a replica, which confirms nothing then.
func stall(t *testing.T, replica *redistest.Server) {
	t.Helper()
	replica.Pause()
	t.Cleanup(replica.Resume)
}

// The replica does not confirm a grant in time. What came of that is not known; when
// the replica has caught up the same request is confirmed, and nobody was let in
// between.
func TestFault18ReplicaConfirmsLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := startReplica(t, server)
	s, rival := open(t, server.URL()+confirmed), open(t, server.URL())
	stall(t, replica)
	mine, other := long(want("a", 1)), long(want("a", 2))
	_, err := s.Acquire(bounded(t), mine)
	require.ErrorIs(t, err, redis.ErrTooFewReplicas)
	require.False(t, errors.Is(err, store.ErrRefused))
	_, err = rival.Acquire(bounded(t), other)
	require.ErrorIs(t, err, store.ErrHeld)
	replica.Resume()
	until(t, "it is confirmed", func() bool {
		g, err := s.Acquire(bounded(t), mine)
		return err == nil && g.Held
	})
	_, err = rival.Acquire(bounded(t), other)
	require.ErrorIs(t, err, store.ErrHeld)
	require.NoError(t, s.Release(bounded(t), of(mine)))
}

// A grant that is asked for again is written again, though its deadline stays: servers
// from 7.2 on have WAIT speak of the last write of its connection, and that may be older
// than the grant.
func TestFault18RepeatedAskIsWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	writes := func() string { return field(server, "persistence", "rdb_changes_since_last_save") }
	for _, others := range []int{0, 1} {
		mine := long(want("a", 1))
		mine.Mode = store.Shared
		for i := range others {
			other := long(want("a", 2+i))
			other.Mode = store.Shared
			_, err := s.Acquire(bounded(t), other)
			require.NoError(t, err)
		}
		first, err := s.Acquire(bounded(t), mine)
		require.NoError(t, err)
		mine.TTL /= 2
		before := writes()
		again, err := s.Acquire(bounded(t), mine)
		require.NoError(t, err)
		require.Equal(t, first.Token, again.Token)
		require.Greater(t, again.TTL, mine.TTL, "the deadline stays")
		require.NotEqual(t, before, writes(), "beside %d others", others)
		require.NoError(t, s.Release(bounded(t), of(mine)))
	}
}

// A hold is gone while the replica stands still. That is told as a loss at once, whatever the
// replica has of it.
func TestFault18LossIsCertainWithoutReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := startReplica(t, server)
	s, direct := open(t, server.URL()+confirmed), open(t, server.URL())
	gone, kept := long(want("a", 1)), long(want("b", 2))
	for _, r := range []store.Request{gone, kept} {
		_, err := direct.Acquire(bounded(t), r) // which the replica need not confirm in time
		require.NoError(t, err)
	}
	stall(t, replica)
	server.MustDo("DEL", redis.LockKey("a"))
	results := s.Renew(bounded(t), []store.Ref{of(gone), of(kept)})
	require.ErrorIs(t, results[0], store.ErrLost)
	require.ErrorIs(t, results[1], redis.ErrTooFewReplicas)
	require.NotErrorIs(t, results[1], store.ErrLost)
}

// A slot has another node, and the handle does not know it yet. The renewal that finds out is not told as confirmed
// unless a replica of the new node has it.
func TestFault18RenewalAtANewNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, true)
	s := open(t, cluster.URL()+strings.Replace(confirmed, "?", "&", 1))
	held := long(want("a", 1))
	g, err := s.Acquire(bounded(t), held)
	require.NoError(t, err)
	require.True(t, g.Held)
	slot := redis.Slot(redis.LockKey("a"))
	at := slices.Index(cluster.Nodes, cluster.Master(slot))
	to := (at + 1) % 3
	cluster.BeginMove(slot, cluster.Nodes[to])
	for cluster.MoveKeys(slot, cluster.Nodes[to], 10) > 0 {
	}
	cluster.EndMove(slot, cluster.Nodes[to])
	replica := cluster.Nodes[3+to]
	stall(t, replica)
	for range 3 {
		require.ErrorIs(t, s.Renew(bounded(t), []store.Ref{of(held)})[0], redis.ErrTooFewReplicas)
	}
	replica.Resume()
	locktest.Poll(t, "the renewal is confirmed", locktest.Patience, func() bool {
		return s.Renew(bounded(t), []store.Ref{of(held)})[0] == nil
	})
}

// A lock is handed over while the replica stands still. Its waiter does not hear of it,
// and it is not handed on either, for an ask of his may be on its way: when that is
// confirmed he holds, and nobody else has.
func TestFault18HandOverConfirmedLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replica := startReplica(t, server)
	s, rival := open(t, server.URL()+confirmed), open(t, server.URL())
	told := make(chan store.Event, 10)
	s.Listen(func(e store.Event) { told <- e })
	first, mine, next := long(want("a", 1)), long(want("a", 2)), long(want("a", 3))
	mine.Queue, next.Queue = true, true
	g, err := rival.Acquire(bounded(t), first)
	require.NoError(t, err)
	require.True(t, g.Held)
	for _, asked := range []struct {
		on *redis.Store
		r  store.Request
	}{{s, mine}, {rival, next}} {
		g, err := asked.on.Acquire(bounded(t), asked.r)
		require.NoError(t, err)
		require.False(t, g.Held)
	}
	stall(t, replica)
	require.NoError(t, rival.Release(bounded(t), of(first)))
	select {
	case e := <-told:
		require.Empty(t, e.Token, "told of a grant that no replica has")
	case <-time.After(500 * time.Millisecond): // five times what is waited for the replica
	}
	state, err := rival.Inspect(bounded(t), "a")
	require.NoError(t, err)
	require.Len(t, state.Queue, 1, "it was handed on")
	replica.Resume()
	until(t, "it is confirmed", func() bool {
		g, err := s.Acquire(bounded(t), mine)
		return err == nil && g.Held
	})
	g, err = rival.Acquire(bounded(t), next)
	require.NoError(t, err)
	require.False(t, g.Held)
	require.NoError(t, s.Release(bounded(t), of(mine)))
	require.NoError(t, rival.Release(bounded(t), of(next)))
}

// A request that is granted and confirmed at once is not kept in mind: there is no event
// of it to come.
func TestGrantedRequestsAreForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	startReplica(t, server)
	s := open(t, server.URL()+"?min_replicas=1")
	const number = 100
	for i := range number {
		r := want(fmt.Sprint("name-", i), 1+i)
		r.Queue, r.WaitTTL = true, time.Hour
		g, err := s.Acquire(bounded(t), r)
		require.NoError(t, err)
		require.True(t, g.Held)
	}
	require.Zero(t, redis.Hints(s))
}

// The server is busy with a script while replicas are waited for. Calls fail, and that
// is all that happens: a connection goes back to the pool without commands.
func TestFault28BusyWithReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "busy-reply-threshold 50")
	s := open(t, server.URL()+confirmed)
	_, err := s.Acquire(bounded(t), want("a", 1)) // a connection is in the pool
	require.ErrorIs(t, err, redis.ErrTooFewReplicas)
	calm := occupy(t, server)
	for i := range 5 {
		_, err := s.Acquire(bounded(t), want("b", 10+i))
		require.Error(t, err)
	}
	calm()
	until(t, "it answers again", func() bool {
		_, err := s.Acquire(bounded(t), want("c", 20))
		return errors.Is(err, redis.ErrTooFewReplicas)
	})
}

// occupy has a server run a script without end, until it is calmed. The server needs a
// "busy-reply-threshold" of few milliseconds.
func occupy(t *testing.T, server *redistest.Server) (calm func()) {
	t.Helper()
	mad, other := startClient(t, server.Addr), startClient(t, server.Addr)
	ended := make(chan error, 1)
	go func() { ended <- mad("EVAL", "while true do end", "0") }()
	until(t, "it is busy", func() bool { return strings.HasPrefix(fmt.Sprint(other("GET", "a")), "BUSY") })
	return func() {
		require.NoError(t, other("SCRIPT", "KILL"))
		require.Error(t, <-ended)
	}
}

func long(r store.Request) store.Request {
	r.TTL, r.WaitTTL = time.Minute, time.Minute
	return r
}
