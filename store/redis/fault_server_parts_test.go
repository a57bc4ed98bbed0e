package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// Somebody deleted a part of a lock, or wrote over it, and then a request comes
// that would wait. What is left is no lock, and what cannot be read stays as it is.
func TestFault43PartsOfALock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openListed(t, server.URL(), 0)
	ask := func(name string, n int, place time.Duration) (store.Grant, error) {
		req := want(name, n)
		req.Queue, req.WaitTTL = true, place
		return s.Acquire(bounded(t), req)
	}
	held := func(name string, n int) {
		t.Helper()
		g, err := ask(name, n, time.Minute)
		require.NoError(t, err)
		require.True(t, g.Held)
	}

	// The hash, so that the order is of nobody.
	held("hash", 1)
	_, err := ask("hash", 2, time.Minute)
	require.NoError(t, err)
	server.MustDo("DEL", redis.LockKey("hash"))
	held("hash", 3)
	_, err = ask("hash", 4, time.Minute)
	require.NoError(t, err)
	state, err := s.Inspect(bounded(t), "hash")
	require.NoError(t, err)
	require.Len(t, state.Holders, 1)
	require.Len(t, state.Queue, 1)

	// A hold, of those that the hash counts, beside a waiter who has died.
	held("hold", 1)
	_, err = ask("hold", 2, 20*time.Millisecond)
	require.NoError(t, err)
	server.MustDo("ZREM", redis.KeysOf("hold")[2], "h:"+want("", 1).ID)
	time.Sleep(25 * time.Millisecond) // time of the server, which nothing here can move
	held("hold", 3)

	listed := listening(t, server.URL())
	staysAsItIs(t, server, "x", func(name string) error {
		req := want(name, 2)
		req.Queue = true
		_, err := listed.Acquire(bounded(t), req)
		return err
	})
}

// staysAsItIs has a lock in the place of whose lone hold, of that mode, are words.
func staysAsItIs(t *testing.T, server *redistest.Server, mode string, ask func(name string) error) {
	t.Helper()
	owner, id := want("", 1).Owner, want("", 1).ID
	for i, fields := range [][]string{
		{"L:" + id, "not the record of a hold"},
		{"L:" + id, mode + " 1 " + owner + " label"},
		{"L:z", "1 " + mode + " " + owner + " label"},
		{"L:" + id + "0", "1 " + mode + " " + owner + " label"},
		{"L:" + id, "1 " + mode + " " + owner + " label", "other", "field"},
		{"holds", id + " 9999999999999 1 " + mode + " " + owner + " label", "waits", ""},
		{"holds", id + " 999999999999x 1 " + mode + " " + owner + " label\n", "waits", ""},
		{"holds", id + " 9999999999999 1 y " + owner + " label\n", "waits", ""},
		{"holds", "z\n", "waits", ""},
		{"holds", "", "waits", "z\n"},
	} {
		name := fmt.Sprint("words ", mode, i)
		key := redis.LockKey(name)
		server.MustDo(append([]string{"HSET", key}, fields...)...)
		server.MustDo("PEXPIRE", key, "60000")
		before := server.MustDo("DUMP", key)
		require.ErrorIs(t, ask(name), store.ErrForeignKey)
		require.Equal(t, before, server.MustDo("DUMP", key))
		require.Equal(t, "0", server.MustDo("EXISTS", redis.KeysOf(name)[2]), "nothing was written")
	}
}

// The same with readers, of whom one comes or goes.
func TestFault43PartsOfReaders(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openListed(t, server.URL(), 0)
	reader := func(name string, n int) store.Request {
		req := want(name, n)
		req.Mode = store.Shared
		return req
	}
	held := func(name string, all ...int) {
		t.Helper()
		for _, n := range all {
			_, err := s.Acquire(bounded(t), reader(name, n))
			require.NoError(t, err)
		}
	}
	holders := func(name string) int {
		t.Helper()
		state, err := s.Inspect(bounded(t), name)
		require.NoError(t, err)
		return len(state.Holders)
	}
	for what, spoil := range map[string]func(name string){
		"the order":         func(name string) { server.MustDo("DEL", redis.KeysOf(name)[2]) },
		"one of the order":  func(name string) { server.MustDo("ZREM", redis.KeysOf(name)[2], "h:"+reader("", 1).ID) },
		"the hash":          func(name string) { server.MustDo("DEL", redis.LockKey(name)) },
		"the hash's counts": func(name string) { server.MustDo("HDEL", redis.LockKey(name), "counts") },
	} {
		for _, others := range []int{1, 2} {
			name := fmt.Sprint(what, others)
			held(name, 1, 2, 3)
			if others == 1 {
				require.NoError(t, s.Release(bounded(t), of(reader(name, 3))))
			}
			spoil(name)
			_, err := s.Acquire(bounded(t), reader(name, 4))
			if what == "the hash's counts" {
				require.ErrorIs(t, err, store.ErrForeignKey, name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, 1, holders(name), name)

			name += " goes"
			held(name, 1, 2, 3)
			if others == 1 {
				require.NoError(t, s.Release(bounded(t), of(reader(name, 3))))
			}
			spoil(name)
			require.ErrorIs(t, s.Release(bounded(t), of(reader(name, 1))), store.ErrLost, name)
			require.Zero(t, holders(name), name)
		}
	}

	listed := open(t, server.URL())
	staysAsItIs(t, server, "s", func(name string) error {
		_, err := listed.Acquire(bounded(t), reader(name, 2))
		return err
	})
}
