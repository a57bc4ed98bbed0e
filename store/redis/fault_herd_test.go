package redis_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store/redis"
)

// Somebody floods the channel of a waiter with what looks like events. None of
// it is believed, and what it costs the server is bounded.
func TestFault54ForgedMessages(t *testing.T) {
	for name, forged := range map[string]struct {
		text  func(own string, told uint64) string
		times int
	}{
		"junk":             {func(string, uint64) string { return "junk" }, 100_000},
		"other id":         {func(string, uint64) string { return strings.Repeat("f", 32) + " 9007199254740991" }, 100_000},
		"own id, past":     {func(own string, told uint64) string { return fmt.Sprintf("%s %d", own, told) }, 100_000},
		"own id, no token": {func(own string, _ uint64) string { return own + " 0" }, 1000},
		"own id, more":     {func(own string, told uint64) string { return fmt.Sprintf("%s %d x", own, told+1) }, 1000},
		"half an id":       {func(own string, told uint64) string { return fmt.Sprintf("%s %d", own[:16], told+1) }, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			holder, c := s.near(patient), s.near(patient)
			h := s.lock(holder, "a")
			ids := s.ids("a")
			waits := locktest.Begin(t, c, "a")
			s.queued("a", 1)
			locktest.Poll(t, "it listens", locktest.Patience, func() bool { return len(channels(s.server)) == 1 })
			own := strings.Replace(s.ids("a"), ids, "", 1)
			channel, text := channels(s.server)[0], forged.text(own, h.Token())

			admin, before, began := s.server.Client(), s.cost(), time.Now()
			batches := forged.times / 1000
			for i := range batches {
				batch := make(rueidis.Commands, 1000)
				for k := range batch {
					batch[k] = admin.B().Spublish().Channel(channel).Message(text).Build()
				}
				for _, answer := range admin.DoMulti(t.Context(), batch...) {
					if n, err := answer.AsInt64(); n != 1 || err != nil {
						t.Fatalf("%d heard the message, %v: the fault has not bitten", n, err)
					}
				}
				<-time.After(time.Until(began.Add(time.Duration(i+1) * 10 * time.Millisecond)))
			}
			waits.Waits()
			s.holds(h)
			// One every 10 ms at most, and that only because of a flood of events
			// that are well-formed.
			asks := s.cost() - before
			took := time.Since(began)
			most := int(took/(10*time.Millisecond)) + 5
			t.Logf("%d requests in %v", asks, took)
			if asks > most {
				t.Errorf("%d requests in %v, want at most %d", asks, took, most)
			}
			locktest.Unlock(t, h)
			next, _ := waits.Granted(locktest.Patience)
			locktest.Unlock(t, next)
		})
	}
}

// idOfALine is an id as the forms of a name have it: of a lone hold, or in a list.
var idOfALine = regexp.MustCompile(`L:([0-9a-f]{32})|([0-9a-f]{32}) [0-9]{13} `)

// ids returns those that the server knows of a lock, in one string.
func (s *site) ids(name string) (ids string) {
	for _, id := range idOfALine.FindAllStringSubmatch(s.server.MustDo("HGETALL", redis.LockKey(name)), -1) {
		ids += id[1] + id[2]
	}
	return ids
}

