package sim

import "slices"

// The cheap checkers: each looks for one thing that no history may have.

// overlaps: no two claims that exclude each other overlap. That is not promised
// where clocks differ by more than the margin, nor to those whose holds were
// removed by force or lost by the store.
func overlaps(h *History) []Violation {
	if h.Plan.has(WildClock) {
		return nil
	}
	var found []Violation
	for i, a := range h.Claims {
		for _, b := range h.Claims[i+1:] {
			if a.Name != b.Name || a.Owner == b.Owner || a.Shared && b.Shared {
				continue
			}
			if a.From < b.Until && b.From < a.Until && !h.revoked(a.Name, a.Token, b.Token) && !h.lateNested(a) && !h.lateNested(b) {
				found = append(found, violation("overlap", "%q: token %d from %v until %v, and token %d from %v until %v",
					a.Name, a.Token, a.From.time(), a.Until.time(), b.Token, b.From.time(), b.Until.time()))
			}
		}
	}
	return found
}

// lateNested reports that the hold under a nested claim was lost while its call was
// under way, after the call had re-entered. The handle that it then returns says at
// once that it is lost: nobody can act by it.
func (h *History) lateNested(c *Claim) bool {
	return c.Nested && c.Lost && slices.ContainsFunc(h.Claims, func(outer *Claim) bool {
		return outer != c && outer.Lost && outer.Name == c.Name && outer.Owner == c.Owner && outer.Token == c.Token &&
			c.Called < outer.Until && outer.Until < c.From
	})
}

// claimTokens: a lock that was asked for when another one had been granted has
// the greater token, whatever failed. A claim inside another has the token of the hold
// that it builds on, and so may one of an owner who acts in several places. A hold that
// is gone without its client's knowledge may have been passed on there. So may a grant
// of a request that was sent before the claim was called: a place belongs to the queue.
//
// Who reads with others of his client goes by what one of them asked for, perhaps
// before he came. So a reader's token is greater than those of the readers who had
// theirs when the store was asked for it; one that is of a span is in no order.
func claimTokens(h *History) []Violation {
	var found []Violation
	asked := h.issues()
	for _, later := range h.Claims {
		if later.Nested || !later.Private {
			continue
		}
		request, issued := asked[issue{later.Name, later.Token}]
		for _, c := range h.Claims {
			since := later.Called
			if c.Shared && later.Shared {
				if !issued {
					continue
				}
				since = request
			}
			if c.Name != later.Name || c.Owner == later.Owner || c.From >= since || c.Token < later.Token {
				continue
			}
			passed := !issued || request < later.Called
			if passed && (h.Plan.has(WildClock) || h.revoked(later.Name, later.Token, c.Token)) {
				continue
			}
			found = append(found, violation("token order", "%q: token %d returned at %v, and token %d was asked for at %v",
				c.Name, c.Token, c.From.time(), later.Token, since.time()))
		}
	}
	return found
}

// twins: no token is given to two owners.
func twins(h *History) []Violation {
	type grant struct {
		name  string
		token uint64
	}
	var found []Violation
	owners := make(map[grant]int)
	see := func(where, name string, token uint64, owner int) {
		g := grant{name, token}
		if other, ok := owners[g]; ok && other != owner {
			found = append(found, violation("duplicate token", "%q: token %d was given to owners %d and %d (%s)", name, token, other, owner, where))
		}
		owners[g] = owner
	}
	for _, c := range h.Calls {
		if c.Outcome == Held {
			see("call", c.Name, c.Token, c.Owner)
		}
	}
	ids := h.byID()
	for _, p := range h.Promotions {
		if c := ids[p.ID]; c != nil {
			see("event", c.Name, p.Token, c.Owner)
		}
	}
	clear(owners) // the store knows the clients' private owners by other ids
	for _, c := range h.Claims {
		see("claim", c.Name, c.Token, c.Owner)
	}
	return found
}

