package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// lasting is a request whose lease does not end during a test.
func lasting(name string, n int) store.Request {
	r := locktest.Request(name, n)
	r.TTL, r.WaitTTL = time.Minute, 20*time.Second
	return r
}

// Each row ends a lease that a request relies on. The request's error does not say which of its two leases is gone.
// The holds on the other one are renewed as before.
func TestFault37OneLeaseGoneEndsNoOther(t *testing.T) {
	t.Parallel()
	for name, places := range map[string]bool{"places": true, "holds": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			on := open(t, s.cluster.URL())
			busy, sibling := lasting("busy", 1), lasting("sibling", 2)
			locktest.Hold(t, s.direct, busy)
			locktest.Hold(t, on, sibling)
			locktest.Queue(t, on, lasting("busy", 3))
			lost := "busy"
			if !places {
				lost = "sibling"
			}
			s.revoke(lost, places)
			for n, name := range []string{"busy", "free"} {
				if _, err := on.Acquire(t.Context(), lasting(name, 4+n)); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
					t.Error(err)
				}
			}
			want := error(nil)
			if !places {
				want = store.ErrLost
			}
			locktest.MustBe(t, on.Renew(t.Context(), []store.Ref{locktest.RefTo(sibling)})[0], want)
			locktest.Queue(t, on, lasting("busy", 4))
			locktest.Hold(t, on, lasting("last", 6))
		})
	}
}

// A second burial of an id has an unknown outcome. The id is refused as the first burial promised.
func TestFault03SecondBurialFails(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	r := lasting("a", 1)
	bury := locktest.RefTo(r)
	bury.Bury = true
	locktest.MustBe(t, far.Release(t.Context(), bury), store.ErrLost)
	s.wire.on("Txn", cutReply, 1)
	if err := far.Release(t.Context(), bury); err == nil {
		t.Fatal("the fault has not bitten")
	}
	far.Close() // after which nothing of the call runs any more
	_, err := s.direct.Acquire(t.Context(), r)
	locktest.MustBe(t, err, store.ErrLost)
}

// The server refuses burials again and again. Each leaves no lease.
func TestRefusedBurialsLeaveNoLease(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, "--bcrypt-cost=4")
	root := guard(t, c)
	s := open(t, "etcd://locker:secret@"+c.Members[0].Endpoint+"/no-rights-here")
	bury := locktest.RefTo(lasting("a", 1))
	bury.Bury = true
	for range 3 {
		locktest.MustBe(t, s.Release(t.Context(), bury), store.ErrRefused)
	}
	if left, err := root.Leases(t.Context()); err != nil || len(left.Leases) > 0 {
		t.Errorf("%d leases are left, %v", len(left.Leases), err)
	}
}

// Two handles ask for one id and take turns to renew it. It is held, and both hear so.
func TestTwoHandlesRenewOneHold(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1)
	one, other := open(t, c.URL()), open(t, c.URL())
	for n, r := range []store.Request{lasting("x", 1), lasting("s", 2)} {
		r.Mode = store.Mode(n)
		locktest.Hold(t, one, r)
		for _, on := range []*etcd.Store{other, one, other, one} {
			locktest.MustBe(t, on.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0], nil)
		}
	}
}

// A handle is asked for a hold of another handle, which has had it for nearly its TTL. The hold lasts for what the
// answer says, though the other handle's lease is kept alive by another hold on it.
func TestHoldOfAnotherHandleLastsItsTTL(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1)
	one, other := open(t, c.URL()), open(t, c.URL())
	r, sibling := lasting("a", 1), lasting("sibling", 2)
	locktest.Hold(t, one, r)
	locktest.Hold(t, one, sibling)
	locktest.Hold(t, other, r)
	one.Expire(r.ID)
	locktest.Poll(t, "the end of its record", locktest.Patience, func() bool { return one.Records() == 1 })
	answer, err := c.Client(t).Get(t.Context(), etcd.HoldOf(r), clientv3.WithCountOnly())
	if err != nil || answer.Count != 1 {
		t.Errorf("the hold has %d keys, %v", answer.Count, err)
	}
}

// The owner of a shared hold re-enters while its upgrade is granted. The re-entry has the token of the upgrade, not an
// older one, which a resource that has seen the newer one refuses.
func TestReentryBesideAnUpgrade(t *testing.T) {
	t.Parallel()
	s := open(t, etcdtest.Start(t, 1).URL())
	first, again, upgrade := lasting("a", 1), lasting("a", 2), lasting("a", 3)
	again.Owner, upgrade.Owner = first.Owner, first.Owner
	first.Mode, again.Mode = store.Shared, store.Shared
	locktest.Hold(t, s, first)
	carryOut := s.Grants(t, again)
	locktest.Hold(t, s, upgrade)
	if done, err := carryOut(); done || err != nil {
		t.Errorf("granted with the token from before the upgrade: %v, %v", done, err)
	}
	g, err := s.Acquire(t.Context(), again)
	h, err2 := s.Acquire(t.Context(), upgrade)
	if err != nil || err2 != nil || g.Token != h.Token {
		t.Errorf("tokens %d and %d, %v, %v", g.Token, h.Token, err, err2)
	}
}

// The connection of renewals is broken for a while. They are not sent again and again as fast as the machine can.
func TestFault66RenewalDoesNotSpin(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	r := locktest.Request("a", 1)
	locktest.Hold(t, far, r)
	for _, fault := range []action{cutAsk, cutReply} {
		s.wire.on("LeaseKeepAlive", fault)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := far.Renew(ctx, []store.Ref{locktest.RefTo(r)})[0]
		cancel()
		if err == nil || errors.Is(err, store.ErrLost) {
			t.Errorf("%v, want an unknown outcome", err)
		}
		if n := s.wire.requests("LeaseKeepAlive"); n > 10 {
			t.Errorf("%d requests in one renewal", n)
		}
	}
	s.wire.on("", pass)
	locktest.MustBe(t, far.Renew(t.Context(), []store.Ref{locktest.RefTo(r)})[0], nil)
}
