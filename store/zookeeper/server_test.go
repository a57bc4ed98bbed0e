package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// TestInside looks into handles on a real server.
func TestInside(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 1)
	t.Run("ClockSetBack", func(t *testing.T) { clockSetBack(t, e) })
	t.Run("ClockSetForward", func(t *testing.T) { clockSetForward(t, e) })
	t.Run("ThousandsPromoted", func(t *testing.T) { thousandsPromoted(t, e) })
	t.Run("AskedAgain", func(t *testing.T) { askedAgain(t, e) })
	t.Run("TooLarge", func(t *testing.T) { tooLarge(t, e) })
	t.Run("NoWatchOnAMissingNode", func(t *testing.T) { noWatchOnAMissingNode(t, e) })
	t.Run("CallerLeftWhileItRead", func(t *testing.T) { callerLeftWhileItRead(t, e) })
	t.Run("MissingFolder", func(t *testing.T) { missingFolder(t, e) })
	t.Run("TokensOfManyReaders", func(t *testing.T) { tokensOfManyReaders(t, e) })
	t.Run("ForeignChild", func(t *testing.T) { foreignChild(t, e) })
	t.Run("MissingChild", func(t *testing.T) { missingChild(t, e) })
	t.Run("DeletedByHand", func(t *testing.T) { deletedByHand(t, e) })
	t.Run("RefusedPlace", func(t *testing.T) { refusedPlace(t, e) })
	t.Run("WatchRefused", func(t *testing.T) { watchRefused(t, e) })
	t.Run("NamesOfOtherUsers", func(t *testing.T) { namesOfOtherUsers(t, e) })
	t.Run("PlaceGivenUp", func(t *testing.T) { placeGivenUp(t, e) })
	t.Run("RecordOfAHolder", func(t *testing.T) { recordOfAHolder(t, e) })
	t.Run("MetOnce", func(t *testing.T) { metOnce(t, e) })
	t.Run("CloseOfASharedConnection", func(t *testing.T) { closeOfASharedConnection(t, e) })
	t.Run("NameWithoutAddress", func(t *testing.T) { nameWithoutAddress(t, e) })
	t.Run("AuthorizeWaits", func(t *testing.T) { authorizeWaits(t, e) })
}

func opens(t *testing.T, e *zookeepertest.Ensemble, root ...string) *Store {
	t.Helper()
	s, err := Open(e.URL(root...))
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func numbered(name string, n int) store.Request {
	return store.Request{
		Name: name, Owner: fmt.Sprintf("owner-%d", n), ID: fmt.Sprintf("%032x", n),
		TTL: 20 * time.Second, WaitTTL: 20 * time.Second, Tokens: 1,
	}
}

// lags makes what a handle knows of the leader's clock false by that time, as it is
// after the clock was set.
func (s *Store) lags(by time.Duration) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.last.low -= by
	s.clock.last.high -= by
}

// callerLeftWhileItRead: a request whose context has ended before its transaction begins, because the server answered a
// read late, takes nothing.
func callerLeftWhileItRead(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e)
	ctx, leave := context.WithCancel(t.Context())
	_, err := s.update(ctx, operation{name: "left", acquires: true, do: func(st *step) error {
		leave()
		_, err := st.record.Acquire(&st.call, numbered("left", 1), s.id)
		return err
	}})
	require.ErrorIs(t, err, context.Canceled)
	g, err := s.Acquire(t.Context(), numbered("left", 2)) // after what the update has left under way
	require.NoError(t, err)
	require.True(t, g.Held)
	require.NoError(t, s.Release(t.Context(), locktest.RefTo(numbered("left", 2))))
}

// clockSetBack: the leader's clock is set back after a handle has last read it. The
// handle does not take the hold of another one for dead.
func clockSetBack(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := opens(t, e), opens(t, e)
	_, err := a.Acquire(t.Context(), numbered("other", 1))
	require.NoError(t, err)
	g, err := b.Acquire(t.Context(), numbered("back", 2))
	require.NoError(t, err)
	require.True(t, g.Held)
	a.lags(-time.Minute)
	_, err = a.Acquire(t.Context(), numbered("back", 3))
	assert.ErrorIs(t, err, store.ErrHeld)
}