// byID returns a call of each id.
func (h *History) byID() map[int]*Call {
	ids := make(map[int]*Call)
	for _, c := range h.Calls {
		if ids[c.ID] == nil {
			ids[c.ID] = c
		}
	}
	return ids
}

// life is what is known of one id that was granted once.
type life struct {
	*Call                 // one of its calls
	token         uint64  // 0: never granted, as far as known
	granted       Moment  // when that was known
	several       bool    // it was granted more than once
	confirmed     []*Call // calls that gave it a lease, or a place
	released      Moment  // the first call of Release; never if there was none
	asked         Moment
	answeredQueue []*Call // answered with a place
}

// lives returns what is known of all ids.
func (h *History) lives() map[int]*life {
	lives := make(map[int]*life)
	of := func(c *Call) *life {
		l := lives[c.ID]
		if l == nil {
			l = &life{Call: c, granted: never, released: never, asked: never}
			lives[c.ID] = l
		}
		return l
	}
	for _, c := range h.Calls {
		l := of(c)
		switch {
		case c.Op == Release:
			l.released = min(l.released, c.Sent)
		case c.Op == Renew:
			if c.Outcome == Done {
				l.confirmed = append(l.confirmed, c)
			}
		default:
			l.asked = min(l.asked, c.Sent)
			if c.Outcome == Held {
				l.confirmed = append(l.confirmed, c)
				l.grant(c.Token, c.Returned)
			}
			if c.Outcome == Queued {
				l.answeredQueue = append(l.answeredQueue, c)
			}
		}
	}
	for _, p := range h.Promotions {
		if l := lives[p.ID]; l != nil {
			l.grant(p.Token, p.At)
		}
	}
	return lives
}

func (l *life) grant(token uint64, known Moment) {
	l.several = l.several || l.token != 0 && l.token != token
	l.token, l.granted = token, min(l.granted, known)
}

// earlyGrants: nobody is granted what excludes a hold before that hold can have
// ended: the sending of the last request known to have given it a lease, and
// that lease, unless it was released or removed. It needs no more of the store's
// clock than its rate.
func earlyGrants(h *History) []Violation {
	var found []Violation
	lives := h.sortedLives()
	for _, holder := range lives {
		if holder.token == 0 || holder.several {
			continue
		}
		for _, rival := range lives {
			if rival.Name != holder.Name || rival.Owner == holder.Owner || rival.Shared && holder.Shared ||
				rival.several || rival.token <= holder.token || rival.granted > holder.released || h.revoked(holder.Name, holder.token, rival.token) {
				continue
			}
			for _, c := range holder.confirmed {
				if c.Returned < rival.granted && rival.granted < c.Sent.plus(c.Lease) {
					found = append(found, violation("early grant", "%q: #%d (token %d) was granted by %v, and #%d (token %d) has a lease from %v of %v",
						holder.Name, rival.ID, rival.token, rival.granted.time(), holder.ID, holder.token, c.Sent.time(), c.Lease))
					break
				}
			}
		}
	}
	return found
}

func (h *History) sortedLives() []*life {
	var list []*life
	for _, l := range h.lives() {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *life) int { return a.ID - b.ID })
	return list
}

// queueOrder: who stands in the store's queue is granted before those who come
// later. It is judged while a place is certainly alive: from an answer that says
// so, for as long as that keeps it. Only owners with a single id on the name are
// judged, for the others may pass by re-entry, or lose their place by an upgrade.
func queueOrder(h *History) []Violation {
	var found []Violation
	lives := h.sortedLives()
	type who struct {
		name  string
		owner int
	}
	ids := make(map[who]int)
	for _, l := range lives {
		ids[who{l.Name, l.Owner}]++
	}
	for _, second := range lives {
		if second.token == 0 || second.several || ids[who{second.Name, second.Owner}] > 1 {
			continue
		}
		for _, first := range lives {
			if first == second || first.Name != second.Name || first.several || ids[who{first.Name, first.Owner}] > 1 || first.released < second.granted ||
				first.token != 0 && first.token < second.token || h.lostData(first.asked, second.granted) {
				continue
			}
			if first.waits(second.asked, second.granted) {
				found = append(found, violation("queue order", "%q: #%d, who came later, was granted (token %d) by %v, before #%d",
					first.Name, second.ID, second.token, second.granted.time(), first.ID))
			}
		}
	}
	return found
}

