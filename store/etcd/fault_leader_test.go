package etcd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
)

// line has n clients wait for a lock that is held, one after the other.
func (s *site) line(o dlock.Options, name string, n int) (line []*locktest.Waiting) {
	s.t.Helper()
	for i := range n {
		line = append(line, locktest.Begin(s.t, s.near(o), name))
		s.queued(name, i+1)
	}
	return line
}

// inOrder asserts that a line gets in, one after the other.
func inOrder(t *testing.T, line []*locktest.Waiting, within time.Duration, unlock func(testing.TB, *dlock.Hold)) {
	t.Helper()
	var last uint64
	for i, w := range line {
		h, _ := w.Granted(within)
		if h.Token() <= last {
			t.Errorf("token %d after %d", h.Token(), last)
		}
		last = h.Token()
		for _, behind := range line[i+1:] {
			behind.Waits()
		}
		unlock(t, h)
	}
}

// notLost are options with which no hold may be lost.
func notLost(t *testing.T, o dlock.Options) dlock.Options {
	o.OnLost = func(*dlock.Hold) { t.Error("a hold was lost") }
	return o
}

// The leader changes again and again while a lock is held and waited for. The
// holder keeps it for longer than its lease, and the waiters get in in order.
func TestFault36LeaderMoves(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	o := notLost(t, dlock.Options{TTL: 3 * time.Second})
	h := locktest.Lock(t, s.near(o), "a")
	began := time.Now()
	line := s.line(o, "a", 3)
	moves := 0
	for ; moves < 3 || time.Since(began) < o.TTL*3/2; moves++ {
		s.cluster.MoveLeader()
	}
	t.Log(moves, "moves in", time.Since(began))
	s.holds(h)
	locktest.Unlock(t, h)
	inOrder(t, line, o.TTL, locktest.Unlock)
	s.over("a", o)
}

// One member of three stops, be it the leader or another. Calls that are on their
// way to it are not answered, but all go on: the holder keeps its lock, and the
// waiters get in in order.
func TestFault36MemberStops(t *testing.T) {
	t.Parallel()
	for _, which := range []string{"leader", "follower"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			o := notLost(t, dlock.Options{TTL: 4 * time.Second, StoreTimeout: 700 * time.Millisecond})
			patient := o
			patient.TTL, patient.WaitTTL = 20*time.Second, o.TTL
			h := locktest.Lock(t, s.near(o), "a")
			line := s.line(patient, "a", 2)
			stops := s.cluster.Leader()
			if which == "follower" {
				stops, _ = s.oneFollower()
			}
			stops.Pause()
			s.cluster.Leader()
			// What was renewed before is over by then.
			select {
			case <-h.Done():
				t.Fatal(h.Err())
			case <-time.After(o.TTL + 500*time.Millisecond):
			}
			unlockAnyway(t, h)
			inOrder(t, line, 2*o.TTL, unlockAnyway)
			stops.Resume()
		})
	}
}

// unlockAnyway accepts that a release is still on its way.
func unlockAnyway(t testing.TB, h *dlock.Hold) {
	t.Helper()
	if err := h.Unlock(); err != nil && !errors.Is(err, dlock.ErrUnavailable) {
		t.Fatal(err)
	}
}

// Two members of three stop. The holder is told when what it knows of its lease
// is over, nobody is granted and a try says that the store is unavailable. When
// they go on, the waiters get in in order, with greater tokens.
func TestFault36QuorumLost(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	o := dlock.Options{TTL: 2 * time.Second}
	c := s.near(o)
	h := locktest.Lock(t, c, "a")
	line := s.line(dlock.Options{TTL: 20 * time.Second, WaitTTL: 20 * time.Second}, "a", 3)
	ended := locktest.Ended(h)
	_, others := s.oneFollower() // the leader is among them
	for _, m := range others {
		m.Pause()
	}
	stopped := time.Now()
	if after := (<-ended).Sub(stopped); after > o.TTL+locktest.Late {
		t.Errorf("told %v after the quorum was lost, with a lease of %v", after, o.TTL)
	}
	locktest.MustBe(t, h.Err(), dlock.ErrLost)
	_, err := c.Mutex("b").TryLockContext(t.Context())
	locktest.MustBe(t, err, dlock.ErrUnavailable)
	for _, w := range line {
		w.Waits()
	}
	for _, m := range others {
		m.Resume()
	}
	s.cluster.Leader()
	inOrder(t, line, expired(2*o.TTL)+locktest.Soon, locktest.Unlock) // a new leader gives a lease its time again
	locktest.MustBe(t, h.Unlock(), dlock.ErrLost)
}

// The leader changes while the lock of a killed process runs out. Each change
// gives the lease its full time again, and no more than that.
func TestFault39LeaderMovesAfterHolderDied(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	s := newSite(t, 3)
	o := notLost(t, dlock.Options{TTL: 8 * time.Second})
	live := locktest.Lock(t, s.near(o), "live")
	holder := locktest.StartChild(t, "hold", s.cluster.URL(), "a", lease)
	token := tokenOf(t, holder.Says("held"))
	waits := locktest.Begin(t, s.near(o), "a")
	s.queued("a", 1)
	holder.Kill()
	killed := time.Now()
	var moved time.Time
	for time.Since(killed) < lease*3/2 {
		s.cluster.MoveLeader()
		moved = time.Now()
	}
	h, at := waits.Granted(locktest.Patience)
	// A new leader adds an election timeout, in which it may not be heard of.
	if after := at.Sub(moved); after > expired(lease)+500*time.Millisecond {
		t.Errorf("granted %v after the last change, with a lease of %v", after, lease)
	}
	t.Log("granted", at.Sub(killed), "after the holder was killed,", at.Sub(moved), "after the last change of leader")
	if h.Token() <= token {
		t.Errorf("token %d after %d", h.Token(), token)
	}
	locktest.Unlock(t, h)
	s.holds(live)
	locktest.Unlock(t, live)
	s.over("a", o)
}
