package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// patient waiters ask by themselves only every 2 s: whoever gets in sooner was
// told to.
var patient = dlock.Options{TTL: 6 * time.Second, WaitTTL: 6 * time.Second}

// channels lists the wake-up channels that somebody listens to.
func channels(server *redistest.Server) []string {
	return strings.Fields(server.MustDo("PUBSUB", "SHARDCHANNELS"))
}

// The connection that brings events is killed and the lock released at that
// moment, so that the event is lost. Each time the waiter gets in when the
// connection is back.
func TestFault44SubscriberKilled(t *testing.T) {
	t.Parallel()
	const rounds = 20
	t.Run("one client", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		holder, c := s.near(patient), s.near(patient)
		for range rounds {
			s.killSubscriber(holder, c)
		}
		s.over("a", patient)
	})
	t.Run("a new client each time", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		holder := s.near(patient)
		for range 5 {
			s.killSubscriber(holder, s.near(patient))
		}
		s.over("a", patient)
	})
}

// killSubscriber is one such round.
func (s *site) killSubscriber(holder, c *dlock.Client) {
	s.t.Helper()
	h := s.lock(holder, "a")
	waits := locktest.Begin(s.t, c, "a")
	s.queued("a", 1)
	locktest.Poll(s.t, "somebody listens", locktest.Patience, func() bool { return len(channels(s.server)) > 0 })
	if killed := s.server.MustDo("CLIENT", "KILL", "TYPE", "pubsub"); killed == "0" {
		s.t.Fatal("no connection was killed: the fault has not bitten")
	}
	began := time.Now()
	locktest.Unlock(s.t, h)
	next, at := waits.Granted(locktest.Soon)
	if testing.Verbose() {
		s.t.Logf("in after %v", at.Sub(began))
	}
	s.holds(next)
	locktest.Unlock(s.t, next)
}

// The lock is released after the server has queued the request and before the
// wake-up channel is subscribed to: nobody hears the event.
func TestFault45ReleaseBeforeSubscribed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.server.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	t.Run("store", func(t *testing.T) {
		gate := newGate(client)
		waiter := newStore(t, gate)
		first, second := locktest.Request("a", 1), locktest.Request("a", 2)
		if _, err := s.direct.Acquire(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		answer := make(chan store.Grant, 1)
		go func() {
			g, err := waiter.Acquire(t.Context(), second)
			if err != nil {
				t.Error(err)
			}
			answer <- g
		}()
		gate.wait(t)
		locktest.Release(t, s.direct, first)
		gate.open()
		if g := <-answer; !g.Held {
			t.Errorf("the answer is %+v, want held", g)
		}
		if err := waiter.Release(t.Context(), locktest.RefTo(second)); err != nil {
			t.Error(err)
		}
	})
	t.Run("client", func(t *testing.T) {
		holder := s.near(patient)
		for range 5 {
			gate := newGate(client)
			c := locktest.NewClient(t, newStore(t, gate), patient)
			h := s.lock(holder, "a")
			waits := locktest.Begin(t, c, "a")
			gate.wait(t)
			locktest.Unlock(t, h)
			if n := len(s.state("a").Holders); n != 1 {
				t.Fatalf("%d holders: the fault has not bitten", n)
			}
			waits.Waits()
			gate.open()
			next, _ := waits.Granted(locktest.Soon)
			s.holds(next)
			locktest.Unlock(t, next)
		}
	})
	s.over("a", patient)
}

// A subscription hangs. A request that was queued is answered all the same, long before
// its place ends.
func TestSubscriptionHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	held, waits := locktest.LongRequest("a", 1, false), locktest.LongRequest("a", 2, true)
	waits.WaitTTL = 3 * locktest.Late
	if _, err := s.direct.Acquire(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	gate := newGate(s.server.Client())
	waiter := newStore(t, gate)
	ctx, cancel := context.WithTimeout(t.Context(), 3*waits.WaitTTL)
	defer cancel()
	began := time.Now()
	g, err := waiter.Acquire(ctx, waits)
	if took := time.Since(began); err != nil || g.Held || took > waits.WaitTTL*2/3 {
		t.Errorf("answered %+v, %v after %v, want queued within %v", g, err, took, waits.WaitTTL*2/3)
	}
	gate.wait(t)
}

// gate is a client whose subscriptions wait until it is open.
type gate struct {
	rueidis.Client
	subscribing chan struct{} // closed when the first one waits
	begun       func()
	isOpen      chan struct{}
	open        func()
}

func newGate(c rueidis.Client) *gate {
	g := &gate{Client: c, subscribing: make(chan struct{}), isOpen: make(chan struct{})}
	g.begun = sync.OnceFunc(func() { close(g.subscribing) })
	g.open = sync.OnceFunc(func() { close(g.isOpen) })
	return g
}

