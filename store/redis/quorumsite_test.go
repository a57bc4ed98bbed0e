package redis_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// quorumLease is that of the locks in these tests. Nodes have to be up for as long.
const quorumLease = 3 * time.Second

// masters are independent servers.
type masters struct {
	t       *testing.T
	servers []*redistest.Server
	opts    quorum.Options
}

func startMasters(t *testing.T, n int) *masters {
	t.Helper()
	m := &masters{t: t}
	for range n {
		m.servers = append(m.servers, redistest.Start(t))
	}
	return m
}

func (m *masters) addresses() (all []string) {
	for _, s := range m.servers {
		all = append(all, s.Addr)
	}
	return all
}

// proxies stand between one client and the servers.
func (m *masters) proxies() (proxies []*redistest.Proxy, addresses []string) {
	for _, s := range m.servers {
		p := redistest.StartProxy(m.t, s.Addr)
		proxies, addresses = append(proxies, p), append(addresses, p.Addr)
	}
	return proxies, addresses
}

// open opens a handle and waits until all nodes count, which they do when they
// have been up for a lease.
func (m *masters) open(addresses ...string) *quorum.Store {
	m.t.Helper()
	q := quorumOver(m.t, m.opts, addresses...)
	deadline := time.Now().Add(30 * time.Second)
	for {
		r := m.request(rand.Text())
		_, err := q.Acquire(m.t.Context(), r)
		views, seen := q.Views(m.t.Context(), r.Name)
		young := seen != nil || err != nil
		for _, v := range views {
			young = young || v.Excluded > 0 || v.Err != nil
		}
		q.Release(m.t.Context(), quorumRef(r))
		if !young {
			return q
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the nodes never count: %v, %+v", err, views)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (m *masters) request(name string) store.Request {
	id := make([]byte, 16)
	rand.Read(id)
	return store.Request{Name: name, Owner: "owner-" + rand.Text(), ID: hex.EncodeToString(id), TTL: quorumLease, WaitTTL: quorumLease, Tokens: 1}
}

func quorumRef(r store.Request) store.Ref {
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: r.TTL}
}

// hold asks until q has the lock. A node of a busy machine may answer too late, and a majority needs each of two.
func (m *masters) hold(q *quorum.Store, r store.Request) store.Grant {
	m.t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		g, err := q.Acquire(m.t.Context(), r)
		if g.Held {
			return g
		}
		if !errors.Is(err, quorum.ErrNoQuorum) || time.Since(start) > 20*time.Second {
			m.t.Fatalf("got %+v, %v, want it held", g, err)
		}
	}
}

// free waits until q can have the lock, and returns how long that took and the token.
func (m *masters) free(q *quorum.Store, name string) (time.Duration, uint64) {
	m.t.Helper()
	start := time.Now()
	for r := m.request(name); ; time.Sleep(5 * time.Millisecond) {
		g, err := q.Acquire(m.t.Context(), r)
		if g.Held {
			q.Release(m.t.Context(), quorumRef(r))
			return time.Since(start), g.Token
		}
		if time.Since(start) > 30*time.Second {
			m.t.Fatalf("it does not become free: %v", err)
		}
	}
}

// busy wants that q cannot have the lock now.
func (m *masters) busy(q *quorum.Store, name string) {
	m.t.Helper()
	r := m.request(name)
	g, err := q.Acquire(m.t.Context(), r)
	if g.Held {
		m.t.Fatalf("somebody else was granted: %+v", g)
	}
	if !errors.Is(err, store.ErrHeld) && !errors.Is(err, quorum.ErrNoQuorum) {
		m.t.Fatalf("got %v", err)
	}
}

// lock takes the lock as a client of dlock.
func (m *masters) lock(q *quorum.Store, name string) *dlock.Hold {
	m.t.Helper()
	c, err := dlock.New(q, &dlock.Options{TTL: quorumLease})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	h, err := c.Mutex(name).LockContext(context.Background())
	if err != nil {
		m.t.Fatal(err)
	}
	return h
}
