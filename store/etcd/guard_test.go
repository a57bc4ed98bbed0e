package etcd_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store/etcd"
)

// guarded is a client whose holds guard transactions.
type guarded struct {
	*site
	t      *testing.T
	handle *etcd.Store
	*dlock.Client
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	s := newSite(t, 1)
	handle := open(t, s.cluster.URL())
	return &guarded{s, t, handle, locktest.NewClient(t, handle, longLease)}
}

// commits runs a transaction with the Guard of h.
func (g *guarded) commits(h interface {
	Name() string
	Token() uint64
}) bool {
	g.t.Helper()
	answer, err := g.admin.Txn(g.t.Context()).If(g.handle.Guard(h)).Then(clientv3.OpPut("config", "new")).Commit()
	if err != nil {
		g.t.Fatal(err)
	}
	return answer.Succeeded
}

// A transaction of the user's own commits while the lock is held, and not after that.
func TestGuard(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	h := locktest.Lock(t, g.Client, "a")
	if !g.commits(h) {
		t.Error("it does not commit while the lock is held")
	}
	if _, err := g.direct.Break(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	next := locktest.Lock(t, g.near(longLease), "a")
	if g.commits(h) || g.commits(next) {
		t.Error("it commits after the lock was lost, or for a hold of another handle")
	}
	locktest.Unlock(t, next)
	if h.Unlock(); g.commits(h) {
		t.Error("it commits after the release")
	}
}

// locally calls try until the client has given a hold without a call of the store, which it does for a short time
// after a grant alone.
func (g *guarded) locally(try func() (earlier, present *dlock.Hold)) (earlier, present *dlock.Hold) {
	g.t.Helper()
	for deadline := time.Now().Add(locktest.Patience); time.Now().Before(deadline); {
		before := g.Stats().LocalHandovers
		earlier, present = try()
		if g.Stats().LocalHandovers > before {
			return earlier, present
		}
		earlier.Unlock()
		locktest.Unlock(g.t, present)
	}
	g.t.Fatal("no local hand-over")
	return nil, nil
}

// handedOver returns a hold that was unlocked, and the next one, to which it was handed over inside the process.
func (g *guarded) handedOver(name string) (earlier, present *dlock.Hold) {
	g.t.Helper()
	return g.locally(func() (earlier, present *dlock.Hold) {
		holder := locktest.Lock(g.t, g.Client, name) // a waiter that is alone in its process reserves no tokens
		first := locktest.Begin(g.t, g.Client, name)
		locktest.Poll(g.t, "a waiter", locktest.Patience, func() bool { return g.Stats().Waiters == 1 })
		second := locktest.Begin(g.t, g.Client, name)
		locktest.Poll(g.t, "two waiters", locktest.Patience, func() bool { return g.Stats().Waiters == 2 })
		g.queued(name, 1)
		locktest.Unlock(g.t, holder)
		earlier, _ = first.Granted(locktest.Patience)
		locktest.Unlock(g.t, earlier)
		present, _ = second.Granted(locktest.Patience)
		return earlier, present
	})
}

// TestGuardAfterLocalHandOver: a hold that was handed over inside the process is guarded, and the one before it is not,
// though the store still has the lock with its token.
func TestGuardAfterLocalHandOver(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	earlier, present := g.handedOver("a")
	if !g.commits(present) {
		t.Error("it does not commit for the present holder")
	}
	if g.commits(earlier) {
		t.Error("it commits for the hold that was unlocked")
	}
	if _, err := g.direct.Break(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if g.commits(present) {
		t.Error("it commits after the lock was lost")
	}
}

// TestGuardAfterDowngrade: a reader's hold inside a hold that was handed over has its token, and is guarded when it
// alone is left.
func TestGuardAfterDowngrade(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	_, writer := g.handedOver("a")
	reader, err := g.RWMutex("a").RLockContext(writer.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if !g.commits(writer) || !g.commits(reader) {
		t.Error("it does not commit while both are held")
	}
	locktest.Unlock(t, writer)
	if !g.commits(reader) {
		t.Error("it does not commit for the reader")
	}
	if g.commits(writer) {
		t.Error("it commits for the writer that has unlocked")
	}
	locktest.Unlock(t, reader)
	if g.commits(reader) {
		t.Error("it commits after the release")
	}
}

// TestGuardAfterUpgrade: an owner's reader's hold and its upgrade are guarded, each with its own token.
func TestGuardAfterUpgrade(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	lock := g.RWMutex("a")
	reader, err := lock.RLockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	writer, err := lock.LockContext(reader.Context(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	if !g.commits(reader) || !g.commits(writer) {
		t.Error("it does not commit while both are held")
	}
	locktest.Unlock(t, writer)
	if !g.commits(reader) || g.commits(writer) {
		t.Error("it commits for the writer that has unlocked, or not for the reader")
	}
}

// TestGuardOfJoinedReader: a reader that shares the hold of another one is guarded, also when that has unlocked.
func TestGuardOfJoinedReader(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	first, joined := g.locally(func() (first, joined *dlock.Hold) {
		var err error
		for _, h := range []**dlock.Hold{&first, &joined} {
			if *h, err = g.RWMutex("a").RLockContext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return first, joined
	})
	if !g.commits(first) || !g.commits(joined) {
		t.Error("it does not commit while both are held")
	}
	locktest.Unlock(t, first)
	if !g.commits(joined) || g.commits(first) {
		t.Error("it commits for the reader that has unlocked, or not for the other one")
	}
}

// token is a hold that does not say whether it has ended.
type token uint64

func (token) Name() string    { return "a" }
func (h token) Token() uint64 { return uint64(h) }

// TestGuardOfSpan: the tokens that a request has reserved are guarded, and no others.
func TestGuardOfSpan(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	r := locktest.LongRequest("a", 1, false)
	r.Tokens = 3
	base := locktest.Hold(t, g.handle, r).Token
	for _, test := range []struct {
		token uint64
		want  bool
	}{{base - 1, false}, {base, true}, {base + 2, true}, {base + 3, false}} {
		if got := g.commits(token(test.token)); got != test.want {
			t.Errorf("tokens from %d, guard with %d: commits: %v, want %v", base, test.token, got, test.want)
		}
	}
}