// wait waits until somebody is about to subscribe.
func (g *gate) wait(t *testing.T) {
	t.Helper()
	select {
	case <-g.subscribing:
	case <-time.After(locktest.Patience):
		t.Fatal("nobody subscribes")
	}
}

func (g *gate) Dedicate() (rueidis.DedicatedClient, func()) {
	c, cancel := g.Client.Dedicate()
	return gated{c, g}, cancel
}

// gated is the connection that the subscriptions of a gate are on.
type gated struct {
	rueidis.DedicatedClient
	g *gate
}

func (c gated) Receive(ctx context.Context, subscribe rueidis.Completed, f func(rueidis.PubSubMessage)) error {
	c.g.begun()
	select {
	case <-c.g.isOpen:
	case <-ctx.Done():
		return ctx.Err()
	}
	return c.DedicatedClient.Receive(ctx, subscribe, f)
}

// A client that does not keep up with a flood on its channel is thrown out by
// the server. When it reads again it finds the way back, and its turn.
func TestFault46SlowSubscriberThrownOut(t *testing.T) {
	t.Parallel()
	s := newSite(t, "client-output-buffer-limit pubsub 1mb 1mb 1")
	var wire stoppable
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.server.Addr}, ForceSingleClient: true, DisableCache: true,
		AlwaysPipelining: true, PipelineMultiplex: -1, DialCtxFn: wire.dial,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	holder, c := s.near(patient), locktest.NewClient(t, newStore(t, client), patient)
	h := s.lock(holder, "a")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	locktest.Poll(t, "it listens", locktest.Patience, func() bool { return len(channels(s.server)) == 1 })
	channel := channels(s.server)[0]

	wire.stop()
	t.Cleanup(wire.goOn)
	junk := strings.Repeat("x", 1<<20)
	locktest.Poll(t, "it is thrown out", locktest.Patience, func() bool {
		s.server.MustDo("SPUBLISH", channel, junk)
		return !strings.Contains(s.server.MustDo("INFO", "stats"), "client_output_buffer_limit_disconnections:0\r")
	})
	locktest.Unlock(t, h)
	waits.Waits()
	wire.goOn()
	next, _ := waits.Granted(locktest.Soon)
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", patient)
}

// stoppable makes connections that read nothing while they are stopped.
type stoppable struct {
	mu   sync.RWMutex // held by stop
	goOn func()
}

func (w *stoppable) stop() {
	w.mu.Lock()
	w.goOn = sync.OnceFunc(w.mu.Unlock)
}

func (w *stoppable) dial(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := d.DialContext(ctx, "tcp", addr)
	return &stoppableConn{conn, w}, err
}

type stoppableConn struct {
	net.Conn
	wire *stoppable
}

func (c *stoppableConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.mu.RLock()
	defer c.wire.mu.RUnlock()
	return n, err
}

// A slot moves to another node while somebody waits in it. The server ends the
// subscription; it is opened anew at the other node, where the event comes from.
func TestFault47ChannelMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	name := nameOfNode(cluster, 2)
	slot := redis.Slot(redis.LockKey(name))
	asleep := dlock.Options{TTL: 30 * time.Second, WaitTTL: 30 * time.Second} // asks every 10 s
	holder, c := locktest.NewClient(t, open(t, cluster.URL()), asleep), locktest.NewClient(t, open(t, cluster.URL()), asleep)
	direct := open(t, cluster.URL())
	queued := func() {
		t.Helper()
		locktest.Poll(t, "the waiter is queued and listens", locktest.Patience, func() bool {
			state, err := direct.Inspect(t.Context(), name)
			return err == nil && len(state.Queue) == 1 && len(channels(cluster.Master(slot))) == 1
		})
	}
	for round, to := range []*redistest.Server{cluster.Nodes[0], cluster.Nodes[1], cluster.Nodes[2]} {
		h := locktest.Lock(t, holder, name)
		waits := locktest.Begin(t, c, name)
		queued()
		cluster.BeginMove(slot, to)
		for cluster.MoveKeys(slot, to, 100) > 0 {
		}
		cluster.EndMove(slot, to)
		ended := time.Now()
		if round > 0 { // in the first the lock is released at that moment
			queued() // at the new node, by its own doing
			t.Logf("listens there %v after the move", time.Since(ended))
		}
		waits.Waits()
		locktest.Unlock(t, h)
		h, at := waits.Granted(3 * locktest.Soon) // rueidis asks for the new map of slots a second later
		t.Logf("in %v after the move", at.Sub(ended))
		locktest.Unlock(t, h)
	}
	if state, err := direct.Inspect(t.Context(), name); err != nil || len(state.Holders)+len(state.Queue) > 0 {
		t.Errorf("left at the servers: %+v, %v", state, err)
	}
}

