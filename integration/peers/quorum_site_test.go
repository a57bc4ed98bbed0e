package peers

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// masters are three servers that know nothing of each other.
type masters struct {
	servers []*redistest.Server
	lease   time.Duration
	direct  []*redis.Store // one for each
}

func startMasters(t *testing.T, lease time.Duration) *masters {
	t.Helper()
	m := &masters{lease: lease}
	for range 3 {
		server := redistest.Start(t)
		server.Client() // connects, which only this goroutine may have fail
		direct, err := redis.Open(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { direct.Close() })
		m.servers, m.direct = append(m.servers, server), append(m.direct, direct)
	}
	return m
}

func (m *masters) addrs() (all []string) {
	for _, s := range m.servers {
		all = append(all, s.Addr)
	}
	return all
}

// grown waits until all servers have been up for a lease. Before that dlock takes
// them for servers that have lost what they had.
func (m *masters) grown(t testing.TB) {
	t.Helper()
	for _, s := range m.servers {
		for {
			_, after, _ := strings.Cut(s.MustDo("INFO", "server"), "uptime_in_seconds:")
			up, _, _ := strings.Cut(after, "\r\n")
			seconds, err := strconv.Atoi(up)
			if err != nil {
				t.Fatal(err)
			}
			if time.Duration(seconds)*time.Second > m.lease {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// watched has dlock wait for a lock on these servers, and returns a function that waits until it has it.
// dlock does without a server until a client has seen it for a lease: it may have lost what it had.
func (m *masters) watched(t *testing.T) (wait func()) {
	t.Helper()
	c, err := majorities[0].open(m.addrs(), m.lease)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	first := begin(context.Background(), c, "first")
	return func() {
		select {
		case o := <-first.done:
			if o.err != nil {
				t.Fatal(o.err)
			}
			o.hold.Unlock()
		case <-time.After(m.lease + patience):
			t.Fatalf("a lock on servers with leases of %v is not granted", m.lease)
		}
	}
}

// open opens a client on its own wires, if there are any, and has it lock a few
// times, so that it is connected and knows how long the servers take.
func (m *masters) open(t testing.TB, l majority, addrs []string) client {
	t.Helper()
	c, err := l.open(addrs, m.lease)
	if err != nil {
		t.Fatal(err)
	}
	name := rand.Text() // many may be opened at once
	for range 20 {
		// A request that comes after its release, where not all answers are waited for,
		// makes the next one fail here and there: no reason to end the run of a peer.
		if err := prepare(t, c, name).Unlock(); err != nil && l.dlock {
			t.Fatal(err)
		}
	}
	return c
}

// wires are those of one client.
type wires []*wire

func newWires(t testing.TB, targets []string) (all wires, addrs []string) {
	t.Helper()
	for _, target := range targets {
		w := newWire(t, target)
		all, addrs = append(all, w), append(addrs, w.addr)
	}
	return all, addrs
}

func (all wires) set(s state) {
	for _, w := range all {
		w.set(s)
	}
}

// left is how many servers keep a hold or a place of the lock. It can be asked of
// all libraries: each has its own keys.
func (m *masters) left(t testing.TB, l majority, name string) (n int) {
	t.Helper()
	for i, s := range m.servers {
		if !l.dlock {
			if s.MustDo("EXISTS", name) == "1" {
				n++
			}
			continue
		}
		state, err := m.direct[i].Inspect(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		if entries(state) > 0 {
			n++
		}
	}
	return n
}

func entries(s store.State) int { return len(s.Holders) + len(s.Queue) }
