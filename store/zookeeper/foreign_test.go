package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// plantChild makes a node of another program below that of a name.
func plantChild(t *testing.T, s *Store, name string) {
	t.Helper()
	_, err := s.conn.Create(s.namePath(name)+"/foreign", nil, 0, s.acl)
	require.NoError(t, err)
}

// foreignChild: a record that cannot be deleted, as another program has a node below
// it, concerns that name alone.
func foreignChild(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e, "/foreign")
	held, dead, alive := numbered("held", 1), numbered("dead", 2), numbered("alive", 3)
	dead.TTL = minTTL
	for _, req := range []store.Request{held, dead, alive} {
		_, err := s.Acquire(t.Context(), req)
		require.NoError(t, err)
	}
	plantChild(t, s, "held")
	plantChild(t, s, "dead")
	assert.ErrorIs(t, s.Release(t.Context(), locktest.RefTo(held)), store.ErrForeignKey)
	require.Eventually(t, func() bool {
		names, err := s.List(t.Context())
		require.NoError(t, err)
		assert.Contains(t, names, "alive")
		return len(names) == 2 // held has not been released
	}, 10*time.Second, 10*time.Millisecond)
	_, err := s.Inspect(t.Context(), "dead")
	assert.ErrorIs(t, err, store.ErrForeignKey)
}

// namesOfOtherUsers: a name that the handle may not read hides no other one from List,
// and keeps none from the sweep.
func namesOfOtherUsers(t *testing.T, e *zookeepertest.Ensemble) {
	s, other := opens(t, e, "/users"), opens(t, e, "/users")
	theirs, dead := numbered("theirs", 1), numbered("dead", 2)
	dead.TTL = minTTL
	for _, req := range []store.Request{theirs, dead, numbered("alive", 3)} {
		_, err := other.Acquire(t.Context(), req)
		require.NoError(t, err)
	}
	_, err := s.conn.SetACL(s.namePath("theirs"), zk.DigestACL(zk.PermAll, "other", "secret"), -1)
	require.NoError(t, err)
	time.Sleep(2 * minTTL)
	for i := range minCreated {
		_, err := s.Acquire(t.Context(), numbered(fmt.Sprint("new", i), 4))
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), store.Ref{Name: fmt.Sprint("new", i), Owner: "owner-4", ID: numbered("", 4).ID, TTL: minTTL}))
	}
	require.Eventually(t, func() bool {
		there, _, err := s.conn.Exists(s.namePath("dead"))
		return err == nil && !there
	}, 10*time.Second, 10*time.Millisecond, "the sweep goes on")
	names, err := s.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"alive"}, names)

	// A user who may read nothing is not told that there is nothing.
	_, err = s.conn.SetACL(s.namePath("alive"), zk.DigestACL(zk.PermAll, "other", "secret"), -1)
	require.NoError(t, err)
	_, err = s.List(t.Context())
	assert.ErrorIs(t, err, store.ErrRefused)
}

// deleteRoom deletes the node of a name that tells it from later ones.
func deleteRoom(t *testing.T, s *Store, name string) {
	t.Helper()
	rooms, _, err := s.conn.Children(s.namePath(name))
	require.NoError(t, err)
	require.Len(t, rooms, 1)
	require.NoError(t, s.conn.Delete(s.namePath(name)+"/"+rooms[0], -1))
}

// missingChild: an operator or a sweep of empty nodes takes a node below a record away.
// An operator has to look, and other names go on.
func missingChild(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e, "/room")
	_, err := s.Acquire(t.Context(), numbered("x", 1))
	require.NoError(t, err)
	deleteRoom(t, s, "x")
	assert.ErrorIs(t, s.Renew(t.Context(), []store.Ref{locktest.RefTo(numbered("x", 1))})[0], store.ErrForeignKey)
	assert.ErrorIs(t, s.Release(t.Context(), locktest.RefTo(numbered("x", 1))), store.ErrForeignKey)

	_, err = s.Acquire(t.Context(), numbered("y", 1))
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), place("y", 2))
	require.NoError(t, err)
	require.NoError(t, s.conn.Delete(s.namePath("y")+"/"+nodesBelow(t, s, "y")[1], -1))
	assert.ErrorIs(t, s.Release(t.Context(), locktest.RefTo(numbered("y", 1))), store.ErrForeignKey)
}

// deletedByHand: a name that an operator has deleted with all its nodes is free, its
// waiters take places again, and the holder is told.
func deletedByHand(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := opens(t, e, "/hand"), opens(t, e, "/hand")
	events := make(chan store.Event, 10)
	b.Listen(func(e store.Event) { events <- e })
	_, err := a.Acquire(t.Context(), numbered("x", 1))
	require.NoError(t, err)
	_, err = b.Acquire(t.Context(), place("x", 2))
	require.NoError(t, err)
	nodes := nodesBelow(t, a, "x")
	require.Len(t, nodes, 2)
	for _, node := range nodes {
		require.NoError(t, a.conn.Delete(a.namePath("x")+"/"+node, -1))
	}
	require.NoError(t, a.conn.Delete(a.namePath("x"), -1))
	select {
	case event := <-events:
		assert.Equal(t, store.Event{ID: numbered("", 2).ID}, event)
	case <-time.After(10 * time.Second):
		t.Fatal("the waiter is not told")
	}
	g, err := b.Acquire(t.Context(), place("x", 2))
	require.NoError(t, err)
	assert.True(t, g.Held)
	assert.ErrorIs(t, a.Renew(t.Context(), []store.Ref{locktest.RefTo(numbered("x", 1))})[0], store.ErrLost)
}
