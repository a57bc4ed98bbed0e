package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// nowhere is a port that nothing listens at. One that was free a moment ago may be another
// test's by now.
const nowhere = "1"

// passes asserts that err is of the kind after which the core asks again.
func passes(t *testing.T, err error, code string) {
	t.Helper()
	require.ErrorContains(t, err, code)
	for _, certain := range []error{store.ErrHeld, store.ErrLost, store.ErrRefused, store.ErrForeignKey, store.ErrUpgrade, store.ErrClosed} {
		require.NotErrorIs(t, err, certain)
	}
}

// waitsOut asserts that Acquire keeps asking until its context ends, and says
// then what the server said, unless it was not quick enough to say anything.
func waitsOut(t *testing.T, s *redis.Store, name, code string) {
	t.Helper()
	for range 10 {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), lease/8)
		_, err := s.Acquire(ctx, want(name, 1))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(began), lease/8)
		if strings.Contains(err.Error(), code) {
			passes(t, err, code)
			return
		}
	}
	t.Fatal("the server does not say", code)
}

// The master becomes a replica: it refuses all, which never looks like "held by
// others" or "lost". If it is a master again in time, holds go on and waiters
// and releases have waited it out; if not, holders are told by their own clock.
func TestFault24ReadOnlyReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a, b := startProgram(t, server.URL(), withTTL(2*lease)), startProgram(t, server.URL(), withTTL(2*lease))
	h, other := a.take("a"), a.take("other")
	w := b.queue("a")

	server.MustDo("REPLICAOF", "127.0.0.1", nowhere)
	_, err := b.store.Acquire(bounded(t), want("free", 1))
	passes(t, err, "READONLY")
	_, err = b.store.Acquire(bounded(t), want("a", 1))
	passes(t, err, "READONLY")
	passes(t, b.store.Renew(bounded(t), []store.Ref{of(want("a", 1))})[0], "READONLY")
	passes(t, b.store.Release(bounded(t), of(want("a", 1))), "READONLY")
	free := b.call("free")
	unlocked := make(chan error, 1)
	go func() { unlocked <- other.Unlock() }()
	kept(t, lease/4, h)
	w.waits()
	free.waits()
	began := time.Now()
	server.MustDo("REPLICAOF", "NO", "ONE")
	require.NoError(t, <-unlocked)
	require.NoError(t, free.comes(began, lease+slack).Unlock())
	kept(t, 2*lease, h)
	w.waits()
	began = time.Now()
	require.NoError(t, h.Unlock())
	h = w.comes(began, byAsking)

	began = time.Now()
	server.MustDo("REPLICAOF", "127.0.0.1", nowhere)
	require.ErrorIs(t, a.call("a").fails(began, 2*lease+slack), dlock.ErrUnavailable)
	told(t, h, began, 2*lease+slack)
	server.MustDo("REPLICAOF", "NO", "ONE")
	require.Greater(t, a.take("a").Token(), h.Token())
}

// The server reads its data from disk. Calls wait it out inside their time, and
// a hold whose renewals came in between goes on.
func TestFault25Loading(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "loading-process-events-interval-bytes 1024", "rdbcompression no")
	a := startProgram(t, server.URL(), withTTL(3*lease))
	h, early := a.take("a"), a.take("early")
	for i := range 30 {
		server.MustDo("SET", fmt.Sprint("ballast ", i), strings.Repeat("x", 4096))
	}
	server.MustDo("CONFIG", "SET", "key-load-delay", "100000") // µs for each key
	loaded := make(chan error, 1)
	other, reload := startClient(t, server.Addr), startClient(t, server.Addr)
	go func() { loaded <- reload("DEBUG", "RELOAD") }()
	until(t, "it is loading", func() bool {
		return strings.HasPrefix(fmt.Sprint(other("GET", "a")), "LOADING")
	})

	ctx, cancel := context.WithTimeout(context.Background(), lease/8)
	defer cancel()
	_, err := a.store.Acquire(ctx, want("short of time", 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	w := a.call("b")
	_, err = a.store.Acquire(bounded(t), want("c", 2))
	require.NoError(t, err)
	require.NoError(t, <-loaded)
	require.NoError(t, a.store.Release(bounded(t), of(want("c", 2))))
	require.NoError(t, early.Unlock())
	w.comes(time.Now(), slack)
	kept(t, 3*lease, h)
	require.NoError(t, h.Unlock())
}

// startClient returns a function that sends a command over a connection of its
// own and returns the error of the reply.
func startClient(t *testing.T, addr string) func(args ...string) error {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		AlwaysPipelining: true, PipelineMultiplex: -1, ClientSetInfo: rueidis.DisableClientSetInfo,
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return func(args ...string) error {
		return c.Do(bounded(t), c.B().Arbitrary(args...).Build()).Error()
	}
}

// A replica that has lost its master and must not serve old data: a script that
// would write says MASTERDOWN there if the replica is writable.
func TestFault25MasterDown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "replica-serve-stale-data no", "replica-read-only no")
	a := startProgram(t, server.URL(), withTTL(2*lease))
	h := a.take("a")
	server.MustDo("REPLICAOF", "127.0.0.1", nowhere)
	waitsOut(t, a.store, "short of time", "MASTERDOWN")
	w := a.call("b")
	granted := make(chan error, 1)
	go func() {
		_, err := a.store.Acquire(bounded(t), want("c", 2))
		granted <- err
	}()
	kept(t, lease/2, h)
	began := time.Now()
	server.MustDo("REPLICAOF", "NO", "ONE")
	require.NoError(t, <-granted)
	w.comes(began, lease+slack)
	kept(t, lease, h)
	require.NoError(t, h.Unlock())
}

