package redis_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// The server restarts without what it knew. The holder is told by its next
// renewal, the waiter comes in by asking, tokens grow, and what the old holder
// does to clear up leaves the new hold alone.
func TestFault15RestartWithLoss(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
	h, alone := a.take("a"), a.take("alone")
	w := b.queue("a")

	server.Restart()
	began := time.Now()
	next := w.comes(began, byAsking)
	require.Greater(t, next.Token(), h.Token())
	told(t, h, began, byRenewal)
	told(t, alone, began, byRenewal)
	again := b.take("alone")
	require.Greater(t, again.Token(), alone.Token())
	kept(t, lease, next, again)
	require.NoError(t, next.Unlock())
	require.NoError(t, again.Unlock())
}

// The machine loses power: the end of the append-only file, which was not synced
// yet, is gone, in the middle of a command. Only what was in it is lost.
func TestFault16TailOfTheLogLost(t *testing.T) {
	t.Parallel()
	// With everysec the server may write a command down up to 2 s later, when a sync takes long.
	server := redistest.Start(t, "appendonly yes", "appendfsync no", "aof-load-truncated yes")
	dir := server.MustDo("CONFIG", "GET", "dir")[len("dir\n"):]
	logs, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.incr.aof"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	size := func() int64 {
		info, err := os.Stat(logs[0])
		require.NoError(t, err)
		return info.Size()
	}

	// A program that does not renew while the test looks at the size of the file.
	a := startProgram(t, server.URL(), withTTL(5*lease))
	old := a.take("gone")
	require.NoError(t, old.Unlock())
	safe := a.take("safe")
	synced := size()
	gone := a.take("gone")
	require.Greater(t, size(), synced+10)

	began := time.Now()
	server.Kill()
	require.NoError(t, os.Truncate(logs[0], synced+10))
	server.Restart()
	told(t, gone, began, 5*lease/3+slack)
	require.NoError(t, safe.Err())
	next := startProgram(t, server.URL()).take("gone")
	require.Greater(t, next.Token(), gone.Token())
	require.NoError(t, next.Unlock())
	require.NoError(t, safe.Unlock())
}

// FLUSHALL: every holder is told by its next renewal, and nobody waits for a
// wake-up that nobody will send.
func TestFault17Flushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
	var holds []*dlock.Hold
	var waits []*turn
	for i := range 100 {
		holds = append(holds, a.take(fmt.Sprint(i)))
	}
	for i := range 10 {
		waits = append(waits, b.queue(fmt.Sprint(i)))
	}
	began := time.Now()
	server.MustDo("FLUSHALL")
	for i, w := range waits {
		next := w.comes(began, byAsking)
		require.Greater(t, next.Token(), holds[i].Token())
		require.NoError(t, next.Unlock())
	}
	for _, h := range holds {
		told(t, h, began, byRenewal)
	}
}

// An operator deletes one key of a lock. Its holder is told, or goes on if the
// lock was not damaged; in any case the waiter comes in after that, and the
// lock works.
func TestFault17Deleted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	forms := map[string]func(a, b *program, name string) (*dlock.Hold, *turn){
		"with a waiter": func(a, b *program, name string) (*dlock.Hold, *turn) { return a.take(name), b.queue(name) },
		"indexed":       func(a, b *program, name string) (*dlock.Hold, *turn) { return a.take(name), b.queue(name) },
		"alone":         func(a, _ *program, name string) (*dlock.Hold, *turn) { return a.take(name), nil },
	}
	for form, begin := range forms {
		for i := range redis.KeysOf("a") {
			t.Run(fmt.Sprint(form, ", key ", i), func(t *testing.T) {
				t.Parallel()
				name := fmt.Sprint(form, i)
				key := redis.KeysOf(name)[i]
				listed := 64
				if form == "indexed" {
					listed = 0
				}
				a, b := startProgramOn(t, openListed(t, server.URL(), listed)), startProgramOn(t, openListed(t, server.URL(), listed))
				h, w := begin(a, b, name)
				if tell(t, server, "DEL", key) == "0" {
					require.NotEqual(t, "indexed", form, "%s is not there", key)
					require.Equal(t, 2, i, "%s is not there", key)
					require.NoError(t, h.Unlock())
					return
				}
				began := time.Now()
				select {
				case <-h.Done():
					told(t, h, began, byRenewal)
				case <-time.After(byRenewal):
					require.NoError(t, h.Err())
					if w != nil {
						w.waits()
					}
					began = time.Now()
					require.NoError(t, h.Unlock())
				}
				if w == nil {
					w = b.call(name)
				}
				next := w.comes(began, byAsking)
				require.Greater(t, next.Token(), h.Token())
				third := a.queue(name)
				kept(t, lease, next)
				third.waits()
				began = time.Now()
				require.NoError(t, next.Unlock())
				require.Greater(t, third.comes(began, byAsking).Token(), next.Token())
			})
		}
	}
}

