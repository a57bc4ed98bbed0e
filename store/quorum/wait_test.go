package quorum_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/quorum"
)

// dlock opens a client of dlock over a handle.
func (s *site) dlock(c *client) *dlock.Client {
	s.t.Helper()
	d, err := dlock.New(c, &dlock.Options{TTL: lease})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// TestFewRequestsBehindALongHold: a waiter can have the one node that the holder cannot reach, again and again. It does
// not ask all day. When the holder reaches that node again, it takes it with a renewal, and the waiter sleeps.
func TestFewRequestsBehindALongHold(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		da, db := s.dlock(a), s.dlock(b)
		heal := a.cut(down, 2)
		h, err := da.Mutex("n").LockContext(bg)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *dlock.Hold, 1)
		go func() {
			h, err := db.Mutex("n").LockContext(bg)
			if err != nil {
				t.Error(err)
			}
			granted <- h
		}()
		inAMinute := func() int64 {
			before := db.Stats().StoreCalls
			time.Sleep(time.Minute)
			return db.Stats().StoreCalls - before
		}
		time.Sleep(time.Minute)
		if n := inAMinute(); n > 300 {
			t.Errorf("%d requests in a minute behind a hold that lacks a node", n)
		}
		heal()
		time.Sleep(time.Minute)
		if n := inAMinute(); n > 60 {
			t.Errorf("%d requests in a minute behind a hold of all nodes", n)
		}
		began := time.Now()
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
		h = <-granted
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("the waiter was granted after %v", took)
		}
		if err := errors.Join(h.Unlock(), da.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestRetryIsNotAfterTheLease: however often a waiter has asked, it asks again when the hold in its way has ended.
func TestRetryIsNotAfterTheLease(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		a.cut(down, 2)
		s.hold(a, request("a", 1))
		for ends := time.Now().Add(lease); time.Now().Before(ends); time.Sleep(100 * time.Millisecond) {
			g, err := b.Acquire(bg, waiting(request("b", 1)))
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(ends); !g.Held && g.Retry > left+300*time.Millisecond {
				t.Errorf("%v before the end of the lease: got Retry %v", left, g.Retry)
			}
		}
		s.hold(b, request("b", 1))
	})
}

// TestWokenByPush: who waits hears of the release at once, not when Retry is over.
func TestWokenByPush(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		for _, dead := range []bool{false, true} {
			a, b := s.client(), s.client()
			if dead {
				a.cut(faultstore.Mute(), 2)
				b.cut(faultstore.Mute(), 2)
			}
			da, db := s.dlock(a), s.dlock(b)
			h, err := da.Mutex("m").LockContext(bg)
			if err != nil {
				t.Fatal(err)
			}
			woken := make(chan time.Time)
			go func() {
				h, err := db.Mutex("m").LockContext(bg)
				woken <- time.Now()
				if err != nil {
					t.Error(err)
					return
				}
				h.Unlock()
			}()
			time.Sleep(100 * time.Millisecond)
			released := time.Now()
			h.Unlock()
			if after := (<-woken).Sub(released); after > 10*time.Millisecond {
				t.Errorf("a node dead: %v: woken %v after the release", dead, after)
			}
			da.Close()
			db.Close()
		}
	})
}

// TestFault22AllNodesVoteForDifferentClients: each client is first at another
// node. One wins soon, and so do the others.
func TestFault22AllNodesVoteForDifferentClients(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		inBubble(t, nodes, func(s *site) {
			var locks []*dlock.Mutex
			var clients []*dlock.Client
			for i := range nodes {
				c := s.client()
				for k, link := range c.links {
					if k != i {
						link.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(5*time.Millisecond))
					}
				}
				d := s.dlock(c)
				clients = append(clients, d)
				locks = append(locks, d.Mutex("m"))
			}
			start := time.Now()
			var all sync.WaitGroup
			for i, m := range locks {
				all.Go(func() {
					h, err := m.LockContext(bg)
					if err != nil {
						t.Errorf("client %d: %v", i, err)
						return
					}
					h.Unlock()
				})
			}
			all.Wait()
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("%d nodes: it took %v", nodes, took)
			}
			for _, d := range clients {
				d.Close()
			}
		})
	}
}

// TestOneOfSeveralTriesWins: though none had a majority at first.
func TestOneOfSeveralTriesWins(t *testing.T) {
	for range 20 {
		inBubble(t, 3, func(s *site) {
			results := make(chan bool, 3)
			for i := range 3 {
				c := s.client()
				for k, link := range c.links {
					if k != i {
						link.On(faultstore.Acquire, faultstore.Nth(1), faultstore.DelayRequest(5*time.Millisecond))
					}
				}
				go func() {
					g, _ := c.Acquire(bg, request(string(rune('a'+i)), 1))
					results <- g.Held
				}()
			}
			won := 0
			for range 3 {
				if <-results {
					won++
				}
			}
			want(t, "how many won", won, 1)
		})
	}
}