// Nobody serves a slot of the cluster for a while. Calls wait it out, and the
// hold that was there goes on.
func TestFault25ClusterDown(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t, false)
	a := startProgram(t, servers.URL(), withTTL(2*lease))
	name := "a"
	slot := redis.Slot(redis.LockKey(name))
	number := strconv.Itoa(slot)
	h := a.take(name)
	owner := servers.Master(slot)
	owner.MustDo("CLUSTER", "DELSLOTS", number)
	waitsOut(t, a.store, relative(name), "CLUSTERDOWN")
	granted := make(chan error, 1)
	go func() {
		_, err := a.store.Acquire(bounded(t), want(relative(name), 2))
		granted <- err
	}()
	kept(t, lease/2, h)
	select {
	case err := <-granted:
		t.Fatal("it did not wait: ", err)
	default:
	}
	owner.MustDo("CLUSTER", "ADDSLOTS", number)
	require.NoError(t, <-granted)
	kept(t, 2*lease, h)
	require.NoError(t, h.Unlock())
}

// A slot moves to another master one key at a time, with longer pauses than the
// lease, so that the keys of a lock are on two nodes for several leases. Holds
// are renewed all the while, alone or with a queue behind them. What needs all
// keys at once waits until they are together.
func TestFault26SlotMovesWhileHeld(t *testing.T) {
	t.Parallel()
	for form, c := range map[string]struct{ listed, keys int }{"listed": {64, 3}, "indexed": {0, 4}} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			slotMovesWhileHeld(t, c.listed, c.keys)
		})
	}
}

func slotMovesWhileHeld(t *testing.T, listed, keys int) {
	const short = 1500 * time.Millisecond
	servers := redistest.StartCluster(t, false)
	a := startProgramOn(t, openListed(t, servers.URL(), listed), withTTL(short))
	b := startProgramOn(t, openListed(t, servers.URL(), listed), withTTL(short))
	alone := a.take("a")
	name := relative("a")
	withQueue := a.take(name)
	released := want(relative(name+"!"), 1)
	released.TTL = time.Minute
	_, err := a.store.Acquire(bounded(t), released)
	require.NoError(t, err)
	b.queue(name) // gives up after a lease without an answer

	slot := redis.Slot(redis.LockKey("a"))
	from := servers.Master(slot)
	to := servers.Nodes[(slices.Index(servers.Nodes, from)+1)%3]
	servers.BeginMove(slot, to)
	outcomes := make(chan error, 2)
	moved := 0
	for ; ; moved++ {
		if moved == 2 {
			go func() {
				_, err := b.store.Acquire(bounded(t), want(relative("free"+name), 2))
				outcomes <- err
			}()
			go func() { outcomes <- a.store.Release(bounded(t), of(released)) }()
		}
		kept(t, short+short/10, alone, withQueue)
		if servers.MoveKeys(slot, to, 1) == 0 {
			break
		}
	}
	require.GreaterOrEqual(t, moved, keys)
	servers.EndMove(slot, to)
	ended := time.Now()
	require.NoError(t, <-outcomes)
	require.NoError(t, <-outcomes)
	kept(t, 2*short, alone, withQueue)
	require.Less(t, time.Since(ended), 2*short+2*slack, "the calls did not come through when the keys were together")

	// The locks work at the new master.
	for _, h := range []*dlock.Hold{alone, withQueue} {
		w := b.queue(h.Name())
		kept(t, short, h)
		began := time.Now()
		require.NoError(t, h.Unlock())
		next := w.comes(began, byAsking)
		require.Greater(t, next.Token(), h.Token())
		require.NoError(t, next.Unlock())
		require.NoError(t, a.take(h.Name()).Unlock())
	}
}