// The holder unlocks before its next renewal would have told it: the release
// finds nothing, which is a loss and not success, and takes nothing from others.
func TestFault17UnlockFindsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := startProgram(t, server.URL(), withTTL(10*lease)), startProgram(t, server.URL())
	h := a.take("a")
	server.MustDo("FLUSHALL")
	next := b.take("a")
	require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	kept(t, lease, next)
	require.NoError(t, next.Unlock())
}

// behind makes a replica one that gets nothing any more, without either of them
// noticing that the other has gone: what the master takes from now on is lost
// when the replica is promoted.
func behind(t *testing.T, master, replica *redistest.Server) {
	t.Helper()
	replica.MustDo("CONFIG", "SET", "masterauth", "not the password")
	master.MustDo("CLIENT", "KILL", "TYPE", "replica")
	until(t, "the replica is cut off", func() bool {
		return field(master, "replication", "connected_slaves") == "0"
	})
}

// The sentinels promote a replica that is behind. What it has not got is lost:
// its holder is told and its waiter comes in, and tokens grow all the same. A
// hold that it has goes on.
func TestFault18FailoverToAStaleReplica(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t, 1)
	a, b := startProgram(t, servers.URL(), withTTL(3*lease)), startProgram(t, servers.URL(), withTTL(3*lease))
	safe := a.take("safe")
	old := a.take("lost")
	require.NoError(t, old.Unlock())
	require.Equal(t, "1", servers.Master().MustDo("WAIT", "1", "5000"))
	waitsForSafe := b.queue("safe")
	behind(t, servers.Nodes[0], servers.Nodes[1])
	lost := a.take("lost")
	waitsForLost := b.queue("lost")
	promoted := servers.Failover()
	require.Same(t, servers.Nodes[1], promoted)
	began := time.Now()
	next := waitsForLost.comes(began, lease+2*slack+2*time.Second) // the client may need a look at the sentinels, every 2 s
	require.Greater(t, next.Token(), lost.Token())
	told(t, lost, began, lease+2*slack+2*time.Second)
	require.NoError(t, safe.Err())
	waitsForSafe.waits()
	began = time.Now()
	require.NoError(t, safe.Unlock())
	require.Greater(t, waitsForSafe.comes(began, lease+slack).Token(), safe.Token())
}

// The master dies with a replica that has everything. The hold goes on if the
// sentinels are quicker than its lease, and the waiter gets the lock when it is
// over, not before.
func TestFault18MasterKilled(t *testing.T) {
	t.Parallel()
	const long = 12 * time.Second
	servers := redistest.StartSentinel(t, 1)
	a, b := startProgram(t, servers.URL(), withTTL(long)), startProgram(t, servers.URL(), withTTL(long))
	h := a.take("a")
	w := b.queue("a")
	master := servers.Master()
	require.Equal(t, "1", master.MustDo("WAIT", "1", "5000"))
	killed := time.Now()
	master.Kill()
	until(t, "the replica is promoted", func() bool { return servers.Master() != master })
	took := time.Since(killed)
	renewed := func() bool {
		state, err := b.store.Inspect(bounded(t), "a")
		return err == nil && len(state.Holders) == 1 && state.Holders[0].Token == h.Token() &&
			state.Holders[0].Remaining > long-took
	}
	until(t, "the hold is renewed at the new master, or lost", func() bool { return renewed() || h.Err() != nil })
	if took < long/2 {
		require.NoError(t, h.Err(), "the failover took only %v", took)
	}
	began := time.Now()
	if h.Err() == nil {
		w.waits()
		require.NoError(t, h.Unlock())
	} else {
		told(t, h, began, slack)
	}
	require.Greater(t, w.comes(began, long/3+slack).Token(), h.Token())
}

