package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// One owner waits with more requests than a transaction has room for. When the lock
// is free all of them have it, whoever had it before, and with any limit of the
// server's.
func TestCrowdOfOneOwner(t *testing.T) {
	t.Parallel()
	const crowd = 140
	for _, flags := range [][]string{nil, {"--max-txn-ops=16"}} {
		for _, elsewhere := range []bool{true, false} {
			t.Run(fmt.Sprint(flags, elsewhere), func(t *testing.T) {
				t.Parallel()
				s := newSite(t, 1, flags...)
				waiters := open(t, s.cluster.URL())
				holder := waiters
				if elsewhere {
					holder = s.direct
				}
				held := func(on store.Store, r store.Request) bool {
					t.Helper()
					g, err := on.Acquire(t.Context(), r)
					if err != nil {
						t.Fatal(err)
					}
					return g.Held
				}
				first := locktest.Request("a", 1)
				first.TTL = time.Minute
				if !held(holder, first) {
					t.Fatal("the name is not free")
				}
				var all []store.Request
				for n := range crowd {
					r := locktest.Request("a", 2+n)
					r.Owner, r.TTL, r.WaitTTL = "owner-of-all", time.Minute, time.Minute
					if held(waiters, r) {
						t.Fatal("granted beside another")
					}
					all = append(all, r)
				}
				locktest.Poll(t, "the watch", locktest.Patience, func() bool { return waiters.Sees("a", all[crowd-1].ID) })
				locktest.Release(t, holder, first)
				for _, r := range all {
					locktest.Poll(t, "a grant", locktest.Patience, func() bool { return held(waiters, r) })
				}
				if n := len(s.state("a").Holders); n != crowd {
					t.Errorf("%d hold, want %d", n, crowd)
				}
			})
		}
	}
}

// More readers wait, each of another owner, than a transaction has room for. When the lock is free all of
// them have it, each with a token of its own, with any limit of the server's.
func TestCrowdOfReaders(t *testing.T) {
	t.Parallel()
	const crowd = 70
	for _, flags := range [][]string{nil, {"--max-txn-ops=16"}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1, flags...)
			waiters := open(t, s.cluster.URL())
			first := locktest.Request("a", 1)
			first.TTL = time.Minute
			locktest.Hold(t, s.direct, first)
			var all []store.Request
			for n := range crowd {
				r := locktest.Request("a", 2+n)
				r.Mode, r.TTL, r.WaitTTL, r.Tokens = store.Shared, time.Minute, time.Minute, 3
				locktest.Queue(t, waiters, r)
				all = append(all, r)
			}
			locktest.Release(t, s.direct, first)
			var last uint64
			for _, r := range all {
				var g store.Grant
				locktest.Poll(t, "a grant", locktest.Patience, func() bool {
					var err error
					if g, err = waiters.Acquire(t.Context(), r); err != nil {
						t.Fatal(err)
					}
					return g.Held
				})
				if g.Token < last+3 {
					t.Fatalf("token %d after a span of 3 from %d", g.Token, last)
				}
				last = g.Token
			}
			if n := len(s.state("a").Holders); n != crowd {
				t.Errorf("%d hold, want %d", n, crowd)
			}
		})
	}
}