// Many wait in a few processes. Each hand-over costs the server the same few
// script calls, however many wait.
func TestFault55Herd(t *testing.T) {
	o := dlock.Options{TTL: 6 * time.Second, WaitTTL: 3 * time.Second}
	// From the release until the next holder has its full lease.
	t.Run("one hand-over", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		holder, c := s.near(o), s.far(o)
		s.handOver(holder, c, "a")
		h := s.lock(holder, "a")
		waits := locktest.Begin(t, c, "a")
		s.queued("a", 1)
		before := s.cost()
		locktest.Unlock(t, h)
		h, _ = waits.Granted(locktest.Soon)
		locktest.Poll(t, "the full lease", locktest.Patience, func() bool { return s.state("a").Holders[0].Remaining > o.WaitTTL })
		if n := s.cost() - before; n > 2 {
			t.Errorf("a hand-over took %d script calls, want at most 2", n)
		}
		locktest.Unlock(t, h)
	})
	for _, processes := range []int{1, 3} {
		t.Run(strconv.Itoa(processes)+" processes", func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			holder := s.near(o)
			h := s.lock(holder, "a")
			waiters := 200
			var here sync.WaitGroup
			var children []*locktest.Child
			if processes == 1 {
				c := s.near(o)
				here.Go(func() {
					if err := locktest.Storm(c, "a", waiters); err != nil {
						t.Error(err)
					}
				})
			} else {
				waiters = processes * locktest.Stormers
				for range processes {
					children = append(children, locktest.StartChild(t, "storm", s.server.URL(), "a", o.TTL))
				}
				for _, c := range children {
					c.Says("begun")
				}
			}
			s.queued("a", processes) // one of each process, whatever the number of its waiters
			locktest.Poll(t, "all listen", locktest.Patience, func() bool { return len(channels(s.server)) == processes })
			before := s.cost()
			locktest.Unlock(t, h)
			here.Wait()
			for _, c := range children {
				c.Says("done")
			}
			// Each asks once and releases once. It is renewed only if it holds on to it.
			n := float64(s.cost()-before) / float64(waiters)
			t.Logf("%.2f script calls for each of %d waiters", n, waiters)
			if n > 2.5 {
				t.Errorf("%.2f script calls for each waiter, want 2", n)
			}
		})
	}
}

// Many names are waited for through one handle. That takes a subscription for
// each partition, and one connection for each master at most.
func TestFault56ManyNames(t *testing.T) {
	o := dlock.Options{TTL: 30 * time.Second}
	waitForMany := func(t *testing.T, url string, names int, servers ...*redistest.Server) {
		holder := locktest.NewClient(t, open(t, url), o)
		waiters := open(t, url)
		c := locktest.NewClient(t, waiters, o)
		held := make([]*dlock.Hold, names)
		locktest.InParallel(t, names, func(i int) (err error) {
			held[i], err = holder.Mutex(strconv.Itoa(i)).LockContext(t.Context())
			return err
		})
		// So that c has all the connections that it needs for calls.
		for i := range 64 {
			locktest.Unlock(t, locktest.Lock(t, c, "warm "+strconv.Itoa(i)))
		}
		before := connections(servers)
		var waits []*locktest.Waiting
		for i := range names {
			waits = append(waits, locktest.Begin(t, c, strconv.Itoa(i)))
		}
		subscriptions := func() (n int) {
			for _, server := range servers {
				n += len(channels(server))
			}
			return n
		}
		for i := range names {
			locktest.Poll(t, "all wait", locktest.Patience, func() bool {
				state, err := waiters.Inspect(t.Context(), strconv.Itoa(i))
				return err == nil && len(state.Queue) == 1
			})
		}
		locktest.Poll(t, "all partitions are listened to", locktest.Patience, func() bool { return subscriptions() >= 64 })
		if n := subscriptions(); n > 64 {
			t.Errorf("%d subscriptions, want 64", n)
		}
		if more := connections(servers) - before; more > len(servers) {
			t.Errorf("%d connections more than before, want at most %d", more, len(servers))
		}
		locktest.InParallel(t, names, func(i int) error { return held[i].Unlock() })
		for _, w := range waits {
			h, _ := w.Granted(locktest.Patience)
			locktest.Unlock(t, h)
		}
	}
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		waitForMany(t, server.URL(), 2000, server)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, false)
		waitForMany(t, cluster.URL(), 500, cluster.Nodes...)
	})
}

// connections counts those of clients.
func connections(servers []*redistest.Server) (n int) {
	for _, server := range servers {
		n += strings.Count(server.MustDo("CLIENT", "LIST", "TYPE", "normal"), "id=")
		n += strings.Count(server.MustDo("CLIENT", "LIST", "TYPE", "pubsub"), "id=")
	}
	return n
}
