package redis_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// Looking writes nothing, whatever form the name has, and works where nothing may be written.
func TestLooksWriteNothing(t *testing.T) {
	t.Parallel()
	for form, listed := range map[string]int{"listed": 64, "indexed": 0} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := openListed(t, server.URL(), listed)
			for _, waiters := range []int{0, 2} {
				for i := range 1 + waiters {
					req := want("name "+strconv.Itoa(waiters), i)
					req.Queue, req.TTL, req.WaitTTL, req.Label = true, time.Minute, time.Minute, "label\n%1 "+strconv.Itoa(i)
					_, err := s.Acquire(bounded(t), req)
					require.NoError(t, err)
				}
			}
			look := func() {
				t.Helper()
				for _, waiters := range []int{0, 2} {
					state, err := s.Inspect(bounded(t), "name "+strconv.Itoa(waiters))
					require.NoError(t, err)
					require.Len(t, state.Queue, waiters)
					require.Equal(t, "label\n%1 0", state.Holders[0].Label)
				}
				names, err := s.List(bounded(t))
				require.NoError(t, err)
				require.ElementsMatch(t, []string{"name 0", "name 2"}, names)
			}
			before := field(server, "persistence", "rdb_changes_since_last_save")
			look()
			for _, waiters := range []int{0, 2} {
				try := want("name "+strconv.Itoa(waiters), 9)
				g, err := s.Acquire(bounded(t), try)
				require.ErrorIs(t, err, store.ErrHeld)
				if listed > 0 || waiters == 0 {
					require.Equal(t, "label\n%1 0", g.HeldBy)
				}
			}
			require.Equal(t, before, field(server, "persistence", "rdb_changes_since_last_save"))

			server.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
			look()
		})
	}
}

// A waiter hears whose hold is in the way.
func TestHeldBy(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).URL())
	for i := range 3 {
		req := want("a", i)
		req.Queue, req.Label = true, "label "+strconv.Itoa(i)
		g, err := s.Acquire(bounded(t), req)
		require.NoError(t, err)
		require.Equal(t, i, g.Position)
		require.Equal(t, map[bool]string{true: "", false: "label 0"}[i == 0], g.HeldBy)
	}
}

// What a dead entry keeps from being granted is granted by a look, too, unless nothing may be written.
func TestLookAtTheDead(t *testing.T) {
	t.Parallel()
	for form, listed := range map[string]int{"listed": 64, "indexed": 0} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := openListed(t, server.URL(), listed)
			for i := range 3 {
				req := want("a", i)
				req.Queue, req.TTL = true, time.Minute
				req.WaitTTL = time.Minute
				if i == 0 {
					req.TTL = lease
				}
				_, err := s.Acquire(bounded(t), req)
				require.NoError(t, err)
			}
			time.Sleep(lease + 50*time.Millisecond) // time of the server, which nothing here can move
			server.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
			state, err := s.Inspect(bounded(t), "a")
			require.NoError(t, err)
			require.Empty(t, state.Holders)
			require.Len(t, state.Queue, 2)
			names, err := s.List(bounded(t))
			require.NoError(t, err)
			require.Equal(t, []string{"a"}, names)

			server.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
			state, err = s.Inspect(bounded(t), "a")
			require.NoError(t, err)
			require.Len(t, state.Holders, 1)
			require.Equal(t, store.Short(want("", 1).ID), state.Holders[0].ID)
			require.Len(t, state.Queue, 1)
		})
	}
}

// TestCallsOfLooks: a refusal by a lone hold costs the server 3 calls, an id that is one 4.
func TestCallsOfLooks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	held, other := newRequest(1), newRequest(2)
	other.Name = held.Name
	for range 2 { // the second loads no script
		_, err := s.Acquire(t.Context(), held)
		require.NoError(t, err)
	}
	server.MustDo("CONFIG", "RESETSTAT")
	if _, err := s.Acquire(t.Context(), other); !errors.Is(err, store.ErrHeld) {
		t.Fatal(err)
	}
	require.Equal(t, map[string]int{"evalsha": 1, "hlen": 1, "hgetall": 1, "pttl": 1}, commands(server))
	server.MustDo("CONFIG", "RESETSTAT")
	_, err := s.Acquire(t.Context(), held)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"evalsha": 1, "hlen": 1, "hgetall": 1, "pttl": 1, "pexpire": 1}, commands(server))
}

// TestCallsBesideTombstones: a name in which ids are buried costs at most twice the calls of a free one.
func TestCallsBesideTombstones(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	pair := func(req store.Request) (calls int) {
		t.Helper()
		server.MustDo("CONFIG", "RESETSTAT")
		_, err := s.Acquire(t.Context(), req)
		require.NoError(t, err)
		require.NoError(t, s.Release(t.Context(), locktest.RefTo(req)))
		for _, n := range commands(server) {
			calls += n
		}
		return calls
	}
	for i := range 3 {
		ref := locktest.RefTo(newRequest(100 + i))
		ref.Name, ref.Bury = newRequest(2).Name, true
		require.ErrorIs(t, s.Release(t.Context(), ref), store.ErrLost)
	}
	pair(newRequest(0))
	free, buried := pair(newRequest(1)), pair(newRequest(2))
	t.Logf("%d calls beside %d", buried, free)
	require.LessOrEqual(t, buried, 2*free)
	require.NotEqual(t, "0", server.MustDo("EXISTS", redis.LockKey(newRequest(2).Name)), "the ids are still buried")
}

func TestAges(t *testing.T) {
	t.Parallel()
	locktest.TellsAges(t, open(t, redistest.Start(t).URL()), "n")
}