// Scripts are flushed before each kind of call, which does not notice.
func TestFault27ScriptsFlushed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := startProgram(t, server.URL())
	flushed := func(what string, call func() error) {
		t.Helper()
		server.MustDo("SCRIPT", "FLUSH")
		require.NoError(t, call(), what)
	}
	var refs []store.Ref
	for i := range 200 {
		r := long(want(fmt.Sprint("many ", i), i))
		_, err := p.store.Acquire(bounded(t), r)
		require.NoError(t, err)
		refs = append(refs, of(r))
	}
	for range 2 {
		flushed("Acquire", func() error { _, err := p.store.Acquire(bounded(t), long(want("a", 1))); return err })
		flushed("Acquire that waits", func() error {
			r := long(want("a", 2))
			r.Queue = true
			_, err := p.store.Acquire(bounded(t), r)
			return err
		})
		flushed("Inspect", func() error { _, err := p.store.Inspect(bounded(t), "a"); return err })
		flushed("List", func() error { _, err := p.store.List(bounded(t)); return err })
		flushed("Release", func() error { return p.store.Release(bounded(t), of(long(want("a", 1)))) })
		flushed("Renew", func() error {
			for _, err := range p.store.Renew(bounded(t), append(refs, of(long(want("a", 2))))) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		flushed("Break", func() error { _, err := p.store.Break(bounded(t), "a"); return err })
	}
	// And all the time, under a hold.
	h := p.take("b")
	for over := time.Now().Add(2 * lease); time.Now().Before(over); {
		server.MustDo("SCRIPT", "FLUSH")
		kept(t, 5*time.Millisecond, h)
	}
	require.NoError(t, h.Unlock())
}

// A script that has written does not end. The server answers BUSY and cannot be
// told to end it. The holder is told by its own clock, waiters get an error and
// do not hang; after the kill that is left, tokens grow.
func TestFault28BusyForEver(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(server *redistest.Server, other func(...string) error){
		"SHUTDOWN": func(server *redistest.Server, other func(...string) error) {
			_ = other("SHUTDOWN", "NOSAVE") // answered by the end of the connection
			until(t, "it has shut down", func() bool { return !server.Running() })
		},
		"SIGKILL": func(server *redistest.Server, _ func(...string) error) { server.Kill() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "busy-reply-threshold 50")
			a, b := startProgram(t, server.URL()), startProgram(t, server.URL())
			h := a.take("a")
			w := b.queue("a")
			mad, other := startClient(t, server.Addr), startClient(t, server.Addr)
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- mad("EVAL", "redis.call('SET', 'x', '1') while true do end", "0") }()
			until(t, "it is busy", func() bool { return strings.HasPrefix(fmt.Sprint(other("GET", "a")), "BUSY") })
			require.ErrorContains(t, other("SCRIPT", "KILL"), "UNKILLABLE")
			_, err := b.store.Acquire(bounded(t), want("b", 1))
			passes(t, err, "BUSY")

			told(t, h, began, lease+slack)
			require.ErrorIs(t, w.fails(began, 2*lease+slack), dlock.ErrUnavailable)
			end(server, other)
			require.Error(t, <-ended)
			server.Restart()
			next := b.take("a")
			require.Greater(t, next.Token(), h.Token())
			require.NoError(t, next.Unlock())
		})
	}
}

// A subscription is ended while the server is busy: it refuses to, and that is
// all that happens.
func TestFault28SubscriptionEndsWhileBusy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "busy-reply-threshold 50")
	a := startProgram(t, server.URL())
	a.take("a")
	s := open(t, server.URL())
	r := want("a", 1)
	r.Queue = true
	_, err := s.Acquire(bounded(t), r)
	require.NoError(t, err)
	mad, other := startClient(t, server.Addr), startClient(t, server.Addr)
	ended := make(chan error, 1)
	go func() { ended <- mad("EVAL", "redis.call('SET', 'x', '1') while true do end", "0") }()
	until(t, "it is busy", func() bool { return strings.HasPrefix(fmt.Sprint(other("GET", "a")), "BUSY") })
	began := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(began), time.Second+slack)
	server.Kill()
	require.Error(t, <-ended)
}
