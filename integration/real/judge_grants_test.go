package real

import (
	"slices"
	"time"
)

// grant is one that the store made, as far as those who asked can tell.
type grant struct {
	id, owner, name string
	worker          int
	shared          bool
	token           uint64
	again           bool // a re-entry: the owner had the token before
	copied          bool // likewise, where he has a hold of which he never heard

	// It was made in [from, known]: after the last answer that told of a smaller
	// token, and before anybody knew.
	asked, from, known moment
	// Its lease lasted at least until leased, and it until until: when it was released
	// before, that is the call.
	leased, until moment
}

// asking is all that was asked of one id.
type asking struct {
	name, owner string
	first       moment
	open        moment // the first call that may lead to a grant without an answer
	queued      []record
	grants      []*grant
	ends        moment // the first call to release it
	over        moment // the first answer that says that it is released
	parts       bool   // who waits may have parts of a grant
}

// grants finds them in the records, sorted by known.
func (e *evidence) grants() (all []*grant) {
	ids := map[string]*asking{}
	for _, r := range e.records {
		if r.Op == opAcquire && ids[r.ID] == nil {
			ids[r.ID] = &asking{
				name: r.Name, owner: r.Owner, first: r.Call, open: never, ends: never, over: never, parts: e.Quorum,
			}
		}
	}
	for _, r := range e.sent() {
		switch a := ids[r.ID]; {
		case a == nil:
		case r.Op == opAcquire && (r.Outcome == unknown || r.Outcome == queued):
			a.open = min(a.open, r.Call)
		case r.Op == opRelease && r.Outcome != unknown:
			a.over = min(a.over, r.Return)
		}
	}
	asks := map[string]record{}
	for _, r := range e.records {
		a := ids[r.ID]
		if a == nil {
			continue // an event that concerns everybody
		}
		switch {
		case r.Op == opAcquire:
			asks[r.ID] = r
			if r.Outcome == queued {
				a.queued = append(a.queued, r)
			}
		case r.Op == opRelease:
			a.ends = min(a.ends, r.Call)
		}
	}
	for _, r := range e.records {
		a := ids[r.ID]
		switch {
		case a == nil:
		case r.Op == opAcquire && r.Outcome == held:
			g := a.grant(asks[r.ID], r.Token, r.Return)
			g.extend(r.Call.plus(r.TTL))
			g.copied = r.Holds > 1 && (!e.judged(r.Call, r.Return) || unheard(ids, r))
		case r.Op == opEvent && r.Token == 0: // it says no more than that to ask again is worth it
		case r.Op == opEvent:
			g := a.grant(asks[r.ID], r.Token, r.Call)
			g.extend(g.from.plus(asks[r.ID].WaitTTL))
		}
	}
	for _, r := range e.records {
		// A renewal does not say of which grant: should the id have two, as when a
		// promotion ran out before its waiter heard of it, it proves too little.
		if a := ids[r.ID]; a != nil && r.Op == opRenew && r.Outcome == done && len(a.grants) == 1 {
			a.grants[0].extend(r.Call.plus(r.TTL))
		}
	}
	for _, a := range ids {
		for _, g := range a.grants {
			g.until = min(g.leased, a.ends)
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *grant) int { return int(a.known - b.known) })
	type token struct {
		name, owner string
		token       uint64
	}
	firsts := map[token]*grant{}
	for _, g := range all {
		key := token{g.name, g.owner, g.token}
		if first := firsts[key]; first == nil || g.from < first.from {
			firsts[key] = g
		}
	}
	for _, g := range all {
		g.again = g.copied || firsts[token{g.name, g.owner, g.token}] != g
	}
	return all
}

// unheard: the owner of a grant has another ask of the name that may have been granted
// without an answer, and that no release had ended for certain.
func unheard(ids map[string]*asking, grant record) bool {
	for id, a := range ids {
		if id != grant.ID && a.name == grant.Name && a.owner == grant.Owner && a.open < grant.Return && a.over > grant.Call {
			return true
		}
	}
	return false
}

