package etcd_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/proxytest"
)

// The holder's link loses everything while a rival waits. In every run the
// holder has been told before the rival is granted, by one clock. It runs alone: a
// process that gets no processor for longer than the margin is told late.
func TestFault10NoOverlap(t *testing.T) {
	groups, runs := 1, 3
	if os.Getenv("DLOCK_PROVE") != "" {
		groups, runs = 5, 10
	}
	s := newSite(t, 1)
	var leads []time.Duration
	for group := range groups {
		var mu sync.Mutex
		var running sync.WaitGroup
		for run := range runs {
			name := strconv.Itoa(group) + " " + strconv.Itoa(run)
			c, proxies := s.behind(shortLease)
			rival := s.near(shortLease)
			running.Go(func() {
				lead := s.lead(c, proxies, rival, name)
				mu.Lock()
				defer mu.Unlock()
				leads = append(leads, lead)
			})
		}
		running.Wait()
	}
	slices.Sort(leads)
	if len(leads) < groups*runs {
		t.Fatal("a run has failed")
	}
	t.Logf("the holder was told before the rival by %v to %v", leads[0], leads[len(leads)-1])
	if leads[0] <= 0 {
		t.Errorf("in a run the holder was told %v after the rival had been granted", -leads[0])
	}
}

// lead is how long before the rival's grant a holder was told who had lost its
// link at some moment of its lease.
func (s *site) lead(c *dlock.Client, proxies []*proxytest.Proxy, rival *dlock.Client, name string) time.Duration {
	h := locktest.Lock(s.t, c, name)
	waits := locktest.Begin(s.t, rival, name)
	s.queued(name, 1)
	<-time.After(rand.N(shortLease.TTL))
	ended := locktest.Ended(h)
	for _, p := range proxies {
		p.Blackhole(true)
	}
	next, granted := waits.Granted(shortLease.TTL + lag + locktest.Late)
	told := <-ended
	for _, p := range proxies {
		p.Blackhole(false)
	}
	locktest.MustBe(s.t, h.Unlock(), dlock.ErrLost)
	locktest.Unlock(s.t, next)
	return granted.Sub(told)
}
