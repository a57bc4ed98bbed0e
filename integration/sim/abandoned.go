package sim

// abandoned: whatever the store may have given, its client gave back in the
// end, or tried to. Clients that could not leave it to the leases, and so does one that
// lost thousands of holds.
func abandoned(h *History) []Violation {
	var found []Violation
	unable, flooded := h.unable(), h.flooded()
	lives := h.lives()
	for _, c := range h.Calls {
		if c.Op != Acquire || unable[c.Client] || lives[c.ID].released != never || flooded(c, lives[c.ID].token) {
			continue
		}
		if c.Outcome == Held || c.Outcome == Queued || c.Outcome == Unknown {
			found = append(found, violation("abandoned", "%q: #%d was %s at %v and is never released", c.Name, c.ID, c.Outcome, c.Sent.time()))
		}
	}
	return found
}

// A client releases lost holds, and tries releases again, so many at once; and other releases the first time.
const releasesAtOnce, firstReleasesAtOnce = 8, 256

// unable are the clients that cannot release all in time: those that were closed while they could not reach the store,
// and of those with thousands of names the ones whose releases wait for many others that get no answer in time.
func (h *History) unable() map[int]bool {
	clients := make(map[int]bool)
	for _, client := range h.Closed {
		clients[client] = true
	}
	for client, n := range h.unanswered() {
		if n >= firstReleasesAtOnce {
			clients[client] = true
		}
	}
	return clients
}

// unanswered is how many releases of each client got no answer while the lease lasted, in the scene of thousands of
// names.
func (h *History) unanswered() map[int]int {
	n := make(map[int]int)
	for _, c := range h.Calls {
		late := c.Outcome == Unknown || c.Returned.time()-c.Sent.time() > h.Plan.TTL
		if h.Plan.Scene == Many && c.Op == Release && late {
			n[c.Client]++
		}
	}
	return n
}

// flooded tells of a granted request whether its hold is one that a client lost by the thousand and need not release:
// while its first releases get no answer, the leases of the others run out. The claim has the first token of the grant,
// or by a hand-over within the client one of those that the request reserves behind it.
func (h *History) flooded() func(c *Call, token uint64) bool {
	unanswered, lost := h.unanswered(), make(map[issue]bool)
	for _, c := range h.Claims {
		if c.Lost && unanswered[c.Client] >= releasesAtOnce {
			lost[issue{c.Name, c.Token}] = true
		}
	}
	return func(c *Call, token uint64) bool {
		for i := range max(1, c.Tokens) {
			if lost[issue{c.Name, token + uint64(i)}] {
				return true
			}
		}
		return false
	}
}