// grant is the one of that token, which is known at the latest at the moment.
func (a *asking) grant(ask record, token uint64, known moment) *grant {
	for _, g := range a.grants {
		if g.token == token {
			g.known = min(g.known, known)
			return g
		}
	}
	g := &grant{
		id: ask.ID, owner: ask.Owner, name: ask.Name, worker: ask.Worker, shared: ask.Shared,
		token: token, asked: a.first, from: a.first, known: known,
	}
	for _, q := range a.queued {
		if q.Token < token && !a.parts {
			g.from = max(g.from, q.Call)
		}
	}
	a.grants = append(a.grants, g)
	return g
}

func (g *grant) extend(until moment) { g.leased = max(g.leased, until) }

// checkOrder: a grant has a greater token than each that was known before it was
// asked for, and nobody else has its token.
func (e *evidence) checkOrder(j *judgement, grants []*grant) {
	if e.Forgets {
		return
	}
	type token struct {
		name  string
		token uint64
	}
	owners := map[token]*grant{}
	newest := map[string]*grant{}
	byStart := slices.Clone(grants)
	slices.SortFunc(byStart, func(a, b *grant) int { return int(a.from - b.from) })
	next := 0
	for _, g := range byStart {
		for ; next < len(grants) && grants[next].known < g.from; next++ {
			if x := grants[next]; newest[x.name] == nil || newest[x.name].token < x.token {
				newest[x.name] = x
			}
		}
		if x := newest[g.name]; x != nil && !g.again && g.token <= x.token {
			j.violation("token %d of %.6s (%q, worker %d), granted after %d, is not greater than token %d of %.6s, known at %d",
				g.token, g.id, g.name, g.worker, g.from, x.token, x.id, x.known)
		}
		first := owners[token{g.name, g.token}]
		if first == nil {
			owners[token{g.name, g.token}] = g
		} else if first.owner != g.owner {
			j.violation("%.6s (worker %d) and %.6s (worker %d) both have token %d of %q", first.id, first.worker, g.id, g.worker, g.token, g.name)
		}
	}
}

// Servers keep time in milliseconds, and round.
const rounding = 2 * time.Millisecond

// checkLeases: nobody is granted what another still has for certain.
func (e *evidence) checkLeases(j *judgement, grants []*grant) {
	for i, x := range grants {
		until := x.until.plus(-rounding)
		for _, y := range grants[i+1:] { // known after x was
			if y.known >= until {
				break
			}
			if x.name != y.name || x.owner == y.owner || x.shared && y.shared || !e.judged(min(x.asked, y.asked), y.known) {
				continue
			}
			if y.from > x.known || !x.again && !y.again && x.token < y.token {
				j.violation("%.6s (worker %d, token %d) got %q by %d, which %.6s (worker %d, token %d) had from %d until %d at least",
					y.id, y.worker, y.token, y.name, y.known, x.id, x.worker, x.token, x.known, x.until)
			}
		}
	}
}

// checkLost: nobody is told that a hold is gone which is there for certain. Of a
// release that arrives twice the client gets the second answer, so there it may.
func (e *evidence) checkLost(j *judgement, grants []*grant) {
	byID := map[string][]*grant{}
	for _, g := range grants {
		byID[g.id] = append(byID[g.id], g)
	}
	released := map[string]int{}
	for _, r := range e.records {
		if r.Op == opRelease && r.Return == 0 {
			released[r.ID]++
		}
		if r.Outcome != lost || r.Op != opRenew && (r.Op != opRelease || e.Doubled || released[r.ID] > 1) || len(byID[r.ID]) != 1 {
			continue
		}
		// A release ends what it releases at its call, not before it.
		g := byID[r.ID][0]
		there := r.Return < g.leased.plus(-rounding) && g.known < r.Call && (r.Op == opRelease || r.Return < g.until)
		if there && e.judged(g.asked, r.Return) {
			j.violation("%s of %.6s (worker %d, token %d) of %q, called at %d, was told that it is lost, but its lease lasted until %d at least",
				r.Op, g.id, g.worker, g.token, g.name, r.Call, g.leased)
		}
	}
}
