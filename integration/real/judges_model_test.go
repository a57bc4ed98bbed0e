package real

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/model"
)

// story is a history made by hand, of the calls on one name. Times are in
// milliseconds; leases last for a second, places for half of one.
type story []record

const (
	aLease = time.Second
	aPlace = aLease / 2
)

func (s *story) tell(op string, n int, call, at int, outcome string, change ...func(*record)) {
	const ms = moment(time.Millisecond)
	id := strings.Repeat(string(rune('0'+n)), 32)
	r := record{
		Worker: n, Op: op, Call: moment(call) * ms, Return: moment(at) * ms, Name: "a", ID: id, Owner: "o" + id,
		TTL: aLease, WaitTTL: aPlace, Outcome: outcome,
	}
	for _, f := range change {
		f(&r)
	}
	*s = append(*s, r)
}

func (s *story) held(n, call, at int, token uint64, change ...func(*record)) {
	s.tell(opAcquire, n, call, at, held, append([]func(*record){func(r *record) { r.Token, r.Holds, r.Queue = token, 1, true }}, change...)...)
}

func (s *story) queued(n, call, at, position int, last uint64, change ...func(*record)) {
	s.tell(opAcquire, n, call, at, queued, append([]func(*record){func(r *record) { r.Token, r.Position, r.Queue = last, position, true }}, change...)...)
}

func (s *story) busy(n, call, at int) { s.tell(opAcquire, n, call, at, busy) }
func (s *story) release(n, call, at int, change ...func(*record)) {
	s.tell(opRelease, n, call, at, done, change...)
}
func (s *story) event(n, at int, token uint64) {
	s.tell(opEvent, n, at, 0, "", func(r *record) { r.Token = token })
}
func (s *story) lostAsk(n, call, at int) {
	s.tell(opAcquire, n, call, at, unknown, func(r *record) { r.Queue = true })
}
func (s *story) cut(op string, n, call int)          { s.tell(op, n, call, 0, unknown) }
func (s *story) bury(n, call, at int, became string) { s.tell(opRelease, n, call, at, became, buried) }

func reading(r *record)          { r.Shared = true }
func buried(r *record)           { r.Bury = true }
func second(n int) func(*record) { return func(r *record) { r.Holds = n } }
func of(n int) func(*record) {
	return func(r *record) { r.Owner = "o" + strings.Repeat(string(rune('0'+n)), 32) }
}
func atMs(n int) moment             { return moment(time.Duration(n) * time.Millisecond) }
func likeEtcd(e *evidence)          { e.Etcd = true }
func longer(e *evidence)            { e.Longer = true }
func doubling(e *evidence)          { e.Doubled = true }
func ends(at int) func(e *evidence) { return func(e *evidence) { e.Ends = atMs(at) } }
func loses(x, y int) func(*evidence) {
	return func(e *evidence) { e.Lossy = []span{{atMs(x), atMs(y)}} }
}

// takenAnew is an ask during which its id is granted, and lost, and then there again
// for a release to find.
func takenAnew(s *story) {
	s.tell(opAcquire, 1, 0, 20, lost, func(r *record) { r.Queue = true })
	s.event(1, 3, 1)
	s.tell(opRenew, 1, 6, 9, lost)
	s.bury(1, 10, 15, done)
}

// takenTwice is an ask during which its id is granted, and lost, and then waits.
func takenTwice(s *story) {
	s.held(1, 0, 2, 1)
	s.queued(2, 3, 40, 1, 3)
	s.release(1, 4, 5)
	s.event(2, 6, 2)
	s.held(3, 10, 12, 3)
}

// waitsAndReads is an owner whose place is granted when all other readers have gone, before
// a writer that has waited for longer.
func waitsAndReads(s *story) {
	s.held(5, 0, 2, 1)
	s.queued(2, 3, 4, 1, 1, reading)
	s.queued(1, 5, 6, 2, 1, reading)
	s.queued(3, 7, 8, 3, 1)
	s.queued(4, 9, 10, 4, 1, of(1))
	s.release(5, 11, 12)
	s.event(2, 13, 2)
	s.event(1, 14, 3)
	s.release(2, 20, 21)
	s.event(4, 25, 4)
	s.release(1, 30, 31, reading)
	s.release(4, 32, 33, of(1))
	s.event(3, 35, 5)
}