// clockSetForward: the leader's clock is set forward after a handle has last read it.
// A hold that the handle then takes has its whole lease for other handles too.
func clockSetForward(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := opens(t, e), opens(t, e)
	_, err := a.Acquire(t.Context(), numbered("warm", 1))
	require.NoError(t, err)
	a.lags(time.Minute)
	g, err := a.Acquire(t.Context(), numbered("forward", 2))
	require.NoError(t, err)
	require.True(t, g.Held)
	state, err := b.Inspect(t.Context(), "forward")
	require.NoError(t, err)
	require.Len(t, state.Holders, 1)
	assert.Equal(t, g.Token, state.Holders[0].Token)
	renewed := a.Renew(t.Context(), []store.Ref{{Name: "forward", Owner: "owner-2", ID: numbered("", 2).ID, TTL: 20 * time.Second}})
	assert.NoError(t, renewed[0])
}

// tokensOfManyReaders: readers that are promoted together and ask for more tokens than
// one transaction has are all granted soon.
func tokensOfManyReaders(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e)
	const readers = 20
	granted := make(chan uint64, 2*readers)
	s.Listen(func(e store.Event) { granted <- e.Token })
	_, err := s.Acquire(t.Context(), numbered("readers", 0))
	require.NoError(t, err)
	for i := range readers {
		req := place("readers", i+1)
		req.Mode, req.Tokens = store.Shared, tokensPerWrite
		_, err := s.Acquire(t.Context(), req)
		require.NoError(t, err)
	}
	require.NoError(t, s.Release(t.Context(), locktest.RefTo(numbered("readers", 0))))
	tokens := map[uint64]bool{}
	for range readers {
		select {
		case token := <-granted:
			tokens[token] = true
		case <-time.After(10 * time.Second):
			require.Len(t, tokens, readers, "granted readers")
		}
	}
	assert.Len(t, tokens, readers)
	assert.NotContains(t, tokens, uint64(0))
}

// thousandsPromoted: a release that promotes so many readers that the record and the
// wake nodes are more than the server takes at once.
func thousandsPromoted(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e)
	_, err := s.Acquire(t.Context(), numbered("many", 0))
	require.NoError(t, err)
	waiters := 0
	for err == nil { // until the name is full
		_, err = s.update(t.Context(), operation{name: "many", acquires: true, do: func(st *step) error {
			label := strings.Repeat("label", 25)
			for i := range 100 {
				req := numbered("many", waiters+i+1)
				req.Owner = fmt.Sprintf("%064d", waiters+i)
				req.Mode, req.Queue, req.Label, req.TTL, req.WaitTTL = store.Shared, true, label, time.Hour, time.Hour
				if _, err := st.record.Acquire(&st.call, req, "handle"); err != nil {
					return err
				}
			}
			return nil
		}})
		if err == nil {
			waiters += 100
		}
	}
	require.ErrorIs(t, err, errTooLarge)
	require.GreaterOrEqual(t, waiters, 2000)
	require.NoError(t, s.Release(t.Context(), store.Ref{Name: "many", ID: numbered("", 0).ID, TTL: time.Minute}))
	state, err := s.Inspect(t.Context(), "many")
	require.NoError(t, err)
	assert.Len(t, state.Holders, waiters)
	_, err = s.Break(t.Context(), "many")
	assert.NoError(t, err)
}

// askedAgain: the answer to a request that waits is a write, even if its place lasts long enough. So a
// grant that was decided before the answer fails, and counts from after it when it is decided again.
func askedAgain(t *testing.T, e *zookeepertest.Ensemble) {
	s, promoter := opens(t, e), opens(t, e)
	holder, waiter := numbered("again", 0), numbered("again", 1)
	waiter.Queue = true
	_, err := promoter.Acquire(t.Context(), holder)
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), waiter)
	require.NoError(t, err)
	_, err = promoter.Inspect(t.Context(), "again") // now it has read the waiter's place
	require.NoError(t, err)
	decided := 0
	_, err = promoter.update(t.Context(), operation{name: "again", do: func(st *step) error {
		if decided++; decided == 1 {
			if g, err := s.Acquire(context.Background(), waiter); g.Held || err != nil {
				return fmt.Errorf("the waiter asks again: %v, %w", g, err)
			}
		}
		return st.record.Release(&st.call, locktest.RefTo(holder))
	}})
	require.NoError(t, err)
	assert.Equal(t, 2, decided, "times that the release was decided")
}

