package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
)

// told has leases so long that who waits asks every seven seconds: whoever gets
// in soon was told to by its watch.
var told = dlock.Options{TTL: 21 * time.Second, WaitTTL: 21 * time.Second, StoreTimeout: time.Second}

// The servers forget the past under somebody who waits. Nobody notices.
func TestFault51CompactionUnderAWaiter(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	h := locktest.Lock(t, s.near(told), "a")
	line := s.line(told, "a", 2)
	for range 3 {
		locktest.Unlock(t, locktest.Lock(t, s.near(told), "other"))
		s.cluster.Compact()
	}
	locktest.Unlock(t, h)
	inOrder(t, line, locktest.Soon, locktest.Unlock)
	s.over("a", told)
}

// The connection of a waiter is gone while the lock is released, and what happened
// meanwhile has been forgotten when the watch would go on. The waiter looks anew.
func TestFault51CompactionWhileTheWatchIsBroken(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	c, proxies := s.behind(told)
	h := locktest.Lock(t, s.near(told), "a")
	waits := locktest.Begin(t, c, "a")
	s.queued("a", 1)
	proxies[0].Blackhole(true)
	locktest.Unlock(t, h) // of which the watch is told in vain
	for i := range 3 {
		if _, err := s.admin.Put(t.Context(), fmt.Sprint("foreign ", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	s.cluster.Compact()
	waits.Waits()
	proxies[0].Blackhole(false)
	next, _ := waits.Granted(locktest.Soon)
	s.holds(next)
	locktest.Unlock(t, next)
}

// The member that a waiter is connected to is killed and comes back. The waiter
// gets in as soon as it does, whether the lock was released before or after.
func TestFault52MemberRestarted(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"released before": true, "released after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			restarts, others := s.oneFollower()
			holder, waiter := s.at(told, others...), s.at(told, restarts)
			h := locktest.Lock(t, holder, "a")
			waits := locktest.Begin(t, waiter, "a")
			s.queued("a", 1)
			restarts.Kill()
			if before {
				locktest.Unlock(t, h)
			}
			restarts.Restart()
			if !before {
				waits.Waits()
				locktest.Unlock(t, h)
			}
			next, _ := waits.Granted(locktest.Soon + time.Second) // the pause before it connects again
			s.holds(next)
			locktest.Unlock(t, next)
		})
	}
}

// The only server is killed and comes back, again and again, under a holder and
// its waiters. The holder keeps its lock and the waiters their order.
func TestFault52ServerRestarted(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	o := notLost(t, told)
	h := locktest.Lock(t, s.near(o), "a")
	line := s.line(o, "a", 2)
	for range 3 {
		s.cluster.Members[0].Restart()
	}
	s.holds(h)
	unlockAnyway(t, h)
	inOrder(t, line, 2*locktest.Soon+time.Second, unlockAnyway)
}

// The member that a waiter is connected to is cut off from the others, so it has
// no leader and hears of nothing. It ends the watch, for the waiter has asked it
// to, who opens it anew until there is a leader again, and is then told at once.
func TestFault53MemberWithoutLeader(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	one, others := s.oneFollower()
	handle, calls := counted(t, &etcdtest.Cluster{Members: []*etcdtest.Member{one}})
	holder, waiter := s.at(told, others...), locktest.NewClient(t, handle, told)
	h := locktest.Lock(t, holder, "a")
	waits := locktest.Begin(t, waiter, "a")
	s.queued("a", 1)
	locktest.Unlock(t, h)
	first, _ := waits.Granted(locktest.Soon) // so there is a watch, which is kept for a second
	locktest.Unlock(t, first)
	h = locktest.Lock(t, holder, "a")
	waits = locktest.Begin(t, waiter, "a")
	s.queued("a", 1)
	calls.take()
	for _, m := range others {
		m.Pause()
	}
	locktest.Poll(t, "the watch is opened anew", locktest.Patience, func() bool { return calls.take()["Watch"] > 0 })
	for _, m := range others {
		m.Resume()
	}
	s.cluster.Leader()
	waits.Waits()
	unlockAnyway(t, h)
	next, _ := waits.Granted(locktest.Soon + time.Second) // the pause before it watches again
	s.holds(next)
	locktest.Unlock(t, next)
}