// behindUpgrade: a writer waits behind another one that is refused, because its owner reads.
func behindUpgrade(s *story) {
	s.held(1, 0, 2, 1, reading)
	s.held(2, 3, 4, 2, reading)
	s.tell(opAcquire, 3, 5, 20, upgrade, of(1), func(r *record) { r.Queue = true })
	s.queued(4, 8, 9, 2, 2)
}

// joinsReader: an owner asks for a writer's hold after a release, and its reader, which waited, is told of its grant at
// told. Another reader waited too.
func joinsReader(told int) func(s *story) {
	return func(s *story) {
		s.held(5, 0, 2, 1)
		s.queued(1, 3, 4, 1, 1, reading)
		s.queued(2, 5, 6, 2, 1, reading)
		s.release(5, 7, 8)
		s.event(1, told, 2)
		s.held(3, 11, 20, 3, of(1), second(2))
		s.release(1, 22, 23, reading)
		s.release(3, 24, 25, of(1))
		s.event(2, 26, 4)
	}
}

// Of each pair of histories that differ in one thing, the model allows one.
func TestModelJudges(t *testing.T) {
	for _, x := range []struct {
		name  string
		legal bool
		tell  func(s *story)
		on    func(*evidence)
	}{
		{"a hand-over", true, func(s *story) { s.held(1, 0, 2, 1); s.queued(2, 3, 4, 1, 1); s.release(1, 5, 7); s.event(2, 6, 2) }, nil},
		{"a hand-over that nobody made", false, func(s *story) { s.held(1, 0, 2, 1); s.queued(2, 3, 4, 1, 1); s.event(2, 6, 2) }, nil},
		{"two at once", false, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 5, 6, 2) }, nil},
		{"a repeated token", false, func(s *story) { s.held(1, 0, 2, 1); s.release(1, 3, 4); s.held(2, 5, 6, 1) }, nil},
		{"a repeated token, of readers", false, func(s *story) { s.held(1, 0, 2, 1, reading); s.held(2, 3, 4, 1, reading) }, nil},

		{"busy", true, func(s *story) { s.held(1, 0, 2, 1); s.busy(2, 3, 4) }, nil},
		{"falsely busy", false, func(s *story) { s.held(1, 0, 2, 1); s.release(1, 3, 4); s.busy(2, 5, 6) }, nil},
		{"falsely busy, nothing else known", false, func(s *story) { s.busy(2, 5, 6) }, nil},
		{"busy while it is released", true, func(s *story) { s.held(1, 0, 2, 1); s.release(1, 3, 6); s.busy(2, 5, 7) }, nil},
		{"busy long after the lease", false, func(s *story) { s.held(1, 0, 2, 1); s.busy(2, 1100, 1101) }, nil},
		{"busy long after the lease, on etcd", true, func(s *story) { s.held(1, 0, 2, 1); s.busy(2, 1100, 1101) }, likeEtcd},
		{"busy long after the lease, which another leader prolonged", true, func(s *story) { s.held(1, 0, 2, 1); s.busy(2, 1100, 1101) }, longer},
		{"busy after the lease, which a renewal may have kept", true, func(s *story) {
			s.held(1, 0, 2, 1)
			s.tell(opRenew, 1, 900, 950, unknown)
			s.busy(2, 1100, 1101)
		}, nil},

		{"granted after the lease", true, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 1000, 1001, 2) }, nil},
		{"granted before the lease can be over", false, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 990, 995, 2) }, nil},
		{"granted before the renewed lease can be over", false, func(s *story) {
			s.held(1, 0, 2, 1)
			s.tell(opRenew, 1, 300, 301, done)
			s.held(2, 1200, 1201, 2)
		}, nil},
		{"granted before a promotion can be over", false, func(s *story) {
			s.held(1, 0, 2, 1)
			s.queued(2, 3, 4, 1, 1)
			s.release(1, 5, 7)
			s.event(2, 6, 2)
			s.held(3, 490, 491, 3)
		}, nil},
		{"granted when a promotion is over", true, func(s *story) {
			s.held(1, 0, 2, 1)
			s.queued(2, 3, 4, 1, 1)
			s.release(1, 5, 7)
			s.event(2, 6, 2)
			s.held(3, 510, 511, 3)
		}, nil},
		{"a flush explains it", true, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 500, 501, 2) }, loses(400, 450)},
		{"an upgrade that was waited for", false, waitsAndReads, nil},
		{"an upgrade that was waited for, on etcd", true, waitsAndReads, likeEtcd},
		{"a place of what is refused as an upgrade, on etcd", true, behindUpgrade, likeEtcd},
		{"a place of what is refused as an upgrade", false, behindUpgrade, nil},
		{"an upgrade that joins a reader before its grant, on etcd", true, joinsReader(14), likeEtcd},
		{"an upgrade that joins a reader before its grant", false, joinsReader(14), nil},
		{"an upgrade that joins a reader after its grant, on etcd", false, joinsReader(10), likeEtcd},
		{"an event that only tells to ask", true, func(s *story) {
			s.held(1, 0, 2, 1)
			s.queued(2, 3, 4, 1, 1)
			s.event(2, 6, 0)
			s.release(1, 8, 9)
			s.event(2, 10, 2)
		}, nil},
		{"a release that is refused, and may have been one", true, func(s *story) {
			s.lostAsk(1, 0, 2)
			s.bury(1, 4, 5, refused)
			s.held(2, 6, 7, 1)
			s.bury(1, 30, 31, lost)
		}, likeEtcd},
		{"a place taken anew amid an ask, on etcd", true, takenAnew, func(e *evidence) { likeEtcd(e); loses(4, 8)(e) }},
		{"a place taken anew amid an ask, on another store", false, takenAnew, loses(4, 8)},
		{"a place taken anew amid an ask, and nothing was lost", false, takenAnew, likeEtcd},
		{"a place lost and taken anew in the ask that confirms it, on etcd", true, takenTwice, func(e *evidence) { likeEtcd(e); loses(7, 9)(e) }},
		{"a place lost and taken anew in the ask that confirms it, and nothing was lost", false, takenTwice, likeEtcd},
		{"a flush before does not", false, func(s *story) { s.held(1, 460, 462, 1); s.held(2, 500, 501, 2) }, loses(400, 450)},
		{"a flush does not take what is renewed after it", false, func(s *story) {
			s.held(1, 0, 2, 1)
			s.tell(opRenew, 1, 460, 461, done)
			s.held(2, 500, 501, 2)
		}, loses(400, 450)},
		{"what a failover loses is not judged", true, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 500, 501, 2) }, ends(400)},
		{"what comes before a failover is", false, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 300, 301, 2) }, ends(400)},
		{"a renewal revives", false, func(s *story) { s.held(1, 0, 2, 1); s.tell(opRenew, 1, 1100, 1101, done) }, nil},
		{"a hold is lost early", false, func(s *story) { s.held(1, 0, 2, 1); s.tell(opRenew, 1, 500, 501, lost) }, nil},

		{"passed in the queue", false, func(s *story) {
			s.held(1, 0, 2, 1)
			s.queued(2, 3, 4, 1, 1)
			s.queued(3, 5, 6, 2, 1)
			s.release(1, 7, 10)
			s.event(3, 8, 2)
		}, nil},
		{"a wrong place in the queue", false, func(s *story) { s.held(1, 0, 2, 1); s.queued(2, 3, 4, 2, 1) }, nil},
		{"a reader passes a waiting writer", false, func(s *story) {
			s.held(1, 0, 2, 1, reading)
			s.queued(2, 3, 4, 1, 1)
			s.held(3, 5, 6, 2, reading)
		}, nil},
		{"a place is given up, and readers go on", true, func(s *story) {
			s.held(1, 0, 2, 1, reading)
			s.queued(2, 3, 4, 1, 1)
			s.release(2, 5, 6)
			s.held(3, 7, 8, 2, reading)
		}, nil},
		{"re-entry", true, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 3, 4, 1, of(1), second(2)) }, nil},
		{"re-entry with a new token", false, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 3, 4, 2, of(1), second(2)) }, nil},
		{"re-entry that is not counted", false, func(s *story) { s.held(1, 0, 2, 1); s.held(2, 3, 4, 1, of(1)) }, nil},

		{"unknown, and applied", true, func(s *story) { s.lostAsk(1, 0, 5); s.busy(2, 6, 7); s.bury(1, 8, 9, done) }, nil},
		{"unknown, and not applied", true, func(s *story) { s.lostAsk(1, 0, 5); s.held(2, 6, 7, 1); s.bury(1, 8, 9, lost) }, nil},
		{"unknown, and not applied, while another came and went", true, func(s *story) {
			s.lostAsk(1, 0, 20)
			s.held(2, 1, 4, 1)
			s.bury(1, 3, 9, lost)
			s.release(2, 5, 6)
		}, nil},
		{"unknown, and applied later", true, func(s *story) { s.lostAsk(1, 0, 5); s.held(2, 6, 7, 1); s.bury(1, 8, 9, done) }, nil},
		{"unknown, and granted when it was buried", false, func(s *story) {
			s.lostAsk(1, 0, 5)
			s.bury(1, 6, 7, lost)
			s.busy(2, 8, 9)
		}, nil},
		{"killed while it asked", true, func(s *story) { s.cut(opAcquire, 1, 0); s.busy(2, 6, 7) }, nil},
		{"killed while it asked, and two are granted", false, func(s *story) {
			s.cut(opAcquire, 1, 0)
			s.held(2, 6, 7, 1)
			s.held(3, 8, 9, 2)
		}, nil},
		{"a release may have come", true, func(s *story) { s.held(1, 0, 2, 1); s.cut(opRelease, 1, 3); s.held(2, 5, 6, 2) }, nil},
		{"a release has not come yet", false, func(s *story) {
			s.held(1, 0, 2, 1)
			s.tell(opRelease, 1, 3, 4, unknown)
			s.held(2, 5, 6, 2)
			s.release(1, 7, 8)
		}, nil},
		{"a release that arrives twice", true, func(s *story) { s.held(1, 0, 2, 1); s.tell(opRelease, 1, 3, 4, lost) }, doubling},
		{"a release that finds nothing", false, func(s *story) { s.held(1, 0, 2, 1); s.tell(opRelease, 1, 3, 4, lost) }, nil},
		{"a place that is confirmed before the one in front is given up", true, func(s *story) {
			s.held(1, 0, 2, 1)
			s.queued(2, 3, 4, 1, 1)
			s.queued(3, 5, 20, 1, 1)
			s.queued(4, 7, 8, 3, 1)
			s.release(2, 9, 10)
			s.release(1, 11, 12)
		}, nil},
		{"an upgrade that is refused before its owner's hold is released", true, func(s *story) {
			s.held(1, 0, 2, 1, reading)
			s.held(2, 3, 4, 2, reading)
			s.tell(opAcquire, 3, 5, 20, upgrade, of(1), func(r *record) { r.Queue = true })
			s.release(1, 7, 8, reading)
		}, nil},
	} {
		var s story
		x.tell(&s)
		e := &evidence{records: s, TTL: aLease, Ends: never}
		if x.on != nil {
			x.on(e)
		}
		for _, script := range e.scripts() {
			script.write()
			if found := model.Find(script.operations(0, true), 300, time.Minute); found != x.legal {
				t.Errorf("%s: legal %t, an order found %t", x.name, x.legal, found)
			}
		}
		j := &judgement{}
		e.checkModel(j)
		if len(j.violations)+len(j.undecided) == 0 != x.legal {
			t.Errorf("%s: legal %t, found %q", x.name, x.legal, j.violations)
		}
		for _, v := range j.violations {
			if !strings.Contains(v, "no order") {
				t.Errorf("%s: %s", x.name, v)
			}
		}
	}
}
