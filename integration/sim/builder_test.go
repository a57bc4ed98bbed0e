package sim

import "time"

// hand is a history made by hand. Times are in milliseconds, leases 1 s, and
// places last 500 ms.
type hand struct{ *History }

func byHand() hand { return hand{newHistory(Plan{})} }

const (
	lease = time.Second
	wait  = 500 * time.Millisecond
)

func ms(n int) Moment { return at(time.Duration(n) * time.Millisecond) }

// call adds a call that arrived halfway between its sending and its return. Id
// n belongs to owner n unless the call is changed.
func (h hand) call(op Op, id, sent, returned int, o Outcome, change ...func(*Call)) *Call {
	c := &Call{
		Op: op, Name: "a", ID: id, Owner: id, Lease: lease, Sent: ms(sent), Returned: ms(returned), Outcome: o,
		Arrivals: []Arrival{{From: ms(sent) + 8, To: ms(returned) - 8, Outcome: o}},
	}
	if op == Acquire {
		c.Wait, c.Queue = wait, true
	}
	for _, f := range change {
		f(c)
	}
	for i := range c.Arrivals {
		c.Arrivals[i].Token = c.Token
	}
	h.Calls = append(h.Calls, c)
	return c
}

func (h hand) held(id, sent, returned int, token uint64, change ...func(*Call)) *Call {
	return h.call(Acquire, id, sent, returned, Held, append([]func(*Call){func(c *Call) { c.Token, c.Holds = token, 1 }}, change...)...)
}

func (h hand) queued(id, sent, returned, position int, last uint64, change ...func(*Call)) *Call {
	return h.call(Acquire, id, sent, returned, Queued, append([]func(*Call){func(c *Call) { c.Token, c.Position = last, position }}, change...)...)
}

// unanswered are n releases of other ids that got no answer.
func (h hand) unanswered(n int) {
	for i := range n {
		h.call(Release, 100+i, 112, 120, Unknown)
	}
}

// answeredAfter are n releases of other ids that were answered so late, in milliseconds.
func (h hand) answeredAfter(late, n int) {
	for i := range n {
		h.call(Release, 100+i, 112, 112+late, Lost)
	}
}

func (h hand) promote(id, when int, token uint64) {
	h.Promotions = append(h.Promotions, Promotion{id, token, ms(when)})
}

func (h hand) claim(owner, called, from, until int, token uint64, change ...func(*Claim)) {
	c := &Claim{Name: "a", Owner: owner, Private: true, Token: token, Called: ms(called), From: ms(from), Until: ms(until)}
	for _, f := range change {
		f(c)
	}
	h.Claims = append(h.Claims, c)
}

// The changes that calls and claims may have.
func shared(c *Call)          { c.Shared = true }
func try(c *Call)             { c.Queue = false }
func bury(c *Call)            { c.Bury = true }
func neverArrived(c *Call)    { c.Arrivals = nil }
func neverReturned(c *Call)   { c.Returned = never }
func owner(n int) func(*Call) { return func(c *Call) { c.Owner = n } }
func holds(n int) func(*Call) { return func(c *Call) { c.Holds = n } }
func arrived(when int, o Outcome) func(*Call) {
	return func(c *Call) { c.Arrivals = []Arrival{{From: ms(when), To: ms(when) + 1, Outcome: o}} }
}
func arrivedToo(when int, o Outcome) func(*Call) {
	return func(c *Call) { c.Arrivals = append(c.Arrivals, Arrival{From: ms(when), To: ms(when) + 1, Outcome: o}) }
}

func reader(c *Claim) { c.Shared = true }
func nested(c *Claim) { c.Nested = true }
func lost(c *Claim)   { c.Lost = true }
