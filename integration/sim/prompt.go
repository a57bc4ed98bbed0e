package sim

import "slices"

// prompt: where nothing fails, nobody waits for nothing. Then every hold and
// place ends by a call of the store, which grants those who waited for it before
// it returns, and the event makes a claim in the same moment. Where something
// fails, both may come later, by the next ask.
func prompt(h *History) []Violation {
	if len(h.Plan.Faults) > 0 {
		return nil
	}
	var found []Violation
	claims := make(map[grantID]*Claim)
	for _, c := range h.Claims {
		if first := claims[c.grantID()]; first == nil || c.From < first.From {
			claims[c.grantID()] = c
		}
	}
	byID := make(map[int]*life)
	for _, l := range h.claimedIDs() {
		byID[l.ID] = l
	}
	for _, p := range h.Promotions {
		l := byID[p.ID]
		if l == nil {
			continue
		}
		if !h.madeWay(l, p.At) {
			found = append(found, violation("late promotion", "%q: #%d (token %d) was granted at %v, when nothing made way for it",
				l.Name, p.ID, p.Token, p.At.time()))
		}
		c := claims[grantID{l.Client, l.Name, l.token, l.Shared}]
		if c != nil && c.From.time() > p.At.time() {
			found = append(found, violation("late claim", "%q: #%d (token %d) was granted at %v and claimed at %v",
				l.Name, p.ID, p.Token, p.At.time(), c.From.time()))
		}
	}
	return found
}

// madeWay: the store was doing what may let l in: a release, an upgrade that is
// refused and gives its place up, a grant to the same owner, holds removed by force.
func (h *History) madeWay(l *life, at Moment) bool {
	within := func(from, to Moment) bool { return from <= at && at <= to }
	return slices.ContainsFunc(h.Calls, func(c *Call) bool {
		return c.Name == l.Name && slices.ContainsFunc(c.Arrivals, func(a Arrival) bool {
			ends := c.Op == Release && a.Outcome == Done || a.Outcome == Upgrade ||
				a.Outcome == Held && c.Owner == l.Owner && c.ID != l.ID
			return ends && within(a.From, a.To)
		})
	}) || slices.ContainsFunc(h.Marks, func(m Mark) bool { return m.Name == l.Name && within(m.From, m.To) })
}
