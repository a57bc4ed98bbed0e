package etcd_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// revoke ends the leases of all keys of a name that are holds, or places, as an operator
// might.
func (s *site) revoke(name string, places bool) {
	s.t.Helper()
	answer, err := s.admin.Get(s.t.Context(), "dlock/"+name+"/", clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	revoked := 0
	for _, kv := range answer.Kvs {
		if strings.HasPrefix(string(kv.Key), etcd.DirOf(name)+"q") != places {
			continue
		}
		if _, err := s.admin.Revoke(s.t.Context(), clientv3.LeaseID(kv.Lease)); err != nil {
			s.t.Fatal(err)
		}
		revoked++
	}
	if revoked == 0 {
		s.t.Fatalf("nothing to revoke among %d keys of %s", len(answer.Kvs), name)
	}
}

// An operator revokes the lease of holds. All that hang on it are told with their
// next renewal, and who gets such a lock next, be it the same client, has a
// greater token.
func TestFault37LeaseRevoked(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 3 * time.Second}
	c, rival := s.near(o), s.near(o)
	var holds []*dlock.Hold
	var ends []<-chan time.Time
	for i := range 3 {
		h := locktest.Lock(t, c, strconv.Itoa(i))
		holds, ends = append(holds, h), append(ends, locktest.Ended(h))
	}
	waits := locktest.Begin(t, rival, "0")
	s.queued("0", 1)
	s.revoke("0", false) // one lease for all
	revoked := time.Now()
	for i, ended := range ends {
		if after := (<-ended).Sub(revoked); after > o.TTL/3+locktest.Late {
			t.Errorf("hold %d was told after %v", i, after)
		}
		locktest.MustBe(t, holds[i].Err(), dlock.ErrLost)
	}
	h, _ := waits.Granted(locktest.Soon)
	again, err := c.Mutex("1").TryLockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, next := range []*dlock.Hold{h, again} {
		if next.Token() <= holds[i].Token() {
			t.Errorf("token %d after %d", next.Token(), holds[i].Token())
		}
		s.holds(next)
	}
	for _, lost := range holds {
		locktest.MustBe(t, lost.Unlock(), dlock.ErrLost)
	}
	locktest.Unlock(t, h)
	locktest.Unlock(t, again)
	s.over("0", o)
}

// The same, before anybody has renewed: a client that believes in a lease which
// the servers do not know any more takes locks as fast as ever.
func TestFault37RevokedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 20 * time.Second, WaitTTL: 20 * time.Second}
	c := s.near(o)
	lost := locktest.Lock(t, c, "a")
	s.revoke("a", false)
	for name, client := range map[string]*dlock.Client{"a": s.near(o), "b": c} {
		h, _ := locktest.Begin(t, client, name).Granted(locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
	}
	locktest.MustBe(t, lost.Unlock(), dlock.ErrLost)
}

// An operator revokes the lease of places. Who lost a place has another one with
// its next request, and the client's other waits are not held up meanwhile.
func TestFault38LeaseOfPlacesRevoked(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 9 * time.Second, WaitTTL: 9 * time.Second}
	holder, c := s.near(o), s.near(o)
	a, b := locktest.Lock(t, holder, "a"), locktest.Lock(t, holder, "b")
	first := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	s.revoke("a", true)
	began := time.Now()
	second := locktest.Begin(t, c, "b")
	s.queued("b", 1)
	if took := time.Since(began); took > locktest.Soon {
		t.Errorf("it took %v to queue up", took)
	}
	s.queued("a", 1)
	if took := time.Since(began); took > o.WaitTTL/3+locktest.Late {
		t.Errorf("it took %v to queue up again", took)
	}
	first.Waits()
	second.Waits()
	locktest.Unlock(t, a)
	locktest.Unlock(t, b)
	for _, w := range []*locktest.Waiting{first, second} {
		h, _ := w.Granted(locktest.Soon)
		s.holds(h)
		locktest.Unlock(t, h)
	}
	s.over("a", o)
}

// A promoted hold ends at the servers before its waiter has heard of it, and the
// news of the promotion comes first. The waiter looks and does not believe it.
func TestFault38PromotionIsGoneWhenLookedAt(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := dlock.Options{TTL: 3 * time.Second}
	holder, c := s.near(o), s.far(o)
	h := locktest.Lock(t, holder, "a")
	promoted := make(chan string, 1)
	gone := make(chan error, 1)
	s.wire.plan(func(method string, n int) action {
		if method == "Txn" && n == 3 { // the first two were for the place
			_, err := s.admin.Delete(context.Background(), <-promoted)
			gone <- err
		}
		return pass
	})
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	locktest.Poll(t, "the watch is open", locktest.Patience, func() bool { return s.wire.requests("Range") >= 1 })
	key, place := s.place("a")
	hold := strings.Replace(key, "/qx/", "/x/", 1)
	promoted <- hold
	value := strings.Replace(place, `"owner":`, `"token":"create_revision * 65536","owner":`, 1)
	if _, err := s.admin.Txn(t.Context()).Then(clientv3.OpDelete(key), clientv3.OpPut(hold, value)).Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	s.queued("a", 1) // again
	waits.Waits()
	s.holds(h)
	locktest.Unlock(t, h)
	next, _ := waits.Granted(locktest.Soon)
	s.holds(next)
	locktest.Unlock(t, next)
}

