package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
	"github.com/dlock-go/dlock/store"
)

// TestFaults are those of a link and of one server.
func TestFaults(t *testing.T) {
	t.Parallel()
	e := zookeepertest.Start(t, 1)
	t.Run("Fault115DisconnectedIsNotLost", func(t *testing.T) { disconnected(t, e) })
	t.Run("Fault116SessionExpired", func(t *testing.T) { sessionExpired(t, e) })
	t.Run("Fault116WaiterOfAnExpiredSession", func(t *testing.T) { waiterOfAnExpiredSession(t, e) })
	t.Run("Fault117LostReplyOfACreate", func(t *testing.T) { lostReply(t, e) })
	t.Run("Fault117LostReplyOfAPlace", func(t *testing.T) { lostReplyOfAPlace(t, e) })
	t.Run("Ages", func(t *testing.T) { locktest.TellsAges(t, open(t, e.URL()), "ages") })
	t.Run("RecreatedNode", func(t *testing.T) { recreatedNode(t, e) })
	t.Run("HoldsOfALateRenewal", func(t *testing.T) { holdsOfALateRenewal(t, e) })
	t.Run("NamesOfDeadClients", func(t *testing.T) { namesOfDeadClients(t, e) })
	t.Run("Restart", func(t *testing.T) { restart(t, e) })
	t.Run("RestartWithoutData", func(t *testing.T) { restartWithoutData(t, e) })
}

// proxied is the URL through a proxy, with a session as short as the server allows.
func proxied(addr string) string { return "zk://" + addr + "?session_timeout=1s" }

// wantFree waits until nothing is left below the root. What has expired, such as a
// buried id, goes when it is looked at.
func wantFree(t *testing.T, e *zookeepertest.Ensemble) {
	t.Helper()
	c, s := connect(t, e), open(t, e.URL())
	await(t, "nothing is left", func() bool {
		s.List(t.Context())
		return len(children(t, c, "/dlock/locks")) == 0
	})
}

// disconnected: a cut link within the session takes nothing away, and a waiter
// hears of a grant that was made meanwhile.
func disconnected(t *testing.T, e *zookeepertest.Ensemble) {
	near := open(t, e.URL())
	p := proxytest.Start(t, e.Members[0].Addr)
	far := open(t, "zk://"+p.Addr)
	events := hear(far)

	held, waits, mine := request("cut", 1, false), request("cut", 2, true), request("cut/mine", 3, false)
	hold(t, near, held)
	queue(t, far, waits)
	token := hold(t, far, mine).Token
	await(t, "the waiter watches", func() bool { return e.Members[0].Watches() == 1 })

	p.Blackhole(true)
	release(t, near, held)
	p.Blackhole(false) // cuts what lost something
	wantGranted(t, far, events, waits)

	p.Cut()
	await(t, "the hold is renewed", func() bool {
		err := far.Renew(t.Context(), []store.Ref{refOf(mine)})[0]
		require.NotErrorIs(t, err, store.ErrLost)
		return err == nil
	})
	assert.Equal(t, token, hold(t, far, mine).Token)
	release(t, far, mine)
	release(t, far, waits)
	wantFree(t, e)
}

