package redis_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
	"github.com/dlock-go/dlock/store/redis"
)

// TestFault18QuorumFailoverToStaleReplica: one of three nodes is a master with a replica
// that takes over and has none of its data. Who knew the old master gives the new
// one no vote until nothing that was lost can be alive.
func TestFault18QuorumFailoverToStaleReplica(t *testing.T) {
	t.Parallel()
	failing := redistest.StartSentinel(t, 1)
	m := startMasters(t, 2)
	open := func(third string) *quorum.Store {
		var nodes []store.Store
		for _, url := range []string{failing.URL(), m.servers[0].URL(), third} {
			n, err := redis.OpenNode(url)
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, n)
		}
		q, err := quorum.NewWithOptions(&quorum.Options{Own: true}, nodes...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { q.Close() })
		return q
	}
	far := redistest.StartProxy(t, m.servers[1].Addr)
	a, b := open(far.URL()), open(m.servers[1].URL())
	m.free(a, "probe a")
	m.free(b, "probe b")

	far.Blackhole(true)       // a's majority is without the third
	m.free(a, "probe of two") // a may not have known the first for a lease before
	m.hold(a, m.request("n"))
	held := time.Now()
	failing.Failover().MustDo("FLUSHALL")
	for time.Since(held) < quorumLease-200*time.Millisecond {
		r := m.request("n")
		g, err := b.Acquire(t.Context(), r)
		if g.Held && time.Since(held) < quorumLease-100*time.Millisecond {
			t.Fatalf("granted to another %v after the first grant", time.Since(held))
		}
		if err == nil {
			b.Release(t.Context(), quorumRef(r))
		}
		time.Sleep(50 * time.Millisecond)
	}
	m.free(b, "n")
}

// TestFault19QuorumOldMasterKeepsAccepting: one client still sees the old master of a
// node and another one the new, which was promoted before it had the lock and has
// been up for longer than any lease. A node of a quorum should have no failover; if
// it has, LongestLease has to be longer by the time for which an old master may go on.
func TestFault19QuorumOldMasterKeepsAccepting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		slow int // the node that the second client does not come to know
	}{
		{"the second client knows both", 2},
		{"the second client has not met the old one", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := startMasters(t, 3)
			m.opts.LongestLease = 2 * quorumLease
			successor := startReplica(t, m.servers[0])
			successor.MustDo("REPLICAOF", "NO", "ONE")
			pa, behindA := m.proxies()
			pb, behindB := m.proxies()
			a := m.open(behindA...)
			pb[c.slow].Delay(100 * time.Millisecond)
			b := quorumOver(t, m.opts, behindB...)
			m.free(b, "probe b")
			pb[c.slow].Delay(0)

			pa[2].Blackhole(true)
			h := m.lock(a, "n")
			pb[0].Retarget(successor.Addr)
			m.busy(b, "n")
			time.AfterFunc(quorumLease/2, func() { pa[0].Retarget(successor.Addr) })
			_, next := m.free(b, "n")
			select {
			case <-h.Done():
			default:
				t.Error("another was granted before the holder was told")
			}
			if next <= h.Token() {
				t.Errorf("token %d after %d", next, h.Token())
			}
		})
	}
}

