package sim

import (
	"maps"
	"slices"
	"time"
)

// These checkers ask whether a client acts on what it is told, and goes on while
// it is told nothing.

// grantID is what a claim and the id that it builds on have in common.
type grantID struct {
	client int
	name   string
	token  uint64
	shared bool
}

// claimedIDs returns the ids that claims build on. An owner can have several with
// one token in one mode, by calls that were under way at once; those are left
// out, and so are ids that were granted more than once.
func (h *History) claimedIDs() map[grantID]*life {
	lives := h.lives()
	ids := make(map[grantID]*life)
	doubt := make(map[grantID]bool)
	see := func(l *life, token uint64) {
		g := grantID{l.Client, l.Name, token, l.Shared}
		doubt[g] = doubt[g] || l.several || ids[g] != nil && ids[g] != l
		ids[g] = l
	}
	for _, c := range h.Calls {
		if c.Outcome == Held {
			see(lives[c.ID], c.Token)
		}
	}
	for _, p := range h.Promotions {
		if l := lives[p.ID]; l != nil {
			see(l, p.Token)
		}
	}
	maps.DeleteFunc(ids, func(g grantID, _ *life) bool { return doubt[g] })
	return ids
}

func (c *Claim) grantID() grantID { return grantID{c.Client, c.Name, c.Token, c.Shared} }

// outlived: no claim goes on when its client was told that the hold is gone.
func outlived(h *History) []Violation {
	told := make(map[int]*Call)
	for _, c := range h.Calls {
		if c.Op == Renew && c.Outcome == Lost && (told[c.ID] == nil || c.Returned < told[c.ID].Returned) {
			told[c.ID] = c
		}
	}
	if len(told) == 0 {
		return nil
	}
	var found []Violation
	ids := h.claimedIDs()
	for _, c := range h.Claims {
		id := ids[c.grantID()]
		if id == nil || told[id.ID] == nil {
			continue
		}
		if at := told[id.ID].Returned; c.Until.time() > at.time() {
			found = append(found, violation("outlived", "%q: the hold of token %d was told lost at %v, and is claimed until %v",
				c.Name, c.Token, at.time(), c.Until.time()))
		}
	}
	return found
}

// manyReleases is how many a client repeats at once. Others wait for their turn, and their leases may end before it.
const manyReleases = 8

// givenUp: a release that was not confirmed is repeated for as long as what it
// releases may be there by the client's clock. Clients that could not leave it to the
// leases, and so do those that have more to repeat than they do at once.
func givenUp(h *History) []Violation {
	if h.Plan.has(WildClock) {
		return nil
	}
	unable, last := h.unable(), make(map[int]*Call)
	failed := make(map[int]Moment) // when the first release of an id failed
	alive := make(map[int]Moment)
	for _, c := range h.Calls {
		switch {
		case c.Op == Release:
			if last[c.ID] == nil || last[c.ID].Sent < c.Sent {
				last[c.ID] = c
			}
			if c.unconfirmed() && (failed[c.ID] == 0 || c.Returned < failed[c.ID]) {
				failed[c.ID] = c.Returned
			}
		case c.Outcome == Held, c.Outcome == Done:
			alive[c.ID] = max(alive[c.ID], c.Sent.plus(c.Lease))
		case c.Outcome == Queued:
			alive[c.ID] = max(alive[c.ID], c.Sent.plus(c.Wait))
		}
	}
	// repeated counts the releases of a client that it has to repeat in some part of a time.
	repeated := func(client int, from, until Moment) (n int) {
		for id, since := range failed {
			c := last[id]
			end := c.Returned
			if c.unconfirmed() {
				end = alive[id].plus(c.Lease)
			}
			if c.Client == client && since < until && end > from {
				n++
			}
		}
		return n
	}
	var found []Violation
	for _, c := range h.Calls {
		if c != last[c.ID] || unable[c.Client] || !c.unconfirmed() {
			continue
		}
		if until := alive[c.ID]; c.Returned < until && repeated(c.Client, c.Returned, until) <= manyReleases {
			found = append(found, violation("given up", "%q: the last release of #%d failed at %v, and it may be there until %v",
				c.Name, c.ID, c.Returned.time(), until.time()))
		}
	}
	return found
}

// unconfirmed: the answer to a release leaves open whether anything is left, or says that it is.
func (c *Call) unconfirmed() bool { return c.Outcome == Unknown || c.Outcome == Refused }

// rest is the shortest time between two asks for one id.
const rest = 10 * time.Millisecond

// overslept: who waits asks again when the store can be reached again. A try is
// no wait; it asks at its own times.
func overslept(h *History) []Violation {
	if len(h.Reconnects) == 0 {
		return nil
	}
	asks := make(map[int][]*Call) // of each id, in their order
	for _, c := range h.Calls {
		if c.Op == Acquire && c.Queue {
			asks[c.ID] = append(asks[c.ID], c)
		}
	}
	var found []Violation
	for _, r := range h.Reconnects {
		for id, list := range asks {
			if list[0].Client != r.Client {
				continue
			}
			next := slices.IndexFunc(list, func(c *Call) bool { return c.Sent >= r.At })
			if next <= 0 || list[next-1].Returned > r.At {
				continue
			}
			if due := max(r.At.time(), list[next-1].Sent.time()+rest); list[next].Sent.time() > due {
				found = append(found, violation("overslept", "%q: the client of #%d was told at %v that the store is back, and it asks at %v",
					list[next].Name, id, r.At.time(), list[next].Sent.time()))
			}
		}
	}
	return found
}

// disowned: Unlock does not call a hold lost that one of its own requests released. One
// that was done after another had found nothing has released what came later.
func disowned(h *History) []Violation {
	missed := make(map[int]Moment)
	released := make(map[int]bool)
	for _, outcome := range []Outcome{Lost, Done} {
		for _, c := range h.Calls {
			if c.Op != Release || len(c.Arrivals) == 0 || c.Arrivals[0].Outcome != outcome { // not by a late copy
				continue
			}
			at, before := c.Arrivals[0].From, missed[c.ID]
			switch {
			case before != 0 && before < at:
			case outcome == Lost:
				missed[c.ID] = at
			default:
				released[c.ID] = true
			}
		}
	}
	var found []Violation
	ids := h.claimedIDs()
	for _, c := range h.Claims {
		if l := ids[c.grantID()]; c.Disowned && l != nil && released[l.ID] {
			found = append(found, violation("disowned", "%q: token %d was released, and Unlock calls it lost", c.Name, c.Token))
		}
	}
	return found
}