// sessionExpired: the holder is told by its own clock, before another owner is
// granted. The end of the session frees nothing.
func sessionExpired(t *testing.T, e *zookeepertest.Ensemble) {
	const ttl = 4 * time.Second
	p := proxytest.Start(t, e.Members[0].Addr)
	client := func(url string) *dlock.Client {
		c, err := dlock.New(open(t, url), &dlock.Options{TTL: ttl})
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	h, err := client(proxied(p.Addr)).Mutex("expired").LockContext(t.Context())
	require.NoError(t, err)
	first := h.Deadline()
	await(t, "the lease is renewed", func() bool { return h.Deadline().After(first) })
	p.Blackhole(true)
	cut := time.Now()
	rival, err := client(e.URL()).Mutex("expired").LockContext(t.Context())
	require.NoError(t, err)
	assert.ErrorIs(t, h.Err(), dlock.ErrLost, "the holder when a rival is granted")
	assert.Greater(t, time.Since(cut), ttl/2, "a lease is longer than the session")
	assert.Greater(t, rival.Token(), h.Token())
	p.Blackhole(false)
	require.NoError(t, rival.Unlock())
	assert.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	wantFree(t, e)
}

// waiterOfAnExpiredSession: its place stays, and it is told of its grant.
func waiterOfAnExpiredSession(t *testing.T, e *zookeepertest.Ensemble) {
	near := open(t, e.URL())
	p := proxytest.Start(t, e.Members[0].Addr)
	far := open(t, proxied(p.Addr))
	events := hear(far)
	held, waits := request("session", 1, false), request("session", 2, true)
	hold(t, near, held)
	queue(t, far, waits)
	watches := func() bool { return e.Members[0].Watches() > 0 }
	await(t, "the waiter watches", watches)

	p.Blackhole(true)
	await(t, "the session is over", func() bool { return !watches() })
	p.Blackhole(false)
	await(t, "the waiter watches again", watches)
	await(t, "the place is confirmed", func() bool {
		g, err := far.Acquire(t.Context(), waits)
		return err == nil && g.Position == 1
	})

	release(t, near, held)
	wantGranted(t, far, events, waits)
	release(t, far, waits)
	wantFree(t, e)
}

// during makes a call whose answer is lost, and expects an unknown outcome.
func (p *deafProxy) during(t *testing.T, call func(ctx context.Context) error) {
	t.Helper()
	p.deaf.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := call(ctx)
	require.Error(t, err)
	for _, certain := range []error{store.ErrHeld, store.ErrLost, store.ErrRefused, store.ErrUpgrade} {
		require.False(t, errors.Is(err, certain), "got %v, want an unknown outcome", err)
	}
}

// hears ends the loss of answers.
func (p *deafProxy) hears() {
	p.deaf.Store(false)
	p.Cut()
}

// lostReply: the hold is found by its id, and nothing is left of it.
func lostReply(t *testing.T, e *zookeepertest.Ensemble) {
	near := open(t, e.URL())
	p := startDeafProxy(t, e.Members[0].Addr)
	far := open(t, proxied(p.Addr))
	hold(t, far, request("warm", 9, false)) // knows the clock
	release(t, far, request("warm", 9, false))

	req := request("reply", 1, false)
	p.during(t, func(ctx context.Context) error { _, err := far.Acquire(ctx, req); return err })
	var token uint64
	await(t, "the request is applied", func() bool {
		state, err := near.Inspect(t.Context(), "reply")
		if err == nil && len(state.Holders) == 1 {
			token = state.Holders[0].Token
		}
		return token > 0
	})
	p.hears()
	await(t, "the hold is found", func() bool {
		g, err := far.Acquire(t.Context(), req)
		return err == nil && g.Held && g.Token == token && g.Holds == 1
	})
	p.during(t, func(ctx context.Context) error { return far.Release(ctx, refOf(req)) })
	p.hears()
	await(t, "the release is confirmed", func() bool { return errors.Is(far.Release(t.Context(), refOf(req)), store.ErrLost) })
	wantFree(t, e)
}

// lostReplyOfAPlace: there is one place, and no node of a waiter is left.
func lostReplyOfAPlace(t *testing.T, e *zookeepertest.Ensemble) {
	near := open(t, e.URL())
	p := startDeafProxy(t, e.Members[0].Addr)
	far := open(t, "zk://"+p.Addr)
	events := hear(far)
	held, waits := request("place", 1, false), request("place", 2, true)
	hold(t, near, held)
	for range 20 { // it knows the record then, and that it is not busy
		_, err := far.Inspect(t.Context(), "place")
		require.NoError(t, err)
	}
	p.during(t, func(ctx context.Context) error { _, err := far.Acquire(ctx, waits); return err })
	await(t, "the request is applied", func() bool {
		state, err := near.Inspect(t.Context(), "place")
		return err == nil && len(state.Queue) == 1
	})
	p.hears()
	await(t, "the place is confirmed", func() bool {
		g, err := far.Acquire(t.Context(), waits)
		return err == nil && g.Position == 1
	})
	c := connect(t, e)
	assert.Len(t, children(t, c, pathOf("place")), 2, "the room and one place")
	release(t, near, held)
	wantGranted(t, far, events, waits)
	release(t, far, waits)
	wantFree(t, e)
}

// holdsOfALateRenewal: a renewal whose context ends while it reads goes on for a while. It
// does not look at the holds any more, which are its caller's again: the race detector
// sees that. And it writes nothing.
func holdsOfALateRenewal(t *testing.T, e *zookeepertest.Ensemble) {
	near := open(t, e.URL())
	p := startDeafProxy(t, e.Members[0].Addr)
	far := open(t, proxied(p.Addr))
	held := request("late-holds", 1, false)
	hold(t, near, held)
	c := connect(t, e)
	_, before, err := c.Get(pathOf("late-holds"))
	require.NoError(t, err)

	p.gate.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	holds := []store.Ref{refOf(held)}
	err = far.Renew(ctx, holds)[0]
	p.gate.Unlock()
	holds[0] = store.Ref{}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = far.Inspect(t.Context(), held.Name) // after the renewal
	require.NoError(t, err)
	_, stat, err := c.Get(pathOf("late-holds"))
	require.NoError(t, err)
	assert.Equal(t, before.Version, stat.Version, "the renewal has written")
	release(t, near, held)
	wantFree(t, e)
}

// recreatedNode: a node that was deleted and made again has the version that the
// old one had, and is another one nevertheless.
func recreatedNode(t *testing.T, e *zookeepertest.Ensemble) {
	a, b := open(t, e.URL()), open(t, e.URL())
	first, second := request("again", 1, false), request("again", 2, false)
	hold(t, a, first)
	n, err := b.Break(t.Context(), "again")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	hold(t, b, second)
	assert.ErrorIs(t, a.Renew(t.Context(), []store.Ref{refOf(first)})[0], store.ErrLost)
	assert.NoError(t, b.Renew(t.Context(), []store.Ref{refOf(second)})[0])
	release(t, b, second)
	wantFree(t, e)
}

// namesOfDeadClients: their nodes go when other handles make new names.
func namesOfDeadClients(t *testing.T, e *zookeepertest.Ensemble) {
	dead, s := opened(t, e.URL()), open(t, e.URL())
	for i := range 20 {
		req := request(fmt.Sprint("dead", i), 1, false)
		req.TTL = dead.MinTTL()
		hold(t, dead, req)
	}
	dead.Close()
	c := connect(t, e)
	i := 0
	await(t, "the nodes are gone", func() bool {
		req := request(fmt.Sprint("new", i), 2, false)
		i++
		hold(t, s, req)
		release(t, s, req)
		return len(children(t, c, "/dlock/locks")) == 0
	})
	assert.GreaterOrEqual(t, i, 64, "a sweep comes after as many new names")
}

// restart: holds and places outlast a crash of the server.
func restart(t *testing.T, e *zookeepertest.Ensemble) {
	s := open(t, e.URL())
	events := hear(s)
	held, waits := request("restart", 1, false), request("restart", 2, true)
	held.TTL, waits.WaitTTL = time.Minute, time.Minute // longer than a server takes to start
	hold(t, s, held)
	queue(t, s, waits)
	e.Members[0].Kill()
	e.Members[0].Launch()
	await(t, "the hold is renewed", func() bool {
		err := s.Renew(t.Context(), []store.Ref{refOf(held)})[0]
		require.NotErrorIs(t, err, store.ErrLost)
		return err == nil
	})
	await(t, "the release is confirmed", func() bool {
		err := s.Release(t.Context(), refOf(held))
		return err == nil || errors.Is(err, store.ErrLost)
	})
	wantGranted(t, s, events, waits)
	release(t, s, waits)
	wantFree(t, e)
}

// restartWithoutData: no renewal is confirmed. The server refuses clients that have
// seen more than it knows, so only a new handle goes on.
func restartWithoutData(t *testing.T, e *zookeepertest.Ensemble) {
	s := open(t, e.URL())
	held := request("wiped", 1, false)
	hold(t, s, held)
	e.Members[0].Kill()
	e.Members[0].Wipe()
	e.Members[0].Launch()
	again := open(t, e.URL())
	hold(t, again, request("wiped", 2, false))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	assert.Error(t, s.Renew(ctx, []store.Ref{refOf(held)})[0])
	release(t, again, request("wiped", 2, false))
	wantFree(t, e)
}