// tooLarge: a name takes no more holds than its node can have, and still releases,
// renews and buries.
func tooLarge(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e)
	first := store.Ref{Name: "large", Owner: "o", ID: numbered("", 0).ID, TTL: time.Minute}
	_, err := s.update(t.Context(), operation{name: "large", do: func(st *step) error {
		for i := range 3600 {
			req := numbered("large", i)
			req.Owner, req.Label = "o", strings.Repeat("label", 40)
			if _, err := st.record.Acquire(&st.call, req, "handle"); err != nil {
				return err
			}
		}
		return nil
	}})
	require.NoError(t, err)
	req := numbered("large", 3600)
	req.Owner = "o"
	_, err = s.Acquire(t.Context(), req)
	assert.ErrorIs(t, err, store.ErrRefused)
	assert.NoError(t, s.Renew(t.Context(), []store.Ref{first})[0])
	assert.NoError(t, s.Release(t.Context(), first))
	first.Bury = true
	assert.ErrorIs(t, s.Release(t.Context(), first), store.ErrLost)
	_, err = s.Break(t.Context(), "large")
	assert.NoError(t, err)

	_, err = s.update(t.Context(), operation{name: "larger", do: func(st *step) error {
		for i := range 7000 {
			_ = st.record.Release(&st.call, store.Ref{ID: strings.Repeat("0", 150) + numbered("", i).ID, TTL: time.Minute, Bury: true})
		}
		return nil
	}})
	assert.ErrorIs(t, err, store.ErrRefused)
}

// noWatchOnAMissingNode: a request that was granted before its watch was set leaves
// no watch.
func noWatchOnAMissingNode(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e)
	before := e.Members[0].Watches()
	s.watch("x", "abcdefghijkl", numbered("x", 1).ID)
	assert.Equal(t, before, e.Members[0].Watches())
}

// missingFolder: the folders are made again.
func missingFolder(t *testing.T, e *zookeepertest.Ensemble) {
	s := opens(t, e, "/folder")
	require.NoError(t, s.conn.Delete("/folder/locks", -1))
	require.NoError(t, s.conn.Delete("/folder/clock", -1))
	_, err := s.Acquire(t.Context(), numbered("x", 1))
	require.NoError(t, err)
	req := numbered("x", 2)
	req.Queue = true
	g, err := s.Acquire(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, 1, g.Position)
	assert.Contains(t, nodesBelow(t, s, "x")[1], req.ID)
}

// nameWithoutAddress: a member whose name has no address keeps nobody from the others.
func nameWithoutAddress(t *testing.T, e *zookeepertest.Ensemble) {
	s, err := Open("zk://none.invalid," + e.Members[0].Addr)
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// authorizeWaits: a user is known to a server that begins to serve after the client
// has tried all servers.
func authorizeWaits(t *testing.T, e *zookeepertest.Ensemble) {
	var dials atomic.Int32
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		if dials.Add(1) <= 3 {
			return nil, errors.New("nothing listens")
		}
		return net.DialTimeout(network, address, timeout)
	}
	conn, _, err := zk.Connect([]string{e.Members[0].Addr}, 6*time.Second, zk.WithDialer(dial), zk.WithLogger(silent{}))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, untilServed(ctx, func() error { return conn.AddAuth("digest", []byte("user:password")) }))
	assert.Greater(t, dials.Load(), int32(3))
}

// nodesBelow are the nodes below a record: the room, and those of waiters.
func nodesBelow(t *testing.T, s *Store, name string) []string {
	t.Helper()
	nodes, _, err := s.conn.Children(s.namePath(name))
	require.NoError(t, err)
	slices.Sort(nodes)
	return nodes
}
