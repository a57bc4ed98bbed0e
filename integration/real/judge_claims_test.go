package real

import (
	"slices"
	"time"
)

// believed is a claim: from the return of the call that took the lock until the
// call of Unlock or the closing of Done, whichever came first.
type believed struct {
	worker, party, handle int
	name                  string
	shared                bool
	token                 uint64
	asked, from, to       moment
	nested                bool // in another claim of its party, so perhaps with its token
}

// owner is a party. Explicit owners, of which the worker is 0, act in all workers.
type owner struct{ worker, party int }

func ownerOf(worker, party int) owner {
	if party < 0 {
		worker = 0
	}
	return owner{worker, party}
}

func (e *evidence) claims(j *judgement) (all []*believed) {
	type handle struct{ worker, handle int }
	open := map[handle]*believed{}
	holds := map[owner]bool{}
	type grant struct {
		worker int
		name   string
		token  uint64
	}
	granted := map[grant]moment{} // when it was first asked for
	for _, r := range e.records {
		if r.Op == opLock && r.Outcome == held {
			who := ownerOf(r.Worker, r.Party)
			c := &believed{r.Worker, r.Party, r.Handle, r.Name, r.Shared, r.Token, r.Call, r.Return, never, holds[who]}
			holds[who] = true
			// A nested claim is as old as its grant, which may be lost unnoticed.
			first, ok := granted[grant{who.worker, r.Name, r.Token}]
			if !ok {
				first = r.Call
				granted[grant{who.worker, r.Name, r.Token}] = first
			}
			c.asked = min(c.asked, first)
			open[handle{r.Worker, r.Handle}] = c
			all = append(all, c)
		}
	}
	for _, r := range e.records {
		if c := open[handle{r.Worker, r.Handle}]; r.Op == opEnd && c != nil {
			c.to = min(c.to, r.Call)
		}
	}
	for _, c := range all {
		if killed, ok := e.Killed[c.worker]; ok {
			c.to = min(c.to, killed)
		}
		if c.to == never {
			j.violation("worker %d has not ended its claim of %q with token %d", c.worker, c.name, c.token)
		}
	}
	slices.SortFunc(all, func(a, b *believed) int { return int(a.from - b.from) })
	return all
}

// checkClaims: two that conflict do not overlap, and the later has the greater
// token, unless it was passed on within its process when the store had lost what it
// was passed on from.
func (e *evidence) checkClaims(j *judgement, claims []*believed) {
	issued := e.issued()
	for i, x := range claims {
		for _, y := range claims[i+1:] { // began after x did
			if x.name != y.name || x.shared && y.shared || ownerOf(x.worker, x.party) == ownerOf(y.worker, y.party) {
				continue
			}
			if !e.Forgets && !y.nested && x.from < y.asked && y.token <= x.token &&
				(issued[issue{y.name, y.token}] || e.judged(x.asked.plus(-window), y.asked)) {
				j.violation("worker %d got %q with token %d, asking at %d, after worker %d had it with token %d, from %d",
					y.worker, y.name, y.token, y.asked, x.worker, x.token, x.from)
			}
			if y.from >= x.to || y.from >= y.to || !e.judged(min(x.asked, y.asked), y.from) {
				continue
			}
			overlap := min(x.to, y.to).since(y.from)
			if e.stood(x.worker, y.from, x.to) >= (overlap+margin(e.TTL))/2 {
				j.excused++
				continue
			}
			j.violation("worker %d (token %d, since %d) and worker %d (token %d, since %d) both held %q for %v",
				x.worker, x.token, x.from, y.worker, y.token, y.from, x.name, overlap)
		}
	}
}

// window is for how long after its grant a hold is passed on within a process.
const window = 10 * time.Millisecond

// issue is a token of a name.
type issue struct {
	name  string
	token uint64
}

// issued are the tokens that the store told.
func (e *evidence) issued() map[issue]bool {
	names, all := map[string]string{}, map[issue]bool{}
	for _, r := range e.records {
		if r.Op == opAcquire {
			names[r.ID] = r.Name
		}
	}
	for _, r := range e.records {
		if r.Op == opAcquire && r.Outcome == held || r.Op == opEvent {
			all[issue{names[r.ID], r.Token}] = true
		}
	}
	return all
}

// promptly is how soon a claim ends that the store has refused to renew, in a
// process that runs. Of many that are lost at once each takes the process eachLoss.
const (
	promptly = 50 * time.Millisecond
	eachLoss = promptly / 200
)

// checkTold: who is told by the store that a hold is gone does not keep it. Which
// of several claims with its token that one is cannot be known.
func (e *evidence) checkTold(j *judgement, grants []*grant, claims []*believed) {
	byID := map[string][]*grant{}
	type token struct {
		name  string
		token uint64
	}
	ids := map[token]int{}
	for _, g := range grants {
		byID[g.id] = append(byID[g.id], g)
		ids[token{g.name, g.token}]++
	}
	losses := map[int][]moment{} // by worker
	for _, r := range e.records {
		if r.Op == opRenew && r.Outcome == lost {
			losses[r.Worker] = append(losses[r.Worker], r.Return)
		}
	}
	for _, r := range e.records {
		if r.Op != opRenew || r.Outcome != lost || len(byID[r.ID]) != 1 {
			continue
		}
		soon := promptly
		for _, other := range losses[r.Worker] {
			if other.plus(promptly) >= r.Return && other <= r.Return.plus(promptly) {
				soon += eachLoss
			}
		}
		g := byID[r.ID][0]
		if ids[token{g.name, g.token}] > 1 {
			continue
		}
		for _, c := range claims {
			if c.worker == r.Worker && c.name == r.Name && c.token == g.token && c.from < r.Call &&
				c.to > r.Return.plus(soon) && e.stood(c.worker, r.Return, c.to) < promptly/2 {
				j.violation("worker %d kept %q with token %d until %d, though it was told that it is lost at %d", c.worker, c.name, c.token, c.to, r.Return)
			}
		}
	}
}

// stood is for how long a worker did not run between a clash and the end that its
// claim had too late. The claim should have ended a margin before the clash, so
// without a fault of the library that is the overlap and the margin. Half of it
// is enough for an excuse: the heart does not beat where the end was waited for.
func (e *evidence) stood(worker int, clash, to moment) (d time.Duration) {
	from := clash.plus(-margin(e.TTL))
	for _, r := range e.records {
		if r.Op == opStall && r.Worker == worker && r.Call < to && r.Return > from {
			d += r.Return.since(r.Call) - beat
		}
	}
	return d
}
