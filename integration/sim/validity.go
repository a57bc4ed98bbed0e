package sim

// These checkers ask how long a client believes in a grant, and in which. They
// find what would be an overlap if somebody else had come at that moment.

// overstayed: no claim lasts longer than a lease from the sending of a request
// that was confirmed by then, or than a place from that of an ask. That leaves
// out the margin, and so room for clocks that differ by less.
func overstayed(h *History) []Violation {
	if h.Plan.has(WildClock) {
		return nil
	}
	var found []Violation
	ids := h.claimedIDs()
	for _, c := range h.Claims {
		l := ids[c.grantID()]
		if l == nil {
			continue
		}
		until := l.asked.plus(min(l.Wait, l.Lease))
		for _, confirmed := range l.confirmed {
			if confirmed.Returned <= c.Until {
				until = max(until, confirmed.Sent.plus(confirmed.Lease))
			}
		}
		for _, queued := range l.answeredQueue {
			if queued.Returned <= c.Until {
				until = max(until, queued.Sent.plus(min(queued.Wait, queued.Lease)))
			}
		}
		if c.Until > until {
			found = append(found, violation("overstayed", "%q: token %d is claimed until %v, and what was confirmed lasts until %v",
				c.Name, c.Token, c.Until.time(), until.time()))
		}
	}
	return found
}

// stale: who was told to wait does not claim with a token that was out by then.
// Only a grant by event can be, when the promotion that it tells of has expired. What
// is nested in one that was new may be taken when its client has not learned yet that
// the hold was taken away.
func stale(h *History) []Violation {
	var found []Violation
	ids := h.claimedIDs()
	for _, c := range h.Claims {
		l := ids[c.grantID()]
		if l == nil || l.answered() || c.Nested {
			continue
		}
		for _, queued := range l.answeredQueue {
			if queued.Returned < c.From && queued.Token >= c.Token {
				found = append(found, violation("stale grant", "%q: #%d was told to wait at %v, when token %d was out, and claims with token %d",
					c.Name, l.ID, queued.Returned.time(), queued.Token, c.Token))
				break
			}
		}
	}
	return found
}

// answered: an answer, and not only an event, said that the id is granted.
func (l *life) answered() bool {
	for _, c := range l.confirmed {
		if c.Outcome == Held {
			return true
		}
	}
	return false
}