// TestContention: many clients, slow links, readers among them.
func TestContention(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		inBubble(t, nodes, func(s *site) {
			var all sync.WaitGroup
			var clients []*dlock.Client
			var mu sync.Mutex
			writers, readers, last := 0, 0, uint64(0)
			start := time.Now()
			for i := range 6 {
				c := s.client()
				for k, link := range c.links {
					link.On(faultstore.Any, faultstore.Every, faultstore.DelayRequest(time.Duration(1+(i*3+k*5)%7)*time.Millisecond/2))
				}
				d := s.dlock(c)
				clients = append(clients, d)
				m := d.RWMutex("m")
				all.Go(func() {
					for k := range 20 {
						lock := m.LockContext
						if (i+k)%3 == 0 {
							lock = m.RLockContext
						}
						h, err := lock(bg)
						if err != nil {
							t.Errorf("client %d: %v", i, err)
							return
						}
						mu.Lock()
						count := &writers
						if (i+k)%3 == 0 {
							count = &readers
						} else if h.Token() <= last {
							t.Errorf("token %d after %d", h.Token(), last)
						}
						last = max(last, h.Token())
						*count++
						if writers > 1 || writers == 1 && readers > 0 {
							t.Errorf("%d writers and %d readers", writers, readers)
						}
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						*count--
						mu.Unlock()
						h.Unlock()
					}
				})
			}
			all.Wait()
			t.Logf("%d nodes: 120 holds in %v", nodes, time.Since(start))
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("%d nodes: it took %v", nodes, took)
			}
			for _, d := range clients {
				d.Close()
			}
		})
	}
}

// TestFault21MinorityCostsAtMostATimeout: dead, hung or slow, alone and as a holder's.
func TestFault21MinorityCostsAtMostATimeout(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{"dead": down, "hung": faultstore.Mute(), "slow": faultstore.DelayReply(time.Second)} {
		for _, nodes := range []int{3, 5} {
			t.Run(fmt.Sprint(name, " of ", nodes), func(t *testing.T) {
				inBubble(t, nodes, func(s *site) {
					a, b := s.client(), s.client()
					var few []int
					for i := range nodes / 2 {
						few = append(few, i)
					}
					a.cut(fault, few...)
					b.cut(fault, few...)
					for i := range 10 {
						start := time.Now()
						r := request("a", i)
						s.hold(a, r)
						s.refused(b, request("b", i), store.ErrHeld)
						s.refused(b, waiting(request("c", i)), nil)
						if err := s.renew(a, r); err != nil {
							t.Fatal(err)
						}
						s.release(a, r)
						s.release(b, request("c", i))
						// Only the first call finds out that it is no use to wait a little.
						if took := time.Since(start); took > 20*time.Millisecond {
							t.Errorf("round %d took %v", i, took)
						}
					}
				})
			})
		}
	}
}

// TestFault23MajorityLost: the error comes after a node's timeout, it is none that
// says that somebody holds, and the holder is told before anybody else could hold.
func TestFault23MajorityLost(t *testing.T) {
	for name, x := range map[string]struct {
		fault faultstore.Fault
		after time.Duration
	}{"dead": {down, 0}, "hung": {faultstore.Mute(), 500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(s *site) {
				a, b := s.client(), s.client()
				d := s.dlock(a)
				h, err := d.Mutex("n").LockContext(bg)
				if err != nil {
					t.Fatal(err)
				}
				cut := time.Now()
				heal := a.cut(x.fault, 1, 2)
				s.refused(a, request("a", 1), quorum.ErrNoQuorum)
				want(t, "the error took", time.Since(cut), x.after)
				_, err = d.Mutex("other").TryLockContext(bg)
				var why *quorum.NoQuorumError
				if !errors.Is(err, quorum.ErrNoQuorum) || !errors.As(err, &why) || !errors.Is(err, dlock.ErrUnavailable) {
					t.Errorf("TryLockContext: got %v, want it unavailable for want of a quorum", err)
				}
				<-h.Done()
				if !errors.Is(h.Err(), dlock.ErrLost) {
					t.Errorf("Err: got %v", h.Err())
				}
				told := time.Now()
				g, err := b.Acquire(bg, waiting(request("b", 1)))
				if g.Held || err != nil {
					t.Errorf("the moment that the holder is told, %v after the loss: got %+v, %v", told.Sub(cut), g, err)
				}
				heal()
				d.Close()
				synctest.Wait()
			})
		})
	}
}

// A request that is not granted names a holder, as its nodes do.
func TestHeldBy(t *testing.T) {
	inBubble(t, 3, func(s *site) {
		a, b := s.client(), s.client()
		first := request("a", 1)
		first.Label = "the first"
		s.hold(a, first)
		for _, r := range []store.Request{request("b", 1), waiting(request("b", 2))} {
			g, _ := b.Acquire(bg, r)
			want(t, "HeldBy", g.HeldBy, "the first")
		}
	})
}
