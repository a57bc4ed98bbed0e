package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// The two requests of a renewal.
var renewals = []string{"LeaseKeepAlive", "Txn"}

// The server has renewed and its answer is lost. Renewal may be repeated, and
// what is not known is not relied on.
func TestFault09RenewReplyLost(t *testing.T) {
	t.Parallel()
	for _, method := range renewals {
		t.Run("two of three "+method, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			o := dlock.Options{TTL: 6 * time.Second, StoreTimeout: 400 * time.Millisecond}
			o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
			h := locktest.Lock(t, s.far(o), "a")
			s.wire.plan(func(m string, n int) action {
				if m == method && n%3 != 0 {
					return mute
				}
				return pass
			})
			locktest.Poll(t, "three renewals", locktest.Patience, func() bool { return s.wire.requests(method) > 3 })
			s.holds(h)
			s.wire.on("", pass)
			locktest.Unlock(t, h)
			s.over("a", o)
		})
		// The server has the hold for longer all the time, but the holder does not
		// know: it is told when what it does know is over.
		t.Run("all "+method, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			c, rival := s.far(shortLease), s.near(shortLease)
			h := locktest.Lock(t, c, "a")
			known := time.Now() // the last confirmed request was sent before
			s.wire.on(method, mute)
			waits := locktest.Begin(t, rival, "a")
			ended := locktest.Ended(h)
			next, grantedAt := waits.Granted(2*shortLease.TTL + locktest.Patience)
			endedAt := <-ended
			if got, most := endedAt.Sub(known), shortLease.TTL+locktest.Late; got > most {
				t.Errorf("told %v after the last answer, want at most %v", got, most)
			}
			if !endedAt.Before(grantedAt) {
				t.Errorf("told %v after the rival had it", endedAt.Sub(grantedAt))
			}
			if s.wire.requests(method) < 2 {
				t.Error("the fault has not bitten")
			}
			s.wire.on("", pass)
			locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
			s.holds(next)
			locktest.Unlock(t, next)
			s.over("a", shortLease)
		})
	}
}

// Renewals fail for half a lease. They are repeated, the more often the less is
// left, until one gets through, and the hold goes on.
func TestFault66RenewalFailsOnceOrTwice(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 6 * time.Second, StoreTimeout: 600 * time.Millisecond}
	o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
	h := locktest.Lock(t, s.far(o), "a")
	s.wire.on("", pass)
	s.cluster.Members[0].Pause()
	locktest.Poll(t, "three renewals in one lease", o.TTL, func() bool { return s.wire.requests("LeaseKeepAlive") >= 3 })
	s.cluster.Members[0].Resume()
	before := s.wire.requests("Txn") // which comes after a keep-alive that was answered
	locktest.Poll(t, "two more that get through", locktest.Patience, func() bool { return s.wire.requests("Txn") >= before+2 })
	s.holds(h)
	locktest.Unlock(t, h)
	s.over("a", o)
}

// A hold is gone in one of the ways that there are. No renewal brings it back,
// not by the handle that had it nor by another, and it takes nothing from
// who holds now.
func TestFault67RenewalAfterLoss(t *testing.T) {
	t.Parallel()
	req, next := locktest.Request("a", 1), locktest.Request("a", 2)
	ways := map[string]func(t *testing.T, s *site, far *etcd.Store){
		"key deleted": func(t *testing.T, s *site, _ *etcd.Store) {
			if _, err := s.admin.Delete(t.Context(), etcd.HoldOf(req)); err != nil {
				t.Fatal(err)
			}
		},
		"lease revoked": func(t *testing.T, s *site, _ *etcd.Store) {
			answer, err := s.admin.Get(t.Context(), etcd.HoldOf(req))
			if err == nil {
				_, err = s.admin.Revoke(t.Context(), clientv3.LeaseID(answer.Kvs[0].Lease))
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"broken": func(t *testing.T, s *site, _ *etcd.Store) {
			if _, err := s.direct.Break(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		},
		"released": func(t *testing.T, _ *site, far *etcd.Store) {
			locktest.Release(t, far, req)
		},
		"run out": func(t *testing.T, s *site, _ *etcd.Store) { s.empty(req.TTL + lag + locktest.Late) },
		// The lease lives on by another hold on it, but this one has had its time.
		"run out alone": func(t *testing.T, s *site, far *etcd.Store) {
			other := locktest.Request("other", 3)
			if _, err := far.Acquire(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			locktest.Poll(t, "it runs out", req.TTL+lag+locktest.Late, func() bool {
				if errs := far.Renew(t.Context(), []store.Ref{locktest.RefTo(other)}); errs[0] != nil {
					t.Fatal(errs[0])
				}
				return len(s.keys()) == 1
			})
			locktest.Release(t, far, other)
		},
	}
	for way, lose := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			far := s.wire.store(t, s.cluster.Endpoints())
			locktest.Hold(t, far, req)
			lose(t, s, far)
			renew := func() {
				t.Helper()
				for _, h := range []*etcd.Store{far, s.direct, far} {
					locktest.MustBe(t, h.Renew(t.Context(), []store.Ref{locktest.RefTo(req)})[0], store.ErrLost)
				}
			}
			renew()
			s.empty(0)
			g, err := s.direct.Acquire(t.Context(), next)
			if err != nil || !g.Held {
				t.Fatalf("got %+v, %v", g, err)
			}
			renew()
			if state := s.state("a"); len(state.Holders) != 1 || state.Holders[0].Token != g.Token {
				t.Fatalf("the holders are %+v", state.Holders)
			}
			locktest.Release(t, s.direct, next)
		})
	}
}

// A renewal is under way while its hold is released, and arrives, or is answered,
// after that. It brings nothing back, and nobody takes it for a loss.
func TestFault71RenewalOutlivesRelease(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]struct {
		promoted bool
		method   string
	}{
		"of a promoted hold, which writes its key": {true, "Txn"},
		"that looks whether its key is there":      {false, "Txn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			o := dlock.Options{TTL: 3 * time.Second, WaitTTL: 12 * time.Second, StoreTimeout: 2 * time.Second} // so that c asks but once
			o.OnLost = func(*dlock.Hold) { t.Error("OnLost was called") }
			c, rival := s.far(o), s.near(longLease)
			var h *dlock.Hold
			if late.promoted {
				first := locktest.Lock(t, rival, "a")
				waits := locktest.Begin(t, c, "a")
				s.queued("a", 1)
				locktest.Poll(t, "a watch", locktest.Soon, func() bool { return s.cluster.Members[0].Watchers() == 1 })
				s.wire.on(late.method, hold, 2) // after that which grants
				locktest.Unlock(t, first)
				h, _ = waits.Granted(locktest.Soon)
			} else {
				h = locktest.Lock(t, c, "a")
				s.wire.on(late.method, hold, 1)
			}
			held := map[bool]int{true: 2, false: 1}[late.promoted]
			locktest.Poll(t, "a renewal", o.TTL, func() bool { return s.wire.requests(late.method) == held })
			locktest.Unlock(t, h)
			s.empty(0)
			next, err := rival.Mutex("a").LockContext(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			s.wire.arrive()
			s.holds(next)
			locktest.MustBe(t, h.Err(), dlock.ErrNotHeld)
			locktest.Unlock(t, next)
			s.empty(0)
		})
	}
}
