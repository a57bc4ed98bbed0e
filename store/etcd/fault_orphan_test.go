package etcd_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// The token with which a stream of watches was opened has expired when another waiter of
// the handle needs a watch. Its watch is opened on a new stream, so its hand-over is as
// fast as any.
func TestFault94WatchOfAnExpiredToken(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, "--auth-token-ttl=1", "--bcrypt-cost=4")
	guard(t, c)
	handle := func() *etcd.Store { return open(t, "etcd://locker:secret@"+c.Members[0].Endpoint+"/") }
	holder, waiter := locktest.NewClient(t, handle(), told), locktest.NewClient(t, handle(), told)
	long, short := locktest.Lock(t, holder, "long"), locktest.Lock(t, holder, "short")
	first := locktest.Begin(t, waiter, "long")
	locktest.Poll(t, "a watch", locktest.Patience, func() bool { return c.Members[0].Watchers() == 1 })
	<-time.After(2500 * time.Millisecond) // the token has expired
	second := locktest.Begin(t, waiter, "short")
	locktest.Queued(t, handle(), "short", 1)
	locktest.Poll(t, "another watch", 5*time.Second, func() bool { return c.Members[0].Watchers() == 2 })
	unlockAnyway(t, short)
	h, _ := second.Granted(locktest.Soon)
	locktest.Unlock(t, h)
	first.Waits()
	unlockAnyway(t, long)
	h, _ = first.Granted(locktest.Soon)
	locktest.Unlock(t, h)
}

// A user with rights has thousands of holds of one TTL. No lease has more keys than the
// server can check with each put.
func TestFault95KeysOfOneLease(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, "--bcrypt-cost=4")
	root := guard(t, c)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "locker", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	s, err := etcd.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	const holds, step = 3000, 500
	var took []time.Duration
	for from := 0; from < holds; from += step {
		began := time.Now()
		locktest.InParallel(t, step, func(i int) error {
			g, err := s.Acquire(t.Context(), newRequest(fmt.Sprint("many-", from+i), 1+from+i))
			if err == nil && !g.Held {
				err = fmt.Errorf("got %+v", g)
			}
			return err
		})
		took = append(took, time.Since(began)/step)
	}
	t.Logf("an acquire took %v", took)
	all, err := root.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	for _, l := range all.Leases {
		answer, err := root.TimeToLive(t.Context(), l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			t.Fatal(err)
		}
		if keys += len(answer.Keys); len(answer.Keys) > 256 {
			t.Errorf("%d keys on one lease", len(answer.Keys))
		}
	}
	if keys != holds {
		t.Errorf("%d keys of %d holds", keys, holds)
	}
}

// The cluster is given back a snapshot. Who held then and holds now is not disturbed, and
// nobody is granted beside that hold; who has got a lock since is told that it is lost;
// what was released since comes back, and goes within a lease.
func TestFault96SnapshotRestored(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, members)
			o := dlock.Options{TTL: time.Duration(members) * 9 * time.Second, WaitTTL: time.Duration(members) * 9 * time.Second}
			c, rival := s.near(o), s.near(o)
			kept, returns := locktest.Lock(t, c, "kept"), locktest.Lock(t, c, "returns")
			waits := locktest.Begin(t, rival, "kept")
			s.queued("kept", 1)
			s.cluster.Save()
			unlockAnyway(t, returns)
			s.pass(200)
			later := locktest.Lock(t, c, "later")
			ended := locktest.Ended(later)
			s.cluster.GoBack()
			back := time.Now()
			if n := len(s.state("returns").Holders); n != 1 {
				t.Fatalf("%d holders: the fault has not bitten", n)
			}
			if after := (<-ended).Sub(back); after > o.TTL/3+locktest.Late {
				t.Errorf("told of the loss after %v", after)
			}
			waits.Waits()
			s.holds(kept)
			locktest.Poll(t, "what was released is gone", o.TTL+lag+locktest.Late, func() bool { return len(s.state("returns").Holders) == 0 })
			waits.Waits()
			s.holds(kept)
			unlockAnyway(t, kept)
			next, _ := waits.Granted(o.TTL)
			s.holds(next)
			locktest.Unlock(t, next)
			locktest.Unlock(t, locktest.Lock(t, rival, "returns"))
			locktest.MustBe(t, later.Unlock(), dlock.ErrLost)
		})
	}
}