// waits: the id has an unbroken place in the queue from one moment to another.
func (l *life) waits(from, to Moment) bool {
	var until Moment
	for _, c := range l.answeredQueue {
		if until == 0 {
			if c.Returned > from {
				return false
			}
		} else if c.Returned >= until {
			return false // the place may have ended and begun anew
		}
		if until = c.Sent.plus(c.Wait); until > to {
			return true
		}
	}
	return false
}

// lostData: the store lost its data in that time.
func (h *History) lostData(from, to Moment) bool {
	return slices.ContainsFunc(h.Marks, func(m Mark) bool { return m.Name == "" && m.From < to && from < m.To })
}

// lateGrants: a request of which its client knows nothing, and that comes after
// its id was released, is not granted and gets no place for as long as a burial
// lasts. A late copy of a request that was answered is another matter: its
// client had nothing to bury.
func lateGrants(h *History) []Violation {
	releases := make(map[int][]*Call) // those that were confirmed
	for _, c := range h.Calls {
		if c.Op == Release && (c.Outcome == Done || c.Outcome == Lost) {
			releases[c.ID] = append(releases[c.ID], c)
		}
	}
	var found []Violation
	for _, c := range h.Calls {
		if c.Op != Acquire || c.Outcome != Unknown {
			continue
		}
		for _, r := range releases[c.ID] {
			released := r.Arrivals[0].From
			for _, a := range c.Arrivals {
				if c.Sent < r.Sent && released < a.From && a.From < released.plus(r.Lease) && !h.lostData(released, a.To) &&
					(a.Outcome == Held || a.Outcome == Queued) {
					found = append(found, violation("late grant", "%q: #%d was released at %v, and %s at %v", c.Name, c.ID, released.time(), a.Outcome, a.From.time()))
				}
			}
		}
	}
	return found
}

// handOvers counts how often a name passed from one owner to another.
func (h *History) handOvers() int {
	n := 0
	last := make(map[string]int)
	for _, c := range h.Claims {
		if owner, ok := last[c.Name]; ok && owner != c.Owner {
			n++
		}
		last[c.Name] = c.Owner
	}
	return n
}

// issue is a token of a name.
type issue struct {
	name  string
	token uint64
}

// issues returns the tokens that the store told, each with when it was first asked for
// what it gave that token. Others were passed on within a client.
func (h *History) issues() map[issue]Moment {
	sent := make(map[int]Moment)
	for _, c := range h.Calls {
		if first, ok := sent[c.ID]; !ok || c.Sent < first {
			sent[c.ID] = c.Sent
		}
	}
	asked := make(map[issue]Moment)
	tell := func(c *Call, token uint64) {
		g := issue{c.Name, token}
		if first, ok := asked[g]; !ok || sent[c.ID] < first {
			asked[g] = sent[c.ID]
		}
	}
	for _, c := range h.Calls {
		if c.Outcome == Held {
			tell(c, c.Token)
		}
	}
	ids := h.byID()
	for _, p := range h.Promotions {
		if c := ids[p.ID]; c != nil {
			tell(c, p.Token)
		}
	}
	return asked
}

// localHandOvers counts how often a lock passed on within a client.
func (h *History) localHandOvers() int {
	asked := h.issues()
	n := 0
	for _, c := range h.Claims {
		if _, issued := asked[issue{c.Name, c.Token}]; !c.Nested && !issued {
			n++
		}
	}
	return n
}