// place is the key and the value of the one who waits for name.
func (s *site) place(name string) (key, value string) {
	s.t.Helper()
	answer, err := s.admin.Get(s.t.Context(), "dlock/"+name+"/", clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, kv := range answer.Kvs {
		if strings.HasPrefix(string(kv.Key), etcd.DirOf(name)+"q") {
			return string(kv.Key), string(kv.Value)
		}
	}
	s.t.Fatalf("nobody waits for %s", name)
	return "", ""
}

// The member that a holder is connected to stops answering. Calls do not hang,
// and the holder is told when what it knows of its lease is over, before another
// is granted; also if its lease was not new when it got the lock.
func TestFault40MemberStopsAnswering(t *testing.T) {
	t.Parallel()
	const lease = 4 * time.Second
	for name, age := range map[string]time.Duration{"new lease": 0, "old lease": lease / 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			o := dlock.Options{TTL: lease}
			stops, others := s.oneFollower()
			rival := s.at(o, others...)
			c := s.at(o, stops)
			locktest.Unlock(t, locktest.Lock(t, c, "other")) // the client has a lease
			<-time.After(age)
			known := time.Now()
			h := locktest.Lock(t, c, "a")
			stops.Pause()
			ended := locktest.Ended(h)
			next, grantedAt := locktest.Begin(t, rival, "a").Granted(expired(lease) + locktest.Soon)
			endedAt := <-ended
			if !endedAt.Before(grantedAt) {
				t.Errorf("told %v after the rival had it", endedAt.Sub(grantedAt))
			}
			if after := endedAt.Sub(known); after > lease+locktest.Late {
				t.Errorf("told %v after the last answer", after)
			}
			locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
			if _, err := c.Mutex("b").TryLockContext(t.Context()); !errors.Is(err, dlock.ErrUnavailable) {
				t.Errorf("a try returns %v", err)
			}
			stops.Resume()
			if next.Err() != nil {
				t.Error("the rival has lost it")
			}
			locktest.Unlock(t, next)
			locktest.Unlock(t, locktest.Lock(t, c, "a"))
		})
	}
}

// oneFollower is a member that does not lead, and the others.
func (s *site) oneFollower() (one *etcdtest.Member, others []*etcdtest.Member) {
	s.t.Helper()
	leader := s.cluster.Leader()
	for _, m := range s.cluster.Members {
		if m != leader && one == nil {
			one = m
		} else {
			others = append(others, m)
		}
	}
	return one, others
}

// at is a client that is connected to these members only.
func (s *site) at(o dlock.Options, members ...*etcdtest.Member) *dlock.Client {
	s.t.Helper()
	return locktest.NewClient(s.t, open(s.t, urlOf(members)), o)
}

func urlOf(members []*etcdtest.Member) string {
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Endpoint)
	}
	return "etcd://" + strings.Join(endpoints, ",") + "/"
}

// A renewal is not answered, as when its lease has run out and the server has
// not got round to ending it. The call ends with its context and says nothing
// for certain; the next one does.
func TestFault40RenewalHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	req := locktest.Request("a", 40)
	locktest.Hold(t, far, req)
	const bound = 200 * time.Millisecond
	ref := locktest.RefTo(req)
	for _, method := range renewals {
		s.wire.on(method, mute, 1)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		began := time.Now()
		err := far.Renew(ctx, []store.Ref{ref})[0]
		cancel()
		if took := time.Since(began); took > bound+locktest.Late {
			t.Errorf("%s: Renew took %v", method, took)
		}
		if err == nil || errors.Is(err, store.ErrLost) {
			t.Errorf("%s: Renew returned %v, want an unknown outcome", method, err)
		}
	}
	if err := far.Renew(t.Context(), []store.Ref{ref})[0]; err != nil {
		t.Error(err)
	}
	s.revoke("a", false)
	locktest.MustBe(t, far.Renew(t.Context(), []store.Ref{ref})[0], store.ErrLost)
}

// The lease that New asks for to learn how short one may be is over before it is
// given back. That is no reason to fail.
func TestNewOnASlowServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	s.wire.on("LeaseRevoke", twice)
	if min := s.wire.store(t, s.cluster.Endpoints()).MinTTL(); min != time.Second {
		t.Errorf("MinTTL is %v", min)
	}
}
