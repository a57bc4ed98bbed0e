package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/clocktest"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

const lease = 2 * time.Second

// timed is a server whose clock the test holds. One client holds two locks, and another waits for the first.
type timed struct {
	clock    *clocktest.Clock
	client   *dlock.Client   // the one that waits
	direct   *postgres.Store // its handle
	h, alone *dlock.Hold     // of "n" and of "alone"
	waits    *locktest.Waiting
}

func startTimed(t *testing.T) *timed {
	t.Helper()
	server, clock := postgrestest.StartWithClock(t)
	url := server.URL()
	migrate(t, url)
	options := dlock.Options{TTL: lease, WaitTTL: lease}
	holder, direct := locktest.NewClient(t, open(t, url), options), open(t, url)
	s := &timed{clock: clock, client: locktest.NewClient(t, direct, options), direct: direct}
	s.h, s.alone = locktest.Lock(t, holder, "n"), locktest.Lock(t, holder, "alone")
	s.waits = locktest.Begin(t, s.client, "n")
	locktest.Queued(t, direct, "n", 1)
	return s
}

// told asserts that the holder is told a loss within a third of a lease, when it renews.
func told(t *testing.T, h *dlock.Hold, jumped time.Time) {
	t.Helper()
	at := <-locktest.Ended(h)
	if took := at.Sub(jumped); took > lease/3+locktest.Late || !errors.Is(h.Err(), dlock.ErrLost) {
		t.Errorf("%s ended %v after the jump with %v, want ErrLost within %v", h.Name(), took, h.Err(), lease/3)
	}
	h.Unlock()
}

// TestFault61_ServerClockJumpsForward: leases end early. The holders are told by their next
// renewal, whether they have waiters or not, and tokens grow, also when the clock is set
// right again.
func TestFault61_ServerClockJumpsForward(t *testing.T) {
	t.Parallel()
	s := startTimed(t)
	jumped := time.Now()
	s.clock.Jump(time.Minute)
	told(t, s.h, jumped)
	told(t, s.alone, jumped)
	next, _ := s.waits.Granted(lease + locktest.Soon)
	if next.Token() <= s.h.Token() {
		t.Errorf("token %d after %d", next.Token(), s.h.Token())
	}
	time.Sleep(lease)
	if err := next.Err(); err != nil {
		t.Errorf("the hold that was granted after the jump: %v", err)
	}
	locktest.Unlock(t, next)
	last := next.Token()
	for _, d := range []time.Duration{0, time.Minute, -time.Minute, 0} {
		s.clock.Jump(d)
		h := locktest.Lock(t, s.client, "n")
		if h.Token() <= last {
			t.Errorf("clock at %v: token %d after %d", d, h.Token(), last)
		}
		last = h.Token()
		locktest.Unlock(t, h)
	}
}

// TestFault62_ServerClockJumpsBack: a live holder's renewal makes its lease short again, with
// and without waiters. A dead one's lasts until the clock is there again: waiters are limited
// by their contexts, and Break frees the lock.
func TestFault62_ServerClockJumpsBack(t *testing.T) {
	t.Parallel()
	s := startTimed(t)
	dead := request("dead", 1, false)
	dead.TTL = lease
	hold(t, s.direct, dead)
	remains := func(name string) time.Duration {
		state, err := s.direct.Inspect(t.Context(), name)
		if err != nil || len(state.Holders) != 1 {
			t.Fatalf("%s: got %+v, %v", name, state, err)
		}
		return state.Holders[0].Remaining
	}
	s.clock.Jump(-time.Hour)
	if remains("dead") < 59*time.Minute {
		t.Fatal("the clock has not jumped")
	}
	locktest.Poll(t, "renewals have shortened the leases", lease+locktest.Late, func() bool { return remains("n") <= lease && remains("alone") <= lease })
	s.waits.Waits()
	if s.h.Err() != nil || s.alone.Err() != nil {
		t.Errorf("the holders have %v, %v", s.h.Err(), s.alone.Err())
	}
	locktest.Unlock(t, s.h)
	next, _ := s.waits.Granted(locktest.Soon)
	if next.Token() <= s.h.Token() {
		t.Errorf("token %d after %d", next.Token(), s.h.Token())
	}
	locktest.Unlock(t, next)

	ctx, cancel := context.WithTimeout(t.Context(), lease)
	defer cancel()
	at, err := locktest.BeginWith(t, ctx, s.client, "dead").Failed(lease + locktest.Soon)
	if deadline, _ := ctx.Deadline(); !errors.Is(err, context.DeadlineExceeded) || at.After(deadline.Add(locktest.Late)) {
		t.Errorf("got %v, %v after the deadline", err, at.Sub(deadline))
	}
	if n, err := s.direct.Break(t.Context(), "dead"); err != nil || n != 1 {
		t.Errorf("Break: got %d, %v", n, err)
	}
	locktest.Unlock(t, locktest.Lock(t, s.client, "dead"))

	jumped := time.Now()
	s.clock.Jump(0)
	told(t, s.alone, jumped) // what was renewed an hour ago is over now
	again := locktest.Lock(t, s.client, "alone")
	if again.Token() <= s.alone.Token() {
		t.Errorf("token %d after %d", again.Token(), s.alone.Token())
	}
	locktest.Unlock(t, again)
	if err := s.direct.Release(t.Context(), refOf(dead)); !errors.Is(err, store.ErrLost) {
		t.Errorf("the broken hold: got %v", err)
	}
}
