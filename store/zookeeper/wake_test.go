package zookeeper

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// wakesLeft is how many requests a handle takes to wait.
func (s *Store) wakesLeft() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// place is a request that waits behind another owner.
func place(name string, n int) store.Request {
	req := numbered(name, n)
	req.Queue = true
	return req
}

// refusedPlace: a request that was refused for certain, as its node must not be made,
// leaves nothing in memory.
func refusedPlace(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e, "/refused")
	_, err := s.Acquire(t.Context(), numbered("x", 1))
	require.NoError(t, err)
	_, err = s.conn.SetACL(s.namePath("x"), zk.WorldACL(zk.PermRead), -1)
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), place("x", 2))
	require.ErrorIs(t, err, store.ErrRefused)
	assert.Zero(t, s.wakesLeft())
}

// watchRefused: a request whose node the handle may not read tries more and more seldom
// to watch it, and not once it waits no more.
func watchRefused(t *testing.T, e *zookeepertest.Ensemble) {
	var requests atomic.Int32
	p := proxytest.StartWith(t, e.Members[0].Addr, func(l *proxytest.Link) {
		l.Forward(func(to net.Conn, message []byte) error {
			requests.Add(1)
			return proxytest.Write(to, message)
		}, proxytest.Write)
	})
	s, err := Open("zk://" + p.Addr + "/unwatched?session_timeout=20s") // few pings
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	id := numbered("x", 1).ID
	_, err = s.conn.Create(s.namePath("x"), nil, 0, s.acl)
	require.NoError(t, err)
	_, err = s.conn.Create(s.namePath("x")+"/abcdefghijkl"+id, nil, 0, zk.WorldACL(zk.PermDelete))
	require.NoError(t, err)
	before := requests.Load()
	s.waits("x", "abcdefghijkl", id, time.Now().Add(time.Minute))
	time.Sleep(3 * time.Second)
	assert.Less(t, requests.Load()-before, int32(12), "tries in three seconds")
	assert.True(t, s.runs("watch"))
	s.ended(id)
	wantNoWatch(t, s)
}

// placeGivenUp: a request that never asks again and is never released leaves nothing
// when its place has ended.
func placeGivenUp(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e)
	_, err := s.Acquire(t.Context(), numbered("given up", 1))
	require.NoError(t, err)
	req := place("given up", 3)
	req.WaitTTL = minTTL
	_, err = s.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 1, s.wakesLeft())
	require.Eventually(t, func() bool { return s.wakesLeft() == 0 }, 10*time.Second, 10*time.Millisecond)
	assert.Len(t, nodesBelow(t, s, "given up"), 1, "the room")
	wantNoWatch(t, s)
}

// runs says whether a goroutine of the handle is in that method.
func (s *Store) runs(method string) bool {
	buf := make([]byte, 16<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	return strings.Contains(stacks, fmt.Sprintf("(*Store).%s(%p", method, s))
}

func wantNoWatch(t *testing.T, s *Store) {
	t.Helper()
	require.Eventually(t, func() bool { return !s.runs("watch") }, 20*time.Second, 20*time.Millisecond, "no goroutine watches")
}

// closeOfASharedConnection: a handle over a connection of the user is closed while the
// connection is broken. The connection goes on, and nothing of the handle is left.
func closeOfASharedConnection(t *testing.T, e *zookeepertest.Ensemble) {
	p := proxytest.Start(t, e.Members[0].Addr)
	owner, err := Open("zk://" + p.Addr + "/shared?session_timeout=20s")
	require.NoError(t, err)
	t.Cleanup(func() { owner.Close() })
	s, err := New(owner.conn, &Options{Root: "/shared"})
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), numbered("x", 1))
	require.NoError(t, err)
	for i := range 3 {
		req := place("x", i+2)
		req.WaitTTL = time.Second
		_, err = s.Acquire(t.Context(), req)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return s.runs("watch") }, 5*time.Second, 10*time.Millisecond)
	session := owner.conn.SessionID()
	p.Blackhole(true)
	require.NoError(t, s.Close())
	p.Blackhole(false) // cuts what lost something
	wantNoWatch(t, s)
	require.Eventually(t, func() bool {
		_, err := owner.Inspect(t.Context(), "x")
		left, _, err2 := owner.conn.Children(owner.namePath("x"))
		return err == nil && err2 == nil && len(left) == 1
	}, 20*time.Second, 10*time.Millisecond, "the places end")
	assert.Equal(t, session, owner.conn.SessionID(), "the session goes on")
	_, err = owner.Acquire(t.Context(), numbered("y", 1))
	assert.NoError(t, err)
}

// recordOf is what a handle knows of a name: the zxid of the record, and whether it
// reads before the next operation.
func recordOf(t *testing.T, s *Store, name string) (zxid int64, reads bool) {
	t.Helper()
	state, err := s.lockName(t.Context(), name)
	require.NoError(t, err)
	defer s.unlockName(name, state)
	if state.known == nil {
		return 0, true
	}
	return state.known.zxid, state.contended
}

// metOnce: a handle whose record another one has changed reads it before the next operation, and no more once it finds it
// as it left it.
func metOnce(t *testing.T, e *zookeepertest.Ensemble) {
	s, other := opens(t, e, "/met"), opens(t, e, "/met")
	r, r2 := numbered("x", 1), numbered("x", 2)
	r.Mode, r2.Mode = store.Shared, store.Shared
	for s, r := range map[*Store]store.Request{s: r, other: r2} {
		g, err := s.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.True(t, g.Held)
	}
	renew := func(s *Store, r store.Request) {
		ref := store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: r.TTL}
		require.NoError(t, s.Renew(t.Context(), []store.Ref{ref})[0])
	}
	renew(s, r)
	renew(other, r2)
	renew(s, r)
	_, reads := recordOf(t, s, "x")
	require.True(t, reads, "the other handle has written")
	renew(s, r)
	_, reads = recordOf(t, s, "x")
	assert.False(t, reads, "nobody else has written")
}

// recordOfAHolder: a handle that another one has granted knows the record when other
// waiters come, so that it releases without a read. It watches no more when it has
// changed the record itself.
func recordOfAHolder(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := opens(t, e), opens(t, e)
	events := make(chan store.Event, 10)
	b.Listen(func(e store.Event) { events <- e })
	_, err := a.Acquire(t.Context(), numbered("known", 1))
	require.NoError(t, err)
	_, err = b.Acquire(t.Context(), place("known", 2))
	require.NoError(t, err)
	require.NoError(t, a.Release(t.Context(), locktest.RefTo(numbered("known", 1))))
	select {
	case event := <-events:
		require.NotZero(t, event.Token)
	case <-time.After(10 * time.Second):
		t.Fatal("the waiter is not granted")
	}
	for n := 3; n < 6; n++ {
		_, err = a.Acquire(t.Context(), place("known", n))
		require.NoError(t, err)
		now, _ := recordOf(t, a, "known")
		require.Eventually(t, func() bool {
			zxid, reads := recordOf(t, b, "known")
			return zxid == now && !reads
		}, 10*time.Second, 5*time.Millisecond, "the record with a waiter more")
	}
	require.NoError(t, b.Renew(t.Context(), []store.Ref{locktest.RefTo(numbered("known", 2))})[0])
	require.Eventually(t, func() bool { return !b.runs("watch") }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, b.Release(t.Context(), locktest.RefTo(numbered("known", 2))))
}
