package real

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each check finds what it is there for, and nothing in what is right.
func TestJudges(t *testing.T) {
	const ms = moment(time.Millisecond)
	const ttl = time.Second
	const id1, id2, id3 = "11111111111111111111111111111111", "22222222222222222222222222222222", "33333333333333333333333333333333"
	acquire := func(worker int, id string, call, at moment, token uint64, what string) record {
		return record{Worker: worker, Op: opAcquire, Call: call * ms, Return: at * ms, Name: "a", ID: id, Owner: "o" + id,
			TTL: ttl, WaitTTL: ttl, Queue: true, Token: token, Holds: 1, Position: 1, Outcome: what}
	}
	nested := func(worker int, outer, id string, call, at moment, token uint64) record {
		r := acquire(worker, id, call, at, token, held)
		r.Owner, r.Holds = "o"+outer, 2
		return r
	}
	release := func(worker int, id string, call, at moment) record {
		return record{Worker: worker, Op: opRelease, Call: call * ms, Return: at * ms, Name: "a", ID: id, Owner: "o" + id, Outcome: done}
	}
	reads := func(r record) record {
		r.Shared = true
		return r
	}
	renew := func(worker int, id string, call, at moment) record {
		return record{Worker: worker, Op: opRenew, Call: call * ms, Return: at * ms, Name: "a", ID: id, TTL: ttl, Outcome: done}
	}
	event := func(worker int, id string, at moment, token uint64) record {
		return record{Worker: worker, Op: opEvent, Call: at * ms, ID: id, Token: token}
	}
	lock := func(worker int, call, at moment, token uint64) record {
		return record{Worker: worker, Op: opLock, Call: call * ms, Return: at * ms, Name: "a", Token: token, Handle: 1, Party: 1, Outcome: held}
	}
	end := func(worker int, at moment) record {
		return record{Worker: worker, Op: opEnd, Call: at * ms, Name: "a", Handle: 1, Outcome: unlocked}
	}
	stall := func(worker int, from, to moment) record {
		return record{Worker: worker, Op: opStall, Call: from * ms, Return: to * ms}
	}
	sight := func(id string, at moment) record {
		return record{Op: opSeen, Call: at * ms, Return: at*ms + 1, Name: "a", ID: id[:6], Owner: "o" + id[:5], Outcome: held}
	}
	written := func(worker, serial, version int) record {
		return record{Worker: worker, Op: opWrite, Call: 50 * ms, Return: 51 * ms, Name: "a", Handle: 1, Token: 5, Serial: serial, Version: version, Outcome: done}
	}
	for _, c := range []struct {
		name    string
		records []record
		log     []access
		lossy   []span
		want    string // what the only violation contains; empty: there is none
		excused int
		copies  moment // from when on another copy of the data may answer; 0: never
	}{
		{name: "a hand-over", records: []record{
			acquire(1, id1, 0, 1, 10, held), acquire(2, id2, 2, 3, 10, queued), release(1, id1, 500, 502), event(2, id2, 501, 11),
		}},
		{name: "an expiry", records: []record{acquire(1, id1, 0, 1, 10, held), acquire(2, id2, 1000, 1001, 11, held)}},
		{name: "an early expiry", want: "at least", records: []record{acquire(1, id1, 0, 1, 10, held), acquire(2, id2, 990, 991, 11, held)}},
		{name: "an early expiry after a renewal", want: "at least", records: []record{
			acquire(1, id1, 0, 1, 10, held), renew(1, id1, 300, 301), acquire(2, id2, 1200, 1201, 11, held)}},
		{name: "an early promotion", want: "at least", records: []record{
			acquire(1, id1, 0, 1, 10, held), acquire(2, id2, 2, 3, 10, queued), event(2, id2, 900, 11)}},
		{name: "an early expiry by a flush", lossy: []span{{400 * ms, 500 * ms}}, records: []record{
			acquire(1, id1, 0, 1, 10, held), acquire(2, id2, 600, 601, 11, held)}},
		{name: "an early expiry after a flush", lossy: []span{{400 * ms, 500 * ms}}, want: "at least", records: []record{
			acquire(1, id1, 600, 601, 10, held), acquire(2, id2, 700, 701, 11, held)}},
		{name: "a renewal that finds nothing", want: "lost", records: []record{
			acquire(1, id1, 0, 1, 10, held), {Worker: 1, Op: opRenew, Call: 5 * ms, Return: 6 * ms, Name: "a", ID: id1, Outcome: lost}}},
		{name: "a renewal that finds nothing, too late", records: []record{
			acquire(1, id1, 0, 1, 10, held), {Worker: 1, Op: opRenew, Call: 999 * ms, Return: 1001 * ms, Name: "a", ID: id1, Outcome: lost}}},
		{name: "a release that finds nothing", want: "lost", records: []record{
			acquire(1, id1, 0, 1, 10, held), {Worker: 1, Op: opRelease, Call: 5 * ms, Name: "a", ID: id1, Outcome: unknown},
			{Worker: 1, Op: opRelease, Call: 5 * ms, Return: 6 * ms, Name: "a", ID: id1, Outcome: lost}}},
		{name: "a loss that is ignored", want: "told", lossy: []span{{0, never}}, records: []record{
			acquire(1, id1, 0, 1, 10, held), lock(1, 0, 1, 10),
			{Worker: 1, Op: opRenew, Call: 5 * ms, Return: 6 * ms, Name: "a", ID: id1, Outcome: lost}, end(1, 100)}},
		{name: "a loss among many", lossy: []span{{0, never}}, records: append([]record{
			acquire(1, id1, 0, 1, 10, held), lock(1, 0, 1, 10),
			{Worker: 1, Op: opRenew, Call: 5 * ms, Return: 6 * ms, Name: "a", ID: id1, Outcome: lost}, end(1, 100)},
			slices.Repeat([]record{{Worker: 1, Op: opRenew, Call: 5 * ms, Return: 6 * ms, Name: "b", ID: id2, Outcome: lost}}, 200)...)},
		{name: "a loss of one of two nested holds", lossy: []span{{0, never}}, records: []record{
			acquire(1, id1, 0, 1, 10, held), lock(1, 0, 1, 10),
			{Worker: 1, Op: opAcquire, Call: 2 * ms, Return: 3 * ms, Name: "a", ID: id2, Owner: "o" + id1, TTL: ttl, WaitTTL: ttl, Token: 10, Holds: 2, Outcome: held},
			{Worker: 1, Op: opRenew, Call: 5 * ms, Return: 6 * ms, Name: "a", ID: id2, TTL: ttl, Outcome: lost}, end(1, 100)}},
		{name: "a smaller token", want: "not greater", records: []record{
			acquire(1, id1, 0, 1, 10, held), release(1, id1, 2, 3), acquire(2, id2, 4, 5, 9, held)}},
		{name: "a smaller token of a re-entry", want: "not greater", records: []record{
			acquire(1, id1, 0, 1, 10, held), nested(1, id1, id2, 4, 5, 9)}},
		{name: "a smaller token of a re-entry in another copy", lossy: []span{{2 * ms, never}}, copies: 2 * ms, records: []record{
			acquire(1, id1, 0, 1, 10, held), nested(1, id1, id2, 4, 5, 9)}},
		{name: "an old token of a re-entry in a hold that nobody heard of", records: []record{
			reads(acquire(1, id1, 0, 9, 0, unknown)), reads(acquire(3, id3, 1, 2, 10, held)), reads(nested(2, id1, id2, 4, 5, 9))}},
		{name: "an old token of a re-entry in a hold that was released before", want: "not greater", records: []record{
			reads(acquire(1, id1, 0, 1, 0, unknown)), release(1, id1, 1, 2),
			reads(acquire(3, id3, 2, 3, 10, held)), reads(nested(2, id1, id2, 4, 5, 9))}},
		{name: "a smaller token in another copy", want: "not greater", lossy: []span{{2 * ms, never}}, copies: 2 * ms, records: []record{
			acquire(1, id1, 0, 1, 10, held), release(1, id1, 2, 3), acquire(2, id2, 4, 5, 9, held)}},
		{name: "a token of two", want: "both have token", records: []record{
			acquire(1, id1, 0, 4, 10, held), release(1, id1, 5, 6), acquire(2, id2, 3, 7, 10, held)}},
		{name: "an event that only tells to ask", records: []record{
			acquire(1, id1, 0, 1, 10, held), acquire(2, id2, 2, 3, 10, queued), event(2, id2, 4, 0), release(1, id1, 5, 6)}},
		{name: "a released hold is seen", want: "confirmed", records: []record{
			acquire(1, id1, 0, 1, 10, held), release(1, id1, 2, 3), sight(id1, 4)}},
		{name: "one is seen whose id begins like that of one released", records: []record{
			acquire(1, id1, 0, 1, 10, held), release(1, id1, 2, 3),
			{Op: opSeen, Call: 4 * ms, Return: 4*ms + 1, Name: "a", ID: id1[:6], Owner: "other!", Outcome: held}}},
		{name: "two holders are seen", want: "both hold", records: []record{sight(id1, 4), sight(id2, 4)}},
		{name: "two holders are seen, one after the other", records: []record{sight(id1, 4), sight(id2, 5)}},
		{name: "claims in turn", records: []record{lock(1, 0, 1, 10), end(1, 5), lock(2, 0, 6, 11), end(2, 9)}},
		{name: "claims at once", want: "both held", records: []record{lock(1, 0, 1, 10), end(1, 60), lock(2, 0, 6, 11), end(2, 90)}},
		{name: "claims at once after a pause", excused: 1, records: []record{
			lock(1, 0, 1, 10), end(1, 60), lock(2, 0, 6, 11), end(2, 90), stall(1, 2, 60)}},
		{name: "claims at once after a pause of another", want: "both held", records: []record{
			lock(1, 0, 1, 10), end(1, 60), lock(2, 0, 6, 11), end(2, 90), stall(2, 2, 60)}},
		{name: "claims at once, by far more than a pause", want: "both held", records: []record{
			lock(1, 0, 1, 10), end(1, 600), lock(2, 0, 6, 11), end(2, 900), stall(1, 2, 60)}},
		{name: "a claim without an end", want: "not ended", records: []record{lock(1, 0, 1, 10)}},
		{name: "a claim with a smaller token", want: "after worker 1 had it", records: []record{lock(1, 0, 1, 10), end(1, 5), lock(2, 6, 7, 9), end(2, 9)}},
		{name: "a claim with a smaller token, passed on when all was lost", lossy: []span{{2 * ms, 3 * ms}}, records: []record{
			lock(1, 4, 5, 10), end(1, 6), lock(2, 7, 8, 9), end(2, 9)}},
		{name: "a claim with a smaller token, passed on long after that", want: "after worker 1 had it", lossy: []span{{2 * ms, 3 * ms}}, records: []record{
			lock(1, 24, 25, 10), end(1, 26), lock(2, 27, 28, 9), end(2, 29)}},
		{name: "a claim with a smaller token, granted when all was lost", want: "after worker 1 had it", lossy: []span{{2 * ms, 3 * ms}}, records: []record{
			acquire(2, id2, 7, 8, 9, held), lock(1, 4, 5, 10), end(1, 6), lock(2, 7, 8, 9), end(2, 9)}},
		{name: "writes", records: []record{written(1, 1, 1)}, log: []access{{true, 5, 1, 0, "1.1"}, {false, 6, 1, 0, ""}, {false, 5, 1, 0, ""}}},
		{name: "a lost update", want: "lost", log: []access{{true, 5, 1, 0, "1.1"}, {true, 6, 2, 0, "2.1"}}},
		{name: "a late write", want: "took token 5", log: []access{{true, 6, 1, 0, "1.1"}, {true, 5, 2, 1, "2.1"}}},
		{name: "a write that is missing", want: "acknowledged", records: []record{written(1, 1, 1)}},
		{name: "a holder is refused that nests in what a flush took", lossy: []span{{20 * ms, 30 * ms}}, records: []record{
			lock(1, 0, 1, 10), end(1, 90), {Worker: 1, Op: opLock, Call: 40 * ms, Return: 41 * ms, Name: "a", Token: 10, Handle: 2, Party: 1, Outcome: held},
			{Worker: 1, Op: opRead, Call: 50 * ms, Return: 51 * ms, Name: "a", Handle: 2, Outcome: refused},
			{Worker: 1, Op: opEnd, Call: 80 * ms, Name: "a", Handle: 2, Outcome: unlocked}}},
		{name: "a holder is refused after a write by one who held when a flush took it", lossy: []span{{20 * ms, 30 * ms}}, records: []record{
			lock(2, 0, 1, 10), end(2, 60), lock(1, 40, 41, 9), end(1, 90),
			{Worker: 1, Op: opRead, Call: 70 * ms, Return: 71 * ms, Name: "a", Handle: 1, Outcome: refused}}},
		{name: "a holder is refused after one who ended before", want: "was refused", lossy: []span{{20 * ms, 30 * ms}}, records: []record{
			lock(2, 0, 1, 10), end(2, 39), lock(1, 40, 41, 11), end(1, 90),
			{Worker: 1, Op: opRead, Call: 70 * ms, Return: 71 * ms, Name: "a", Handle: 1, Outcome: refused}}},
		{name: "a holder is refused", want: "was refused", records: []record{
			lock(1, 0, 1, 10), end(1, 90), {Worker: 1, Op: opRead, Call: 50 * ms, Return: 51 * ms, Name: "a", Handle: 1, Outcome: refused}}},
	} {
		e := &evidence{records: c.records, TTL: ttl, Lossy: c.lossy, Log: map[string][]access{"a": c.log}, Ends: never}
		if c.copies > 0 {
			e.Ends = c.copies
		}
		j := e.judge()
		switch {
		case c.want == "" && len(j.violations) > 0,
			c.want != "" && (len(j.violations) != 1 || !strings.Contains(j.violations[0], c.want)):
			t.Errorf("%s: violations %q, want one of %q", c.name, j.violations, c.want)
		case j.excused != c.excused:
			t.Errorf("%s: %d excused, want %d", c.name, j.excused, c.excused)
		}
	}
}