// A move has ended at the old node of a slot and not yet at the new one, so that each sends
// to the other. Who listens there does not run back and forth as fast as he can.
func TestFault47NodesContradict(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, false)
	name := nameOfNode(cluster, 2)
	slot, from, to := redis.Slot(redis.LockKey(name)), cluster.Nodes[2], cluster.Nodes[0]
	asleep := dlock.Options{TTL: time.Minute, WaitTTL: time.Minute} // asks every 20 s
	holder, c := locktest.NewClient(t, open(t, cluster.URL()), asleep), locktest.NewClient(t, open(t, cluster.URL()), asleep)
	h := locktest.Lock(t, holder, name)
	waits := locktest.Begin(t, c, name)
	locktest.Poll(t, "the waiter listens", locktest.Patience, func() bool { return len(channels(from)) == 1 })
	cluster.BeginMove(slot, to)
	for cluster.MoveKeys(slot, to, 100) > 0 {
	}
	from.MustDo("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", to.MustDo("CLUSTER", "MYID"))
	locktest.Poll(t, "both say that the slot is at the other", locktest.Patience, func() bool {
		return redirected(t, from, "ssubscribe") > 0 && redirected(t, to, "ssubscribe") > 0
	})
	const period, most = time.Second, 50
	before := redirected(t, from, "ssubscribe") + redirected(t, to, "ssubscribe")
	time.Sleep(period)
	if n := redirected(t, from, "ssubscribe") + redirected(t, to, "ssubscribe") - before; n > most {
		t.Errorf("tried to subscribe %d times in %v, want at most %d", n, period, most)
	}
	// A call does not either, nor go on after its context.
	brief, end := context.WithTimeout(t.Context(), period)
	defer end()
	if _, err := open(t, cluster.URL()).Inspect(brief, name); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call got %v, want the error of its context", err)
	}
	scripts := func() int {
		return redirected(t, from, "evalsha_ro") + redirected(t, to, "evalsha_ro") + redirected(t, from, "evalsha") + redirected(t, to, "evalsha")
	}
	called := scripts()
	if called == 0 || called > 10*most {
		t.Errorf("sent %d times in %v, want 1 to %d", called, period, 10*most)
	}
	time.Sleep(period)
	if n := scripts() - called; n > 10*most { // those of the waiter
		t.Errorf("sent %d times after its context had ended", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), locktest.Patience)
	defer cancel()
	if err := redis.TrySubscribe(ctx, open(t, cluster.URL()), name); err == nil || !strings.Contains(err.Error(), "MOVED") {
		t.Errorf("Check follows the redirections until %v, want MOVED after a few", err)
	}
	to.MustDo("CLUSTER", "SETSLOT", strconv.Itoa(slot), "NODE", to.MustDo("CLUSTER", "MYID"))
	locktest.Poll(t, "the waiter listens at the new node", locktest.Patience, func() bool { return len(channels(to)) == 1 })
	locktest.Unlock(t, h)
	h, _ = waits.Granted(3 * locktest.Soon)
	locktest.Unlock(t, h)
}

// redirected is how many commands of a kind a server has sent elsewhere.
func redirected(t *testing.T, server *redistest.Server, command string) int {
	t.Helper()
	m := regexp.MustCompile(`cmdstat_` + command + `:.*rejected_calls=(\d+)`).FindStringSubmatch(server.MustDo("INFO", "commandstats"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// nameOfNode returns the name of a lock that node n has at first.
func nameOfNode(c *redistest.Cluster, n int) string {
	for i := 0; ; i++ {
		if name := strconv.Itoa(i); c.Master(redis.Slot(redis.LockKey(name))) == c.Nodes[n] {
			return name
		}
	}
}

// Another server is promoted while the old master runs on. Who waits listens at the new one
// before the sentinels have told the old one.
func TestFault44MasterDeposed(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t, 1)
	for _, s := range servers.Sentinels {
		// They tell the old master after four such periods.
		s.MustDo("SENTINEL", "DEBUG", "PUBLISH-PERIOD", "5000")
	}
	asleep := dlock.Options{TTL: time.Minute, WaitTTL: time.Minute} // asks every 20 s
	holder, c := locktest.NewClient(t, open(t, servers.URL()), asleep), locktest.NewClient(t, open(t, servers.URL()), asleep)
	old := servers.Master()
	h := locktest.Lock(t, holder, "a")
	waits := locktest.Begin(t, c, "a")
	locktest.Poll(t, "the waiter listens", locktest.Patience, func() bool { return len(channels(old)) == 1 })
	if n := old.MustDo("WAIT", "1", "5000"); n != "1" {
		t.Fatal("the replica is behind")
	}
	promoted := servers.Failover()
	began := time.Now()
	locktest.Poll(t, "the waiter listens at the new master", 10*time.Second, func() bool { return len(channels(promoted)) == 1 })
	t.Logf("it listens there after %v", time.Since(began))
	if role := field(old, "replication", "role"); role != "master" {
		t.Fatalf("the old master is a %s: the fault has not bitten", role)
	}
	locktest.Unlock(t, h)
	h, _ = waits.Granted(locktest.Soon)
	locktest.Unlock(t, h)
}
