package redis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// The server is full. A new lock is refused at once; all that is held is
// renewed and released, waiters included.
func TestFault29OutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory-policy noeviction")
	a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
	var holds []*dlock.Hold
	for i := range 100 {
		holds = append(holds, a.take(fmt.Sprint(i)))
	}
	readers := a.RWMutex("read")
	for range 2 {
		r, err := readers.RLockContext(bounded(t))
		require.NoError(t, err)
		holds = append(holds, r)
	}
	queued := want("0", 1)
	queued.Queue, queued.WaitTTL = true, time.Minute
	_, err := b.store.Acquire(bounded(t), queued)
	require.NoError(t, err)
	server.MustDo("CONFIG", "SET", "maxmemory", "1")

	began := time.Now()
	_, err = b.store.Acquire(bounded(t), want("new", 1))
	require.ErrorIs(t, err, store.ErrRefused)
	require.ErrorContains(t, err, "OOM")
	for _, name := range []string{"new", "1"} {
		_, err = b.Mutex(name).LockContext(bounded(t))
		require.ErrorIs(t, err, dlock.ErrRefused)
	}
	require.Less(t, time.Since(began), slack)
	kept(t, 2*lease, holds...)
	for _, h := range holds {
		require.NoError(t, h.Unlock(), h.Name())
	}
	state, err := b.store.Inspect(bounded(t), "0")
	require.NoError(t, err)
	require.Len(t, state.Holders, 1, "the waiter was granted by the release")
	require.Greater(t, state.Holders[0].Token, holds[0].Token())
	require.NoError(t, b.store.Release(bounded(t), of(queued)))
	server.MustDo("CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, b.take("new").Unlock())
}

// It becomes full while the first who waits in a partition subscribes. The ask that
// follows is refused, and the place is there all the same.
func TestFault29OutOfMemoryBehindAPlace(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory-policy noeviction")
	gate := newGate(server.Client())
	s, err := redis.New(gate, nil)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	h := startProgram(t, server.URL()).take("a")
	r := want("a", 1)
	r.Queue, r.WaitTTL = true, time.Minute
	type answer struct {
		store.Grant
		error
	}
	got := make(chan answer, 1)
	go func() {
		g, err := s.Acquire(t.Context(), r)
		got <- answer{g, err}
	}()
	gate.wait(t)
	server.MustDo("CONFIG", "SET", "maxmemory", "1")
	gate.open()
	a := <-got
	require.NoError(t, a.error)
	require.Equal(t, 1, a.Position)
	require.NoError(t, s.Release(t.Context(), of(r)))
	require.NoError(t, h.Unlock())
}

// The server evicts keys to make room. Check said so; holders are told by their
// next renewal.
func TestFault30Evicted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory-policy allkeys-lru")
	a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
	require.Contains(t, topics(a.store), "eviction")
	h, alone := a.take("a"), a.take("alone")
	began := time.Now()
	server.MustDo("CONFIG", "SET", "maxmemory", "1")
	until(t, "all is evicted", func() bool {
		_ = server.Do("SET", "filler", "x")
		return server.MustDo("DBSIZE") == "0"
	})
	server.MustDo("CONFIG", "SET", "maxmemory", "0")
	evicted := time.Now()
	next := b.take("a")
	require.Greater(t, next.Token(), h.Token())
	told(t, h, began, evicted.Sub(began)+byRenewal)
	told(t, alone, began, evicted.Sub(began)+byRenewal)
	kept(t, lease, next)
	require.NoError(t, next.Unlock())
}

// The server refuses every write for a while, releases too. The holder is out
// at once, here; the release goes on until it is done, also behind the back of
// Unlock when that has returned, so the lock is free long before its lease ends.
func TestFault31WritesRefusedAtRelease(t *testing.T) {
	t.Parallel()
	for code, fault := range map[string]func(t *testing.T, s *redistest.Server) (heal func()){
		"NOREPLICAS": func(_ *testing.T, s *redistest.Server) func() {
			s.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
			return func() { s.MustDo("CONFIG", "SET", "min-replicas-to-write", "0") }
		},
		"MISCONF": misconfigure,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			const long = 15 * time.Second
			server := redistest.Start(t, "enable-protected-configs yes")
			a := startProgram(t, server.URL(), withTTL(long), func(o *dlock.Options) { o.StoreTimeout = 2 * lease })
			hasty := startProgram(t, server.URL(), withTTL(long), func(o *dlock.Options) { o.StoreTimeout = lease / 4 })
			h, late := a.take("a"), hasty.take("late")
			heal := fault(t, server)

			_, err := a.store.Acquire(bounded(t), want("b", 1))
			passes(t, err, code)
			began := time.Now()
			err = late.Unlock()
			require.ErrorIs(t, err, dlock.ErrUnavailable)
			require.Less(t, time.Since(began), lease/4+slack)
			unlocked := make(chan error, 1)
			began = time.Now()
			go func() { unlocked <- h.Unlock() }()
			<-h.Done()
			require.Less(t, time.Since(began), slack)
			require.ErrorIs(t, h.Err(), dlock.ErrNotHeld)
			require.Empty(t, unlocked)

			heal()
			require.NoError(t, <-unlocked)
			began = time.Now()
			for _, name := range []string{"a", "late"} {
				next := startProgram(t, server.URL()).take(name)
				require.NoError(t, next.Unlock())
			}
			require.Less(t, time.Since(began), byAsking+slack, "one was not released, its lease ran out")
		})
	}
}

// misconfigure has a server fail to write its snapshot. It refuses writes then, and even PING,
// with MISCONF. The server needs "enable-protected-configs yes".
func misconfigure(t *testing.T, s *redistest.Server) (heal func()) {
	t.Helper()
	// A snapshot cannot take the place of a directory.
	dir := s.MustDo("CONFIG", "GET", "dir")[len("dir\n"):]
	require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	s.MustDo("CONFIG", "SET", "dbfilename", "taken", "save", "3600 1")
	s.MustDo("BGSAVE")
	until(t, "the snapshot has failed", func() bool { return field(s, "persistence", "rdb_last_bgsave_status") == "err" })
	return func() { s.MustDo("CONFIG", "SET", "stop-writes-on-bgsave-error", "no") }
}