// A request is stuck until the key by which its id is refused has ended. What it takes then
// hangs on a lease that is renewed for others, and goes within a minute.
func TestFault97OrphanOfAFrozenMember(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	keeps, r := locktest.Request("kept", 1), locktest.Request("a", 2)
	locktest.Hold(t, far, keeps)
	s.wire.on("Txn", hold, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := far.Acquire(ctx, r); err == nil {
		t.Fatal("the request was answered")
	}
	bury := locktest.RefTo(r)
	bury.Bury = true
	locktest.MustBe(t, far.Release(t.Context(), bury), store.ErrLost)
	keep := func() {
		t.Helper()
		if err := far.Renew(t.Context(), []store.Ref{locktest.RefTo(keeps)})[0]; err != nil {
			t.Fatal(err)
		}
	}
	locktest.Poll(t, "the refusal ends", locktest.Patience, func() bool { keep(); return len(s.keys()) == 1 })
	s.wire.arrive()
	if n := len(s.state("a").Holders); n != 1 {
		t.Fatalf("%d holders: the fault has not bitten", n)
	}
	locktest.Poll(t, "the orphan goes", time.Minute, func() bool { keep(); return len(s.state("a").Holders) == 0 })
	if err := far.Release(t.Context(), locktest.RefTo(keeps)); err != nil {
		t.Error(err)
	}
}

// A leader is stopped for longer than a lease, is replaced, and goes on. Should it end
// leases that live, as etcd's leaders may for a moment, their holder is told by its next
// renewal, and the next one has a greater token.
func TestFault98PausedLeaderGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	o := dlock.Options{TTL: 3 * time.Second}
	for range 2 {
		leader := s.cluster.Leader()
		var others []*etcdtest.Member
		for _, m := range s.cluster.Members {
			if m != leader {
				others = append(others, m)
			}
		}
		h := locktest.Lock(t, s.at(o, others...), "a")
		waits := locktest.Begin(t, s.at(dlock.Options{TTL: 20 * time.Second}, others...), "a")
		s.queued("a", 1)
		leader.Pause()
		<-time.After(o.TTL + time.Second)
		leader.Resume()
		resumed := time.Now()
		select {
		case <-h.Done():
			if after := time.Since(resumed); after > o.TTL/3+locktest.Late {
				t.Errorf("told %v after the old leader went on: %v", after, h.Err())
			}
		case <-time.After(o.TTL):
			waits.Waits()
			locktest.Unlock(t, h)
		}
		next, _ := waits.Granted(o.TTL + locktest.Soon)
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		s.holds(next)
		locktest.Unlock(t, next)
	}
}

// Operators can read what holds a lock, and nobody can read an owner, who may re-enter.
func TestValuesAreReadable(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	holder, waiter := newRequest("a", 1), newRequest("a", 2)
	holder.Owner, waiter.Owner, waiter.Queue = "secret-owner-one", "secret-owner-two", true
	locktest.Hold(t, s.direct, holder)
	if g, err := s.direct.Acquire(t.Context(), waiter); err != nil || g.Held || g.HeldBy != holder.Label {
		t.Fatalf("got %+v, %v, want it queued behind %q", g, err, holder.Label)
	}
	answer, err := s.admin.Get(t.Context(), "dlock/", clientv3.WithPrefix())
	if err != nil || len(answer.Kvs) != 2 {
		t.Fatalf("%v, %v", answer, err)
	}
	for _, kv := range answer.Kvs {
		text := string(kv.Key) + string(kv.Value)
		for _, want := range []string{`"label":"host/12345"`, `"ttl":"1m0s"`, `"wait_ttl":"5s"`, `"owner":"secret"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s does not say %s", text, want)
			}
		}
		if strings.Contains(text, "owner-one") || strings.Contains(text, "owner-two") {
			t.Errorf("%s shows an owner", text)
		}
	}
	try := newRequest("a", 3)
	if g, err := s.direct.Acquire(t.Context(), try); err == nil || g.HeldBy != holder.Label {
		t.Errorf("got %+v, %v, want it refused because of %q", g, err, holder.Label)
	}
}
