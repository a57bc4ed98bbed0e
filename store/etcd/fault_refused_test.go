package etcd_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/proxytest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// fill writes until the servers have no space left.
func (s *site) fill() {
	s.t.Helper()
	value := strings.Repeat("x", 256<<10)
	for range 1000 {
		_, err := s.admin.Put(s.t.Context(), "foreign", value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Fatal("there is no end to the space")
}

// makeSpace undoes fill.
func (s *site) makeSpace() {
	s.t.Helper()
	if _, err := s.admin.Delete(s.t.Context(), "foreign"); err != nil {
		s.t.Fatal(err)
	}
	s.cluster.Compact()
	for _, m := range s.cluster.Members {
		if _, err := s.admin.Defragment(s.t.Context(), m.Endpoint); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := s.admin.AlarmDisarm(s.t.Context(), &clientv3.AlarmMember{}); err != nil {
		s.t.Fatal(err)
	}
}

// The servers have no space left. Who asks for a lock is told so at once, who
// holds one keeps it, and can release it, also when what he asked for had an
// unknown outcome.
func TestFault41NoSpace(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "--quota-backend-bytes=2097152")
	o := notLost(t, dlock.Options{TTL: 3 * time.Second})
	c := s.near(o)
	a, b := locktest.Lock(t, c, "a"), locktest.Lock(t, c, "b")
	waits := locktest.Begin(t, s.near(dlock.Options{TTL: 9 * time.Second}), "b")
	s.queued("b", 1)
	unknown := locktest.Request("c", 41)
	unknown.TTL = 20 * time.Second
	locktest.Hold(t, s.direct, unknown)
	fresh := s.near(o)
	dueWithoutSpace := s.readersAround()
	s.fill()
	dueWithoutSpace()
	for _, client := range []*dlock.Client{c, fresh} { // one with a lease, one without
		_, err := client.Mutex("d").TryLockContext(t.Context())
		locktest.MustBe(t, err, store.ErrRefused)
		locktest.MustBe(t, err, rpctypes.ErrNoSpace)
		_, err = locktest.Begin(t, client, "d").Failed(locktest.Soon)
		locktest.MustBe(t, err, store.ErrRefused)
	}
	// What was renewed before is over by then.
	select {
	case <-a.Done():
		t.Fatal(a.Err())
	case <-time.After(o.TTL + 500*time.Millisecond):
	}
	s.holds(a)
	locktest.Unlock(t, a)
	if state := s.state("a"); len(state.Holders) > 0 {
		t.Errorf("%+v is left of a", state)
	}
	locktest.Unlock(t, b)
	_, err := waits.Failed(9 * time.Second) // nobody can be granted
	locktest.MustBe(t, err, store.ErrRefused)
	bury := locktest.RefTo(unknown)
	bury.Bury = true
	if err := s.direct.Release(t.Context(), bury); err == nil || errors.Is(err, store.ErrRefused) {
		t.Errorf("%v of what was released and could not be buried", err)
	}
	answer, err := s.admin.Get(t.Context(), "dlock/c/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || answer.Count > 0 {
		t.Errorf("%d keys are left of c, %v", answer.Count, err)
	}
	s.makeSpace()
	h, _ := locktest.Begin(t, c, "b").Granted(locktest.Soon)
	s.holds(h)
	locktest.Unlock(t, h)
}

// readersAround has a reader hold, and a writer and a reader wait behind it. The function that it returns has the
// writer leave when the servers have no space for the hold of the reader behind it. An operator sees what there is all
// the same, and breaks it.
func (s *site) readersAround() func() {
	requests := make([]store.Request, 3)
	for i := range requests {
		requests[i] = locktest.LongRequest("e", i, i > 0)
		if i != 1 {
			requests[i].Mode = store.Shared
		}
	}
	locktest.Hold(s.t, s.direct, requests[0])
	locktest.Queue(s.t, s.direct, requests[1])
	locktest.Queue(s.t, s.direct, requests[2])
	return func() {
		s.t.Helper()
		locktest.Release(s.t, s.direct, requests[1])
		if state := s.state("e"); len(state.Holders) != 1 || len(state.Queue) != 1 {
			s.t.Errorf("without space: %+v", state)
		}
		if n, err := s.direct.Break(s.t.Context(), "e"); n != 1 || err != nil {
			s.t.Errorf("without space %d holds were broken, %v", n, err)
		}
	}
}

// guard makes the servers ask who wants something, and returns a client that
// may do everything. The user locker has the rights that the locks need.
func guard(t *testing.T, c *etcdtest.Cluster) *clientv3.Client {
	t.Helper()
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	free := c.Client(t)
	for user, role := range map[string]string{"root": "root", "locker": "locks"} {
		do(free.UserAdd(t.Context(), user, "secret"))
		do(free.RoleAdd(t.Context(), role))
		do(free.UserGrantRole(t.Context(), user, role))
	}
	do(free.RoleGrantPermission(t.Context(), "locks", "dlock/", "dlock0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(free.AuthEnable(t.Context()))
	root, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Username: "root", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// The tokens by which the servers know their users end: by time, because users
// change, with a restart that forgets them all. Nobody notices: the holder keeps its
// lock, and the waiter is told at once, also when its watch has to be opened anew.
func TestFault42AuthTokensEnd(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	for name, end := range map[string]func(t *testing.T, c *etcdtest.Cluster, root *clientv3.Client, p *proxytest.Proxy){
		"by time": func(t *testing.T, _ *etcdtest.Cluster, root *clientv3.Client, _ *proxytest.Proxy) {
			<-time.After(2500 * time.Millisecond)
		},
		"by time, and the watch breaks": func(t *testing.T, _ *etcdtest.Cluster, root *clientv3.Client, p *proxytest.Proxy) {
			<-time.After(2500 * time.Millisecond)
			p.Cut()
		},
		"users change": func(t *testing.T, _ *etcdtest.Cluster, root *clientv3.Client, _ *proxytest.Proxy) {
			if _, err := root.UserAdd(t.Context(), "another", "secret"); err != nil {
				t.Fatal(err)
			}
		},
		"restart": func(t *testing.T, c *etcdtest.Cluster, root *clientv3.Client, _ *proxytest.Proxy) {
			c.Members[0].Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.Start(t, 1, "--auth-token-ttl=1", "--bcrypt-cost=4")
			root := guard(t, c)
			proxy := proxytest.Start(t, c.Members[0].Endpoint)
			handle := func() *etcd.Store { return open(t, "etcd://locker:secret@"+proxy.Addr+"/") }
			holder, waiter := locktest.NewClient(t, handle(), told), locktest.NewClient(t, handle(), told)
			h := locktest.Lock(t, holder, "a")
			waits := locktest.Begin(t, waiter, "a")
			locktest.Queued(t, handle(), "a", 1)
			renewing := locktest.NewClient(t, handle(), notLost(t, dlock.Options{TTL: lease}))
			renewed := locktest.Lock(t, renewing, "b")
			end(t, c, root, proxy)
			unlockAnyway(t, h)
			next, _ := waits.Granted(locktest.Soon + time.Second)
			if next.Token() <= h.Token() {
				t.Errorf("token %d after %d", next.Token(), h.Token())
			}
			locktest.Unlock(t, next)
			// What was renewed before the end is over by then.
			select {
			case <-renewed.Done():
				t.Fatal(renewed.Err())
			case <-time.After(lease + 500*time.Millisecond):
			}
			locktest.Unlock(t, renewed)
		})
	}
}

// Space runs out amid an ask that has its place by then. It is not said to have come
// to nothing, so its caller gives that back.
func TestFault41NoSpaceBehindAPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	acquire := func(on store.Store, name string, id int, mode store.Mode, held bool) store.Request {
		t.Helper()
		r := locktest.Request(name, id)
		r.Mode, r.TTL, r.WaitTTL = mode, time.Minute, time.Minute
		if g, err := on.Acquire(t.Context(), r); err != nil || g.Held != held {
			t.Fatalf("got %+v, %v", g, err)
		}
		return r
	}
	holder := acquire(s.direct, "a", 1, store.Exclusive, true)
	dead := open(t, s.cluster.URL())
	acquire(dead, "a", 2, store.Shared, false)
	dead.Close()
	left := acquire(h, "a", 3, store.Shared, false)                      // so that h takes places of this name at once
	if err := h.Release(t.Context(), locktest.RefTo(left)); err != nil { // first, or it may be granted and grant the dead one
		t.Fatal(err)
	}
	locktest.Release(t, s.direct, holder)

	s.wire.on("Txn", full, 2) // the first takes a place, the second makes the hold before it
	r := locktest.Request("a", 4)
	r.Mode, r.TTL, r.WaitTTL = store.Shared, time.Minute, time.Minute
	_, err := h.Acquire(t.Context(), r)
	if err == nil || errors.Is(err, store.ErrRefused) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	if n := len(s.state("a").Queue) + len(s.state("a").Holders); n != 2 {
		t.Fatalf("%d places: the fault has not bitten", n)
	}
	if err := h.Release(t.Context(), locktest.RefTo(r)); err != nil {
		t.Error(err)
	}
}

// Space runs out with a request that is carried out all the same: etcd says that it is
// refused. Nothing is left of it, neither a hold nor a place.
func TestFault41NoSpaceAfterAll(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := s.wire.store(t, s.cluster.Endpoints())
	bystander := locktest.Request("b", 1)
	bystander.TTL = time.Minute
	locktest.Hold(t, s.direct, bystander)
	keys := len(s.keys())
	reader := locktest.Request("b", 3)
	reader.Mode = store.Shared
	for _, tc := range []struct {
		r  store.Request
		at int // the transaction that writes
	}{{locktest.Request("a", 2), 1}, {reader, 2}} {
		s.wire.on("Txn", overfull, tc.at)
		_, err := h.Acquire(t.Context(), tc.r)
		locktest.MustBe(t, err, store.ErrRefused)
		if n := s.wire.requests("Txn"); n != tc.at+1 { // one deletes what is there
			t.Errorf("%d transactions, want %d: the fault has not bitten", n, tc.at+1)
		}
		if left := s.keys(); len(left) != keys {
			t.Errorf("left: %q", left)
		}
	}
	// If it cannot be deleted at once, nobody says that nothing was granted, and it goes
	// when it can.
	s.wire.plan(func(method string, n int) action {
		switch {
		case method == "Txn" && n == 1:
			return overfull
		case method == "Range" && n <= 3:
			return full
		}
		return pass
	})
	late := locktest.Request("a", 4)
	late.TTL, late.WaitTTL = time.Minute, time.Minute
	_, err := h.Acquire(t.Context(), late)
	if err == nil || errors.Is(err, store.ErrRefused) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	locktest.Poll(t, "nothing left", locktest.Patience, func() bool { return len(s.keys()) == keys })
	if n := s.wire.requests("Range"); n < 4 {
		t.Errorf("%d reads: the fault has not bitten", n)
	}
}

// A writer takes its place before it comes upon what is not a lock's. It says so, and
// the place is not left.
func TestFault32ForeignKeyLeavesNoPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := open(t, s.cluster.URL())
	request := func(name string, id int) store.Request {
		r := locktest.Request(name, id)
		r.TTL, r.WaitTTL = time.Minute, time.Minute
		return r
	}
	for id, held := range []bool{true, false} { // for the lease that places hang on
		if g, err := h.Acquire(t.Context(), request("b", id)); err != nil || g.Held != held {
			t.Fatalf("got %+v, %v", g, err)
		}
	}
	if _, err := s.admin.Put(t.Context(), etcd.DirOf("a")+"not an id", "not a lock"); err != nil {
		t.Fatal(err)
	}
	keys := len(s.keys())
	_, err := h.Acquire(t.Context(), request("a", 3))
	locktest.MustBe(t, err, store.ErrForeignKey)
	if left := s.keys(); len(left) != keys {
		t.Errorf("left: %q", left)
	}
}

// A user holds a lock and loses the right to its name. The user can then lock no other name with the same TTL, until the
// lease of the hold ends. docs/etcd.md says so.
func TestRightToOneNameLost(t *testing.T) {
	t.Parallel()
	c := etcdtest.Start(t, 1, "--bcrypt-cost=4")
	root := guard(t, c)
	s := open(t, "etcd://locker:secret@"+c.Members[0].Endpoint)
	lost, other := locktest.Request("lost", 1), locktest.Request("other", 2)
	lost.TTL, other.TTL = 3*time.Second, 3*time.Second
	locktest.Hold(t, s, lost)
	_, err := root.RoleGrantPermission(t.Context(), "locks", "dlock/other/", "dlock/other0", clientv3.PermissionType(clientv3.PermReadWrite))
	if err == nil {
		_, err = root.RoleRevokePermission(t.Context(), "locks", "dlock/", "dlock0")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(t.Context(), other)
	locktest.MustBe(t, err, store.ErrRefused)
	locktest.MustBe(t, s.Renew(t.Context(), []store.Ref{locktest.RefTo(lost)})[0], store.ErrRefused)
	locktest.Poll(t, "the end of the lease", lost.TTL+locktest.Late, func() bool {
		g, err := s.Acquire(t.Context(), other)
		return err == nil && g.Held
	})
}
