package sim

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock/integration/model"
)

// maxOpen is how many calls of one name, of which there are up to three, may be
// left open for good: the checker is told neither whether they were applied nor
// when. Each multiplies the orders that it has to try.
const maxOpen = 3

// search bounds the time that Porcupine may take for one name.
const search = 20 * time.Second

// linearizable has Porcupine decide for each name whether its history has an
// order that the model allows. "Cannot tell" is no better than a violation.
//
// As many calls of unknown outcome of each name as open says stay open. Those
// beyond are closed by the evidence of the store's end of the link, as the log of a real
// server would: it says when a call arrived, and not what it did, which is for
// the model to say. That is the stricter judgement, and the faster one.
func linearizable(h *History, open int) []Violation {
	var found []Violation
	for _, l := range ledgers(h, open) {
		switch verdict, stuck := model.Check(l.operations, search); verdict {
		case model.Illegal:
			found = append(found, violation("model", "%q: the store's answers have no order that the model allows; %s", l.name, stuck))
		case model.Undecided:
			found = append(found, violation("undecided", "%q: no decision within %v", l.name, search))
		}
	}
	return found
}

// ledger is the operations of one name, for the model.
type ledger struct {
	name       string
	operations []porcupine.Operation
	byID       map[int][]*Call
	arrivals   []Arrival
	accesses   []Moment // when the store began to look at the name, in order
	steps      int
	noticed    map[Moment]*model.Step
	open       int // calls
}

// ledgers writes down the operations of all names.
func ledgers(h *History, open int) []*ledger {
	var list []*ledger
	byName := make(map[string]*ledger)
	for _, c := range h.Calls {
		l := byName[c.Name]
		if l == nil {
			l = &ledger{name: c.Name, byID: make(map[int][]*Call), noticed: make(map[Moment]*model.Step)}
			byName[c.Name] = l
			list = append(list, l)
		}
		l.byID[c.ID] = append(l.byID[c.ID], c)
		l.arrivals = append(l.arrivals, c.Arrivals...)
	}
	for _, m := range h.Marks {
		for _, l := range list {
			if m.Name == "" || m.Name == l.name {
				l.arrivals = append(l.arrivals, Arrival{From: m.From, To: m.To})
			}
		}
	}
	for _, l := range list {
		for _, a := range l.arrivals {
			l.accesses = append(l.accesses, a.From)
		}
		slices.Sort(l.accesses)
		l.add(&model.Step{Kind: model.Over}, never-1, never-1)
		for _, access := range l.accesses {
			if open > 0 {
				l.notice(access) // an open call may have left something to expire
			}
		}
	}

	for _, c := range h.Calls { // in the order in which they were sent
		byName[c.Name].call(c, open)
	}
	for _, p := range h.Promotions {
		for _, l := range list {
			if calls := l.byID[p.ID]; calls != nil {
				l.promotion(p, calls[0].Wait)
			}
		}
	}
	for _, m := range h.Marks {
		for _, l := range list {
			switch m.Name {
			case "":
				l.add(&model.Step{Kind: model.Wiped}, m.From, m.To)
			case l.name:
				l.add(&model.Step{Kind: model.Forced}, m.From, m.To)
			}
		}
	}
	return list
}

func (l *ledger) add(s *model.Step, from, to Moment) {
	l.operations = append(l.operations, porcupine.Operation{Input: s, Call: int64(from), Return: int64(to)})
}

// number is for the next step that gives a lease.
func (l *ledger) number() int {
	l.steps++
	return l.steps
}

// call enters a call, once for each time that it arrived, and the ends of its
// leases. The first arrival is the one that its client may have an answer to.
func (l *ledger) call(c *Call, open int) {
	if c.Outcome == Unknown && len(c.Arrivals) <= 1 && l.open < open {
		l.open++
		n := l.number()
		l.add(&model.Step{Kind: model.Unanswered, N: n, Call: c.call(), Open: true}, c.Sent, never)
		l.openEnds(c, n)
		return
	}
	for i, a := range c.Arrivals {
		kind := model.Unanswered
		if i == 0 && c.Outcome != Unknown {
			kind = model.Answered
		}
		n := l.number()
		l.add(&model.Step{Kind: kind, N: n, Call: c.call()}, a.From, a.To)
		l.ends(c, a, n)
	}
}

