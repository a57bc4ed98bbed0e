package zookeeper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// refTo is the hold or place of a request.
func refTo(req store.Request) store.Ref {
	return store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, TTL: req.TTL}
}

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
	assert.ErrorIs(t, s.Release(t.Context(), refTo(held)), store.ErrForeignKey)
	require.Eventually(t, func() bool {
		names, err := s.List(t.Context())
		require.NoError(t, err)
		assert.Contains(t, names, "alive")
		return len(names) == 2 // held has not been released
	}, 10*time.Second, 10*time.Millisecond)
	_, err := s.Inspect(t.Context(), "dead")
	assert.ErrorIs(t, err, store.ErrForeignKey)
}

// deleteRoom deletes the node of a name that tells it from later ones.
func deleteRoom(t *testing.T, s *Store, name string) {
	t.Helper()
	rooms, _, err := s.conn.Children(s.namePath(name))
	require.NoError(t, err)
	require.Len(t, rooms, 1)
	require.NoError(t, s.conn.Delete(s.namePath(name)+"/"+rooms[0], -1))
}

// deletedRoom: an operator or a sweep of empty nodes takes away the room of a name.
// The lock goes on, and leaves nothing behind.
func deletedRoom(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e, "/room")
	req := numbered("x", 1)
	g, err := s.Acquire(t.Context(), req)
	require.NoError(t, err)
	deleteRoom(t, s, "x")
	require.NoError(t, s.Renew(t.Context(), []store.Ref{refTo(req)})[0])
	again, err := s.Acquire(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, g.Token, again.Token)
	deleteRoom(t, s, "x")
	require.NoError(t, s.Release(t.Context(), refTo(req)))
	there, _, err := s.conn.Exists(s.namePath("x"))
	require.NoError(t, err)
	assert.False(t, there)
}

// roomOfALaterNode: a write on a node that has lost its room does not meet a later node
// of the same version.
func roomOfALaterNode(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e, "/later")
	_, err := s.Acquire(t.Context(), numbered("x", 1))
	require.NoError(t, err)
	deleteRoom(t, s, "x")
	old, err := s.read(s.namePath("x"), true)
	require.NoError(t, err)
	require.True(t, old.bare)

	require.NoError(t, s.conn.Delete(s.namePath("x"), -1))
	later := opens(t, e, "/later")
	_, err = later.Acquire(t.Context(), numbered("x", 2))
	require.NoError(t, err)
	for name, next := range map[string]*snapshot{"a change": {room: "abcdefghijkl"}, "a deletion": {}} {
		assert.ErrorIs(t, s.write(s.namePath("x"), old, next, new(wakeChanges)), errConflict, name)
	}
	assert.NoError(t, later.Renew(t.Context(), []store.Ref{refTo(numbered("x", 2))})[0])
}