// TestFault20RestartedEmpty: a node of a holder's majority restarts empty.
func TestFault20RestartedEmpty(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	pa, behindA := m.proxies()
	a, b := m.open(behindA...), m.open(m.addresses()...)
	pa[2].Blackhole(true)
	m.free(a, "probe of two") // a may not have known the first for a lease before
	token := m.hold(a, m.request("n")).Token
	held := time.Now()
	m.servers[1].Restart()
	fresh := quorumOver(t, quorum.Options{}, m.addresses()...) // knows nothing of before
	for time.Since(held) < quorumLease-500*time.Millisecond {
		for _, q := range []*quorum.Store{b, fresh} {
			r := m.request("n")
			if g, _ := q.Acquire(t.Context(), r); g.Held && time.Since(held) < quorumLease {
				t.Fatalf("granted to another %v after the first grant", time.Since(held))
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, next := m.free(b, "n"); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	m.free(fresh, "n")
}

// TestFault21SlowMinority: dead, hung and slow nodes cost the 99th percentile of
// taking a lock at most the timeout of a node.
func TestFault21SlowMinority(t *testing.T) {
	for _, m := range []*masters{startMasters(t, 3), startMasters(t, 5)} {
		n := len(m.servers)
		proxies, behind := m.proxies()
		q := m.open(behind...)
		healthy := m.latency(q)
		for _, fault := range []struct {
			name       string
			begin, end func(i int)
		}{
			{"slow", func(i int) { proxies[i].Delay(time.Second) }, func(i int) { proxies[i].Delay(0) }},
			{"hung", func(i int) { m.servers[i].Pause() }, func(i int) { m.servers[i].Resume() }},
			{"dead", func(i int) { m.servers[i].Kill() }, func(int) {}},
		} {
			for i := range n / 2 {
				fault.begin(i)
			}
			m.wantLatency(fault.name, n, healthy, m.latency(q))
			for i := range n / 2 {
				fault.end(i)
			}
		}
	}
}

// latency is the 99th percentile, and the median, of taking and giving back a lock.
func (m *masters) latency(q *quorum.Store) (l [2]time.Duration) {
	m.t.Helper()
	var all []time.Duration
	for range 200 {
		r := m.request("n")
		start := time.Now()
		for {
			if g, _ := q.Acquire(m.t.Context(), r); g.Held { // a busy machine may need more than one try
				break
			}
		}
		all = append(all, time.Since(start))
		q.Release(m.t.Context(), quorumRef(r))
	}
	slices.Sort(all)
	return [2]time.Duration{all[197], all[100]}
}

// nodeTimeout is what follows from quorumLease.
const nodeTimeout = quorumLease / 20

func (m *masters) wantLatency(what string, n int, healthy, got [2]time.Duration) {
	m.t.Helper()
	m.t.Logf("%d of %d nodes %s: p99 %v, median %v; healthy: %v, %v", n/2, n, what, got[0], got[1], healthy[0], healthy[1])
	if got[0] > healthy[0]+nodeTimeout {
		m.t.Errorf("%d of %d nodes %s: p99 is %v, healthy %v", n/2, n, what, got[0], healthy[0])
	}
}

// TestFault22AllVoteForDifferentClients: each of three clients is first at another
// server.
func TestFault22AllVoteForDifferentClients(t *testing.T) {
	m := startMasters(t, 3)
	for round := range 3 {
		var clients []*quorum.Store
		var proxies [][]*redistest.Proxy
		var hold atomic.Bool
		for i := range 3 {
			ps, behind := m.proxies()
			clients, proxies = append(clients, m.open(behind...)), append(proxies, ps)
			for k, p := range ps {
				p.Plan(func(int, []string) redistest.Action {
					if k != i && hold.Load() {
						return redistest.Hold
					}
					return redistest.Pass
				})
			}
		}
		hold.Store(true)
		time.AfterFunc(30*time.Millisecond, func() {
			hold.Store(false)
			for _, ps := range proxies {
				for _, p := range ps {
					p.Unhold()
				}
			}
		})
		start := time.Now()
		var all sync.WaitGroup
		for _, q := range clients {
			all.Go(func() {
				c, err := dlock.New(q, &dlock.Options{TTL: quorumLease})
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				h, err := c.Mutex("n").LockContext(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		t.Logf("round %d: all three had the lock after %v", round, time.Since(start))
		if took := time.Since(start); took > quorumLease {
			t.Errorf("it took %v", took)
		}
	}
}

// TestFault23MajorityLost: an error that is not ErrHeld comes fast, and the holder is
// told before anybody else can be granted.
func TestFault23MajorityLost(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 3)
	pa, behindA := m.proxies()
	a, b := m.open(behindA...), m.open(m.addresses()...)
	h := m.lock(a, "n")
	for _, p := range pa[:2] {
		p.Blackhole(true)
	}
	told := make(chan time.Time, 1)
	go func() { <-h.Done(); told <- time.Now() }()

	start := time.Now()
	_, err := a.Acquire(t.Context(), m.request("other"))
	if took := time.Since(start); !errors.Is(err, quorum.ErrNoQuorum) || errors.Is(err, store.ErrHeld) || took > time.Second {
		t.Errorf("got %v after %v", err, took)
	}
	m.free(b, "n")
	granted := time.Now()
	select {
	case <-h.Done():
		t.Logf("the holder was told %v before another was granted", granted.Sub(<-told))
	default:
		t.Error("another was granted before the holder was told")
	}

	m.servers[0].Kill()
	m.servers[1].Kill()
	start = time.Now()
	_, err = b.Acquire(t.Context(), m.request("other"))
	if took := time.Since(start); !errors.Is(err, quorum.ErrNoQuorum) || took > time.Second {
		t.Errorf("servers dead: got %v after %v", err, took)
	}
}

// TestFault61QuorumClockOfOneNodeJumps: its lease is over at once, and the two others keep
// the lock, which it gets back with the next renewal that does not return before it answers.
func TestFault61QuorumClockOfOneNodeJumps(t *testing.T) {
	t.Parallel()
	m := startMasters(t, 2)
	jumping, clock := redistest.StartWithClock(t)
	m.servers = append(m.servers, jumping)
	a, b := m.open(m.addresses()...), m.open(m.addresses()...)
	r := m.request("n")
	token := m.hold(a, r).Token
	clock.Jump(time.Minute)
	m.busy(b, "n")
	direct := open(t, jumping.URL())
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if errs := a.Renew(t.Context(), []store.Ref{quorumRef(r)}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		state, err := direct.Inspect(t.Context(), "n")
		if err == nil && len(state.Holders) == 1 && state.Holders[0].ID == store.Short(r.ID) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the node has %+v, %v; want the hold back", state, err)
		}
	}
	m.busy(b, "n")
	if err := a.Release(t.Context(), quorumRef(r)); err != nil {
		t.Fatal(err)
	}
	if _, next := m.free(b, "n"); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
}