// openEnds enters the ghosts of an open call: the ends of all leases that it can
// have given, at any time from when they may have ended first.
func (l *ledger) openEnds(c *Call, n int) {
	ghost := func(kind model.Kind, lease time.Duration) {
		l.add(&model.Step{Kind: kind, N: n, ID: c.ID, Open: true}, c.Sent.plus(lease), never)
	}
	switch c.Op {
	case Renew:
		ghost(model.HoldEnds, c.Lease)
	case Release:
		if c.Bury {
			ghost(model.BurialEnds, c.Lease)
		}
	default:
		ghost(model.HoldEnds, c.Lease)
		if c.Queue {
			ghost(model.PlaceEnds, c.Wait)
		}
	}
}

// ends enters the ghosts of a call that arrived.
func (l *ledger) ends(c *Call, a Arrival, n int) {
	switch c.Op {
	case Renew:
		l.ghost(&model.Step{Kind: model.HoldEnds, ID: c.ID, N: n}, a, c.Lease)
	case Release:
		if c.Bury {
			l.ghost(&model.Step{Kind: model.BurialEnds, ID: c.ID, N: n}, a, c.Lease)
		}
	default:
		l.ghost(&model.Step{Kind: model.HoldEnds, ID: c.ID, N: n}, a, c.Lease)
		if c.Queue {
			l.ghost(&model.Step{Kind: model.PlaceEnds, ID: c.ID, N: n}, a, c.Wait)
		}
	}
}

// ghost enters the end of a lease that was given at a. The store notices it when
// it next looks at the name, not before, so that is the only time to consider.
func (l *ledger) ghost(g *model.Step, a Arrival, lease time.Duration) {
	i, _ := slices.BinarySearch(l.accesses, a.From.plus(lease))
	if i == len(l.accesses) || l.superseded(g, a, l.accesses[i]) {
		return
	}
	n := l.notice(l.accesses[i])
	n.Ended = append(n.Ended, g)
}

// notice returns the step in which the store looks for what has expired, before
// an operation. In the model each operation does so itself, too; but an event
// may tell of a promotion between the two. All that has ended by then is
// one step, for the order among its parts does not matter.
func (l *ledger) notice(access Moment) *model.Step {
	n := l.noticed[access]
	if n == nil {
		n = &model.Step{Kind: model.Noticed}
		l.noticed[access] = n
		l.add(n, access-1, access-1)
	}
	return n
}

// superseded: a later call has replaced the lease before its end is noticed,
// so that the ghost would do nothing.
func (l *ledger) superseded(g *model.Step, a Arrival, before Moment) bool {
	return slices.ContainsFunc(l.byID[g.ID], func(c *Call) bool {
		if c.Outcome == Unknown || len(c.Arrivals) == 0 || c.Arrivals[0].From <= a.To || c.Arrivals[0].To >= before {
			return false
		}
		switch g.Kind {
		case model.HoldEnds:
			return c.Op != Acquire
		case model.PlaceEnds:
			return c.Op == Release || c.Op == Acquire
		}
		return false
	})
}

// promotion enters an event, which the store sends from within the operation
// that promoted, and the end of the lease that it gives.
func (l *ledger) promotion(p Promotion, wait time.Duration) {
	from := p.At
	for _, a := range l.arrivals {
		if a.From < p.At && p.At < a.To {
			from = min(from, a.From)
		}
	}
	l.add(&model.Step{Kind: model.Told, ID: p.ID, Token: p.Token}, from, p.At)
	l.ghost(&model.Step{Kind: model.HoldEnds, ID: p.ID, N: model.PromotedLease, Token: p.Token}, Arrival{From: p.At, To: p.At}, wait)
}