// The old master has clients when another has been promoted. With
// min-replicas-to-write it refuses them, so they do not lock beside the others,
// and no call hangs. Without it Check says what will happen.
func TestFault19OldMasterKeepsAccepting(t *testing.T) {
	t.Parallel()
	old := redistest.Start(t)
	promoted := startReplica(t, old)
	left := startProgram(t, old.URL())
	require.Contains(t, topics(left.store), "replicas")
	old.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	require.NotContains(t, topics(left.store), "replicas")

	h := left.take("a")
	require.Equal(t, "1", old.MustDo("WAIT", "1", "5000"))
	cut, ended := time.Now(), locktest.Ended(h)
	promoted.MustDo("REPLICAOF", "NO", "ONE")
	until(t, "the old master misses its replica", func() bool {
		return field(old, "replication", "min_slaves_good_slaves") == "0"
	})
	right := startProgram(t, promoted.URL())

	began := time.Now()
	_, err := left.store.Acquire(bounded(t), want("b", 1))
	require.ErrorContains(t, err, "NOREPLICAS")
	require.NotErrorIs(t, err, store.ErrHeld)
	require.NotErrorIs(t, err, store.ErrRefused, "it may pass")
	require.Less(t, time.Since(began), slack)
	_, err = left.Mutex("b").TryLockContext(bounded(t))
	require.ErrorIs(t, err, dlock.ErrUnavailable)
	require.Less(t, time.Since(began), lease/3+2*slack)
	w := left.call("b")
	require.ErrorIs(t, w.fails(time.Now(), lease+slack), dlock.ErrUnavailable)
	until(t, "Check says that nothing can be locked", func() bool {
		return slices.Contains(topics(left.store), "unreachable")
	})

	other := right.take("b")
	next := right.call("a")
	require.LessOrEqual(t, (<-ended).Sub(cut), lease+slack, "the holder was told late")
	require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	require.Greater(t, next.comes(cut, lease+slack+byAsking).Token(), h.Token())
	require.NoError(t, other.Unlock())

	// A link that comes back heals it.
	old.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
	require.NoError(t, left.take("b").Unlock())
}

// The server's clock jumps forward past the lease. That ends leases, which
// nobody can help; the holder is told by its next renewal, and tokens grow. When
// the clock is set right again they still do.
func TestFault61ServerClockJumpsForward(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
	h, alone := a.take("a"), a.take("alone")
	w := b.queue("a")
	began := time.Now()
	clock.Jump(time.Minute)
	next := w.comes(began, byAsking)
	require.Greater(t, next.Token(), h.Token())
	told(t, h, began, byRenewal)
	told(t, alone, began, byRenewal)
	kept(t, lease, next)

	token := next.Token()
	require.NoError(t, next.Unlock())
	for _, d := range []time.Duration{0, time.Minute, -time.Minute, 0} {
		clock.Jump(d)
		for range 3 {
			h := b.take("a")
			require.Greater(t, h.Token(), token, "clock at %v", d)
			token = h.Token()
			require.NoError(t, h.Unlock())
		}
	}
}

// The server's clock jumps back, so that leases last an hour longer. A live
// holder's renewal makes its lease short again; a dead one's stays long, and
// waiters are limited by their contexts, until somebody breaks it. Tokens grow
// though the clock does not.
func TestFault62ServerClockJumpsBack(t *testing.T) {
	t.Parallel()
	server, clock := redistest.StartWithClock(t)
	a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
	h, alone := a.take("a"), a.take("alone")
	w := b.queue("a")
	dead, err := b.store.Acquire(bounded(t), want("dead", 1))
	require.NoError(t, err)
	remaining := func(name string) time.Duration {
		state, err := b.store.Inspect(bounded(t), name)
		require.NoError(t, err)
		require.Len(t, state.Holders, 1)
		return state.Holders[0].Remaining
	}

	clock.Jump(-time.Hour)
	require.Greater(t, remaining("dead"), 59*time.Minute, "the fault has not bitten")
	until(t, "the renewal has shortened the lease", func() bool { return remaining("a") <= lease && remaining("alone") <= lease })
	kept(t, 2*lease, h, alone)
	w.waits()
	began := time.Now()
	require.NoError(t, h.Unlock())
	next := w.comes(began, slack+byAsking)
	require.Greater(t, next.Token(), h.Token())
	require.NoError(t, next.Unlock())

	ctx, cancel := context.WithTimeout(context.Background(), lease)
	defer cancel()
	began = time.Now()
	_, err = b.Mutex("dead").LockContext(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), lease+slack)
	n, err := b.store.Break(bounded(t), "dead")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	again := b.take("dead")
	require.Greater(t, again.Token(), dead.Token)
	require.NoError(t, again.Unlock())

	clock.Jump(0)
	began = time.Now()
	told(t, alone, began, byRenewal) // what was renewed in the past is over now
	for name, token := range map[string]uint64{"a": next.Token(), "alone": alone.Token(), "dead": again.Token()} {
		last := b.take(name)
		require.Greater(t, last.Token(), token)
		kept(t, lease/2, last)
		require.NoError(t, last.Unlock())
	}
}
