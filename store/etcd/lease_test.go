package etcd

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/locktest"
)

// A hold is made on a lease that was renewed a while ago. What is told of its time has a margin for all the time in which
// the server's clock may have been faster, not only for the rest.
func TestFault64ToldTimeShrinksWithTheAge(t *testing.T) {
	t.Parallel()
	s, err := Open(etcdtest.Start(t, 1).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first, second := locktest.Request("a", 1), locktest.Request("b", 2)
	first.TTL, second.TTL = 30*time.Second, 30*time.Second
	locktest.Hold(t, s, first)
	l := s.leases.list()[0]
	age := time.Duration(l.kind.granted()) * time.Second / 3
	s.leases.mu.Lock()
	l.sent, l.until = l.sent.Add(-age), l.until.Add(-age)
	rest := time.Until(l.until)
	s.leases.mu.Unlock()
	g, err := s.Acquire(t.Context(), second)
	if most := rest - age/100; err != nil || !g.Held || g.TTL > most || g.TTL < second.TTL*2/3 {
		t.Errorf("told %v of the %v that are left after %v, want at most %v, %v", g.TTL, rest, age, most, err)
	}
}

// A program that uses many TTLs keeps nothing of those that it uses no more.
func TestUnusedKindsAreForgotten(t *testing.T) {
	ls := &leases{m: make(map[leaseKind][]*lease)}
	now := time.Now()
	for n := range 10 {
		kind := holdsFor(time.Duration(n+1) * time.Minute)
		ls.m[kind] = []*lease{{kind: kind, until: now.Add(-time.Second)}}
	}
	used := holdsFor(time.Hour)
	ls.m[used] = []*lease{{kind: used, keys: 1, until: now.Add(time.Hour)}}
	if all := ls.list(); len(all) != 1 || len(ls.m) != 1 || len(ls.m[used]) != 1 {
		t.Errorf("%d leases are left, of %d kinds", len(all), len(ls.m))
	}
}
