package quorum_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/quorum"
)

// newSite is three nodes that have just started; each call of open is another process.
func newSite(t *testing.T) (open func(quorum.Options) *dlock.Client, links func() []*faultstore.Store) {
	var nodes []young
	for range 3 {
		nodes = append(nodes, young{memory.New(), time.Now(), rand.Text()})
	}
	var last []*faultstore.Store
	return func(opts quorum.Options) *dlock.Client {
		var stores []store.Store
		last = nil
		for _, n := range nodes {
			link := faultstore.New(young{n.Peer(), n.since, n.id})
			last, stores = append(last, link), append(stores, link)
		}
		opts.Own = true
		q, err := quorum.NewWithOptions(&opts, stores...)
		if err != nil {
			t.Fatal(err)
		}
		c, err := dlock.New(q, &dlock.Options{TTL: lease})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); q.Close() })
		return c
	}, func() []*faultstore.Store { return last }
}

// TestFirstLockWaitsForYoungNodes: the first lock on new servers succeeds when they have been
// up for a lease, in every process.
func TestFirstLockWaitsForYoungNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, _ := newSite(t)
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			c := open(quorum.Options{})
			all.Go(func() {
				h, err := c.Mutex("n").LockContext(bg)
				if err != nil {
					t.Errorf("LockContext: %v", err)
					return
				}
				if took := time.Since(began); took < lease || took > lease+2*time.Second {
					t.Errorf("locked %v after the start, with a lease of %v", took, lease)
				}
				h.Unlock()
			})
		}
		all.Wait()
	})
}

// TestTryOnYoungNodesSaysWhy: a lock call that does not wait fails, with the reason of each node.
func TestTryOnYoungNodesSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, _ := newSite(t)
		_, err := open(quorum.Options{}).Mutex("n").TryLockContext(bg)
		if !errors.Is(err, dlock.ErrUnavailable) || !errors.Is(err, quorum.ErrNoQuorum) {
			t.Fatalf("TryLockContext: got %v", err)
		}
		for _, part := range []string{"node 0", "node 1", "less than a lease", "it votes in "} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("got %q, want it to say %q", err, part)
			}
		}
	})
}

// TestFreshNodesVoteAtOnce: if the operator says that nothing ran before.
func TestFreshNodesVoteAtOnce(t *testing.T) {
	for _, dead := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			open, links := newSite(t)
			c := open(quorum.Options{Fresh: true})
			if dead {
				links()[1].Outage(down)
			}
			began := time.Now()
			h, err := c.Mutex("n").TryLockContext(bg)
			if err != nil {
				t.Fatal(err)
			}
			want(t, "took", time.Since(began), 0)
			h.Unlock()
		})
	}
}

// TestFreshIsAboutTheFirstContact: a node that restarts later does not vote for a lease.
func TestFreshIsAboutTheFirstContact(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		s.opts.Fresh = true
		a, b := s.client(), s.client()
		s.hold(b, request("p", 1))
		s.release(b, request("p", 1))
		a.cut(down, 2)
		s.hold(a, request("a", 1))
		s.restart(1)
		s.refused(b, request("b", 1), quorum.ErrNoQuorum)
	})
}

// TestFreshIsAboutTheOpening: a node that a handle meets long after it was opened has a past.
func TestFreshIsAboutTheOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, links := newSite(t)
		early := open(quorum.Options{Fresh: true})
		ways := links()
		holder := open(quorum.Options{Fresh: true})
		time.Sleep(2 * lease)
		links()[2].Outage(down)
		h, err := holder.Mutex("n").LockContext(bg)
		if err != nil {
			t.Fatal(err)
		}
		restarted := young{memory.New(), time.Now(), rand.Text()}
		ways[1].Swap(restarted)
		links()[1].Swap(young{restarted.Peer(), restarted.since, restarted.id})
		if second, err := early.Mutex("n").TryLockContext(bg); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("TryLockContext beside a hold: got %v, %v", second, err)
		}
		h.Unlock()
	})
}
