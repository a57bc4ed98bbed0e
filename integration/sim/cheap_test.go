package sim

import "testing"

// Each checker accepts a history that is as it should be, and refuses one in
// which something is wrong.
func TestCheapCheckers(t *testing.T) {
	force := func(when int, token uint64) func(hand) {
		return func(h hand) { h.Marks = append(h.Marks, Mark{"a", ms(when), ms(when) + 1, token}) }
	}
	for _, x := range []struct {
		name  string
		check func(*History) []Violation
		legal bool
		make  func(h hand)
	}{
		{"one after the other", overlaps, true, func(h hand) { h.claim(1, 0, 1, 10, 1); h.claim(2, 2, 10, 20, 2) }},
		{"overlap", overlaps, false, func(h hand) { h.claim(1, 0, 1, 11, 1); h.claim(2, 2, 10, 20, 2) }},
		{"overlap, the later one listed first", overlaps, false, func(h hand) { h.claim(2, 2, 10, 20, 2); h.claim(1, 0, 1, 11, 1) }},
		{"one inside the other", overlaps, false, func(h hand) { h.claim(1, 0, 1, 30, 1); h.claim(2, 2, 10, 20, 2) }},
		{"never given back", overlaps, false, func(h hand) {
			h.claim(1, 0, 1, 2, 1, func(c *Claim) { c.Until = never })
			h.claim(2, 2, 10, 20, 2)
		}},
		{"readers overlap", overlaps, true, func(h hand) { h.claim(1, 0, 1, 11, 1, reader); h.claim(2, 2, 10, 20, 2, reader) }},
		{"reader and writer overlap", overlaps, false, func(h hand) { h.claim(1, 0, 1, 11, 1, reader); h.claim(2, 2, 10, 20, 2) }},
		{"one owner twice", overlaps, true, func(h hand) { h.claim(1, 0, 1, 11, 1); h.claim(1, 2, 10, 20, 1, nested) }},
		{"a nested call that returns after the loss", overlaps, true, func(h hand) {
			h.claim(1, 0, 1, 10, 1, lost)
			h.claim(2, 2, 12, 20, 2)
			h.claim(1, 9, 13, 14, 1, nested, lost)
		}},
		{"a nested call that is made after the loss", overlaps, false, func(h hand) {
			h.claim(1, 0, 1, 10, 1, lost)
			h.claim(2, 2, 12, 20, 2)
			h.claim(1, 11, 13, 14, 1, nested, lost)
		}},
		{"overlap after force", overlaps, true, func(h hand) { h.claim(1, 0, 1, 11, 1); h.claim(2, 2, 10, 20, 2); force(9, 1)(h) }},
		{"overlap that force does not explain", overlaps, false, func(h hand) { h.claim(1, 0, 1, 11, 2); h.claim(2, 2, 10, 20, 3); force(9, 1)(h) }},
		{"overlap after force while the parts of a grant are agreed on", overlaps, true, func(h hand) {
			h.Plan.Nodes = 3
			h.held(1, 7, 12, 2)
			h.claim(1, 7, 12, 31, 2)
			h.claim(2, 20, 30, 40, 3)
			force(9, 1)(h)
		}},
		{"overlap after force while one store grants", overlaps, false, func(h hand) {
			h.held(1, 7, 12, 2)
			h.claim(1, 7, 12, 31, 2)
			h.claim(2, 20, 30, 40, 3)
			force(9, 1)(h)
		}},
		{"overlap after force that came before the grant", overlaps, false, func(h hand) {
			h.Plan.Nodes = 3
			h.held(1, 11, 12, 2)
			h.claim(1, 11, 12, 31, 2)
			h.claim(2, 20, 30, 40, 3)
			force(9, 1)(h)
		}},
		{"overlap, clocks too different", overlaps, true, func(h hand) {
			h.Plan.Faults = []Fault{{Kind: WildClock}}
			h.claim(1, 0, 1, 11, 1)
			h.claim(2, 2, 10, 20, 2)
		}},
		{"overlap, clocks within the margin", overlaps, false, func(h hand) {
			h.Plan.Faults = []Fault{{Kind: Drift}}
			h.claim(1, 0, 1, 11, 1)
			h.claim(2, 2, 10, 20, 2)
		}},

		{"tokens grow", claimTokens, true, func(h hand) { h.claim(1, 0, 1, 5, 1); h.claim(2, 2, 10, 20, 2) }},
		{"token falls", claimTokens, false, func(h hand) { h.claim(1, 0, 1, 5, 7); h.claim(2, 2, 10, 20, 6) }},
		{"token stays", claimTokens, false, func(h hand) { h.claim(1, 0, 1, 5, 7); h.claim(2, 2, 10, 20, 7) }},
		{"token falls between calls at once", claimTokens, true, func(h hand) { h.claim(1, 0, 3, 5, 7, reader); h.claim(2, 2, 10, 20, 6, reader) }},
		{"a reader's token is of a span from before", claimTokens, true, func(h hand) { h.claim(1, 0, 1, 5, 7, reader); h.claim(2, 2, 10, 20, 6, reader) }},
		{"a reader's token that the store issues falls", claimTokens, false, func(h hand) {
			h.claim(1, 0, 1, 5, 7, reader)
			h.held(2, 2, 9, 6, owner(2), shared)
			h.claim(2, 6, 10, 20, 6, reader)
		}},
		{"a reader's token that the store was asked for by another, before he came", claimTokens, true, func(h hand) {
			h.held(2, 2, 9, 6, owner(2), shared)
			h.claim(1, 0, 4, 5, 7, reader)
			h.claim(2, 6, 10, 20, 6, reader)
		}},
		{"a reader's token, asked for again when another had his", claimTokens, true, func(h hand) {
			h.queued(2, 2, 3, 1, 5, shared)
			h.claim(1, 0, 4, 5, 7, reader)
			h.held(2, 8, 9, 6, shared)
			h.claim(2, 6, 10, 20, 6, reader)
		}},
		{"a reader's token that was pushed falls", claimTokens, false, func(h hand) {
			h.claim(1, 0, 1, 5, 7, reader)
			h.queued(2, 2, 3, 1, 5, shared)
			h.promote(2, 9, 6)
			h.claim(2, 2, 10, 20, 6, reader)
		}},
		{"a place that was asked for before the claim, its grant broken", claimTokens, true, func(h hand) {
			h.queued(2, 1, 2, 1, 5)
			h.promote(2, 3, 6)
			force(4, 6)(h)
			h.claim(1, 0, 5, 6, 7)
			h.claim(2, 8, 10, 20, 6)
		}},
		{"the same without a break", claimTokens, false, func(h hand) {
			h.queued(2, 1, 2, 1, 5)
			h.promote(2, 3, 6)
			h.claim(1, 0, 5, 6, 7)
			h.claim(2, 8, 10, 20, 6)
		}},
		{"the claim's own request, its grant broken", claimTokens, false, func(h hand) {
			h.queued(2, 8, 9, 1, 5)
			h.promote(2, 9, 6)
			force(4, 6)(h)
			h.claim(1, 0, 5, 6, 7)
			h.claim(2, 8, 10, 20, 6)
		}},
		{"token of the outer hold", claimTokens, true, func(h hand) {
			h.claim(1, 0, 1, 20, 1, reader)
			h.claim(2, 2, 3, 20, 2, reader)
			h.claim(1, 4, 5, 20, 1, reader, nested)
		}},

		{"tokens differ", twins, true, func(h hand) { h.held(1, 0, 1, 1); h.held(2, 2, 3, 2) }},
		{"one token, two owners", twins, false, func(h hand) { h.held(1, 0, 1, 1); h.held(2, 2, 3, 1) }},
		{"one token, one owner", twins, true, func(h hand) { h.held(1, 0, 1, 1); h.held(2, 2, 3, 1, owner(1)) }},
		{"one token, two owners, by event", twins, false, func(h hand) { h.held(1, 0, 1, 1); h.queued(2, 2, 3, 1, 1); h.promote(2, 4, 1) }},
		{"one token, two claims", twins, false, func(h hand) { h.claim(1, 0, 1, 5, 7, reader); h.claim(2, 0, 1, 5, 7, reader) }},

		{"granted after the lease", earlyGrants, true, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 999, 1001, 2) }},
		{"granted within the lease", earlyGrants, false, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 990, 999, 2) }},
		{"granted within the lease that a renewal gave", earlyGrants, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Renew, 1, 300, 310, Done)
			h.held(2, 1200, 1290, 2)
		}},
		{"granted after a renewal of which nobody knows", earlyGrants, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Renew, 1, 300, 310, Unknown)
			h.held(2, 1200, 1290, 2)
		}},
		{"granted after release", earlyGrants, true, func(h hand) { h.held(1, 0, 2, 1); h.call(Release, 1, 10, 20, Unknown); h.held(2, 11, 15, 2) }},
		{"granted after force", earlyGrants, true, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 11, 15, 2); force(5, 1)(h) }},
		{"readers within the lease", earlyGrants, true, func(h hand) { h.held(1, 0, 2, 1, shared); h.held(2, 11, 15, 2, shared) }},
		{"early by event", earlyGrants, false, func(h hand) { h.held(1, 0, 2, 1); h.queued(2, 11, 15, 1, 1); h.promote(2, 500, 2) }},

		{"in order", queueOrder, true, func(h hand) {
			h.queued(1, 0, 1, 1, 1)
			h.queued(2, 2, 3, 2, 1)
			h.promote(1, 10, 2)
			h.promote(2, 20, 3)
		}},
		{"out of order", queueOrder, false, func(h hand) {
			h.queued(1, 0, 1, 1, 1)
			h.queued(2, 2, 3, 2, 1)
			h.promote(2, 10, 2)
			h.promote(1, 20, 3)
		}},
		{"passed by a newcomer", queueOrder, false, func(h hand) { h.queued(1, 0, 1, 1, 1); h.held(2, 2, 3, 2) }},
		{"passed when its place had ended", queueOrder, true, func(h hand) { h.queued(1, 0, 1, 1, 1); h.held(2, 502, 503, 2) }},
		{"passed while it keeps its place", queueOrder, false, func(h hand) {
			h.queued(1, 0, 1, 1, 1)
			h.queued(1, 300, 301, 1, 1)
			h.held(2, 502, 503, 2)
		}},
		{"passed when it had released", queueOrder, true, func(h hand) {
			h.queued(1, 0, 1, 1, 1)
			h.call(Release, 1, 2, 4, Done)
			h.held(2, 3, 5, 2)
		}},
		{"passed by re-entry", queueOrder, true, func(h hand) {
			h.held(3, -2, -1, 1, owner(2))
			h.queued(1, 0, 1, 1, 1)
			h.held(2, 2, 3, 1)
		}},

		{"buried in time", lateGrants, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, arrived(20, Lost))
			h.call(Release, 1, 6, 7, Lost, bury)
		}},
		{"granted though buried", lateGrants, false, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, arrived(20, Held))
			h.call(Release, 1, 6, 7, Lost)
		}},
		{"queued though buried", lateGrants, false, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, arrived(20, Queued))
			h.call(Release, 1, 6, 7, Lost)
		}},
		{"a late copy of what was answered", lateGrants, true, func(h hand) {
			h.held(1, 0, 5, 1, arrivedToo(20, Held))
			h.call(Release, 1, 6, 7, Done)
		}},
		{"later than any burial lasts", lateGrants, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, arrived(1020, Held))
			h.call(Release, 1, 6, 7, Lost, bury)
		}},

		{"given back", abandoned, true, func(h hand) { h.held(1, 0, 1, 1); h.call(Release, 1, 2, 3, Unknown) }},
		{"held and forgotten", abandoned, false, func(h hand) { h.held(1, 0, 1, 1) }},
		{"queued and forgotten", abandoned, false, func(h hand) { h.queued(1, 0, 1, 1, 1) }},
		{"unknown and forgotten", abandoned, false, func(h hand) { h.call(Acquire, 1, 0, 1, Unknown, neverArrived) }},
		{"lost with thousands and forgotten, while no release is answered", abandoned, true, func(h hand) {
			h.Plan.Scene = Many
			h.held(1, 0, 1, 1)
			h.claim(1, 0, 1, 110, 1, lost)
			h.unanswered(releasesAtOnce)
		}},
		{"granted by an event, lost with thousands and forgotten, while no release is answered", abandoned, true, func(h hand) {
			h.Plan.Scene = Many
			h.queued(1, 0, 1, 1, 1)
			h.promote(1, 2, 2)
			h.claim(1, 2, 3, 110, 2, lost)
			h.unanswered(releasesAtOnce)
		}},
		{"handed over, lost with thousands and forgotten, while no release is answered", abandoned, true, func(h hand) {
			h.Plan.Scene = Many
			h.held(1, 0, 1, 1)
			h.Calls[0].Tokens = 2
			h.claim(1, 2, 3, 110, 2, lost)
			h.unanswered(releasesAtOnce)
		}},
		{"forgotten, and another with the token behind it lost with thousands", abandoned, false, func(h hand) {
			h.Plan.Scene = Many
			h.held(1, 0, 1, 1)
			h.claim(1, 2, 3, 110, 2, lost)
			h.unanswered(releasesAtOnce)
		}},
		{"queued and forgotten, while no release is answered", abandoned, false, func(h hand) {
			h.Plan.Scene = Many
			h.queued(1, 0, 1, 1, 1)
			h.claim(2, 2, 3, 110, 1, lost)
			h.unanswered(releasesAtOnce)
		}},
		{"lost with thousands and forgotten, while releases are answered", abandoned, false, func(h hand) {
			h.Plan.Scene = Many
			h.held(1, 0, 1, 1)
			h.claim(1, 0, 1, 110, 1, lost)
			h.unanswered(releasesAtOnce - 1)
		}},
		{"one of thousands, not lost and forgotten", abandoned, false, func(h hand) {
			h.Plan.Scene = Many
			h.held(1, 0, 1, 1)
			h.claim(1, 0, 1, 110, 1)
			h.unanswered(releasesAtOnce)
		}},
		{"unknown and forgotten, while hundreds of releases get no answer", abandoned, true, func(h hand) {
			h.Plan.Scene = Many
			h.call(Acquire, 1, 0, 1, Unknown, neverArrived)
			h.unanswered(firstReleasesAtOnce)
		}},
		{"unknown and forgotten, while hundreds of releases are answered after the lease", abandoned, true, func(h hand) {
			h.Plan.Scene, h.Plan.TTL = Many, lease
			h.call(Acquire, 1, 0, 1, Unknown, neverArrived)
			h.answeredAfter(1001, firstReleasesAtOnce)
		}},
		{"unknown and forgotten, while hundreds of releases are answered in time", abandoned, false, func(h hand) {
			h.Plan.Scene, h.Plan.TTL = Many, lease
			h.call(Acquire, 1, 0, 1, Unknown, neverArrived)
			h.answeredAfter(1000, firstReleasesAtOnce)
		}},
		{"unknown and forgotten, while fewer get none", abandoned, false, func(h hand) {
			h.Plan.Scene = Many
			h.call(Acquire, 1, 0, 1, Unknown, neverArrived)
			h.unanswered(firstReleasesAtOnce - 1)
		}},
		{"refused", abandoned, true, func(h hand) { h.call(Acquire, 1, 0, 1, Busy, try) }},
		{"forgotten by a client that was cut off", abandoned, true, func(h hand) { h.held(1, 0, 1, 1); h.Closed = []int{0} }},

		{"ended when told", outlived, true, func(h hand) { h.held(1, 0, 1, 1); h.call(Renew, 1, 300, 310, Lost); h.claim(1, 0, 1, 310, 1) }},
		{"claimed after it was told", outlived, false, func(h hand) { h.held(1, 0, 1, 1); h.call(Renew, 1, 300, 310, Lost); h.claim(1, 0, 1, 311, 1) }},
		{"told of another of its holds", outlived, true, func(h hand) {
			h.held(1, 0, 1, 1)
			h.held(2, 2, 3, 1, owner(1), holds(2), shared)
			h.call(Renew, 2, 300, 310, Lost, shared)
			h.claim(1, 0, 1, 400, 1)
		}},

		{"released at the second try", givenUp, true, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Release, 1, 2, 3, Unknown)
			h.call(Release, 1, 4, 5, Lost)
		}},
		{"not tried again", givenUp, false, func(h hand) { h.held(1, 0, 1, 1); h.call(Release, 1, 2, 3, Unknown) }},
		{"not tried again after a refusal", givenUp, false, func(h hand) { h.queued(1, 0, 1, 1, 1); h.call(Release, 1, 2, 3, Refused) }},
		{"tried until it must be over", givenUp, true, func(h hand) { h.held(1, 0, 1, 1); h.call(Release, 1, 990, 1000, Unknown) }},
		{"not over yet, for it was renewed", givenUp, false, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Renew, 1, 300, 310, Done)
			h.call(Release, 1, 990, 1000, Unknown)
		}},
		{"not tried again while eight others are", givenUp, true, func(h hand) {
			for id := range manyReleases + 1 {
				h.held(id+1, 0, 1, uint64(id)+1)
				h.call(Release, id+1, 2, 3, Unknown)
			}
		}},
		{"not tried again while eight others had been", givenUp, false, func(h hand) {
			for id := range manyReleases + 1 {
				h.held(id+1, 0, 1, uint64(id)+1)
				h.call(Release, id+1, 2, 3, Unknown)
				if id > 0 {
					h.call(Release, id+1, 3, 3, Done)
				}
			}
		}},
		{"given up by a client that was cut off", givenUp, true, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Release, 1, 2, 3, Unknown)
			h.Closed = []int{0}
		}},

		{"asks when the store is back", overslept, true, func(h hand) { h.queued(1, 0, 5, 1, 0); h.queued(1, 100, 105, 1, 0); back(h, 100) }},
		{"sleeps when the store is back", overslept, false, func(h hand) { h.queued(1, 0, 5, 1, 0); h.queued(1, 101, 105, 1, 0); back(h, 100) }},
		{"asks when it may again", overslept, true, func(h hand) { h.queued(1, 95, 98, 1, 0); h.queued(1, 105, 108, 1, 0); back(h, 100) }},
		{"asks already", overslept, true, func(h hand) { h.queued(1, 95, 101, 1, 0); h.queued(1, 150, 155, 1, 0); back(h, 100) }},
		{"a try sleeps when the store is back", overslept, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, try)
			h.call(Acquire, 1, 101, 105, Busy, try)
			back(h, 100)
		}},
		{"another client is back", overslept, true, func(h hand) {
			h.queued(1, 0, 5, 1, 0)
			h.queued(1, 101, 105, 1, 0)
			h.Reconnects = []Reconnect{{1, ms(100)}}
		}},

		{"lost before it was released", disowned, true, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Release, 1, 10, 20, Lost)
			h.claim(1, 0, 1, 10, 1, func(c *Claim) { c.Disowned = true })
		}},
		{"lost before it was released, and granted to a late copy", disowned, true, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Release, 1, 10, 20, Lost, arrivedToo(40, Done))
			h.claim(1, 0, 1, 10, 1, func(c *Claim) { c.Disowned = true })
		}},
		{"lost before it was released, and a place released that came later", disowned, true, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Release, 1, 10, 20, Lost)
			h.claim(1, 0, 1, 10, 1, func(c *Claim) { c.Disowned = true })
			h.queued(1, 5, 30, 2, 0)
			h.call(Release, 1, 31, 32, Done)
		}},
		{"released, and called lost", disowned, false, func(h hand) {
			h.held(1, 0, 1, 1)
			h.call(Release, 1, 10, 20, Unknown, arrived(15, Done))
			h.call(Release, 1, 21, 22, Lost)
			h.claim(1, 0, 1, 10, 1, func(c *Claim) { c.Disowned = true })
		}},

		{"claimed for a lease", overstayed, true, func(h hand) { h.held(1, 0, 5, 1); h.claim(1, 0, 5, 1000, 1) }},
		{"claimed for a lease from the reply", overstayed, false, func(h hand) { h.held(1, 0, 5, 1); h.claim(1, 0, 5, 1005, 1) }},
		{"claimed for a lease from a renewal", overstayed, true, func(h hand) {
			h.held(1, 0, 5, 1)
			h.call(Renew, 1, 300, 310, Done)
			h.claim(1, 0, 5, 1300, 1)
		}},
		{"claimed for a renewal without an answer", overstayed, false, func(h hand) {
			h.held(1, 0, 5, 1)
			h.call(Renew, 1, 300, 310, Unknown)
			h.claim(1, 0, 5, 1300, 1)
		}},
		{"claimed for a place", overstayed, true, func(h hand) { h.queued(1, 0, 5, 1, 0); h.promote(1, 400, 1); h.claim(1, 0, 400, 500, 1) }},
		{"claimed for a place from the event", overstayed, false, func(h hand) {
			h.queued(1, 0, 5, 1, 0)
			h.promote(1, 400, 1)
			h.claim(1, 0, 400, 900, 1)
		}},

		{"claimed by a sibling that was granted again later", overstayed, true, func(h hand) {
			h.held(1, 0, 5, 1, shared, arrivedToo(1500, Queued))
			h.held(2, 10, 15, 1, owner(1), shared, holds(2))
			h.call(Renew, 1, 400, 405, Done, shared)
			h.promote(1, 1600, 9)
			h.claim(1, 0, 5, 1300, 1, reader)
		}},

		{"a new event", stale, true, func(h hand) { h.queued(1, 0, 5, 1, 1); h.promote(1, 10, 2); h.claim(1, 0, 10, 20, 2) }},
		{"an old event", stale, false, func(h hand) {
			h.queued(1, 0, 5, 1, 1)
			h.promote(1, 10, 2)
			h.queued(1, 600, 605, 2, 3)
			h.claim(1, 0, 606, 620, 2)
		}},
		{"nested in a hold that was broken", stale, true, func(h hand) {
			h.queued(1, 0, 5, 1, 1)
			h.promote(1, 10, 2)
			h.claim(1, 0, 10, 700, 2)
			h.queued(1, 20, 605, 2, 3)
			h.claim(1, 600, 606, 700, 2, nested)
		}},
		{"an old token by an answer", stale, true, func(h hand) {
			h.queued(1, 0, 5, 1, 3)
			h.held(1, 10, 15, 2)
			h.claim(1, 0, 15, 20, 2)
		}},

		{"handed over at once", prompt, true, func(h hand) { handOver(h, 15, 15) }},
		{"granted after the release", prompt, false, func(h hand) { handOver(h, 30, 30) }},
		{"claimed after the event", prompt, false, func(h hand) { handOver(h, 15, 16) }},
		{"claimed after an event that was lost", prompt, true, func(h hand) {
			h.Plan.Faults = []Fault{{Kind: LostEvent}}
			handOver(h, 15, 16)
		}},
		{"granted when a hold is removed by force", prompt, true, func(h hand) {
			h.queued(2, 3, 4, 1, 1)
			h.Marks = append(h.Marks, Mark{"a", ms(29), ms(31), 1})
			h.promote(2, 30, 2)
			h.claim(2, 3, 30, 40, 2)
		}},
	} {
		h := byHand()
		x.make(h)
		if found := x.check(h.History); len(found) == 0 != x.legal {
			t.Errorf("%s: legal %t, found %v", x.name, x.legal, found)
		}
	}
}

// back has client 0 told that the store can be reached again.
func back(h hand, when int) { h.Reconnects = append(h.Reconnects, Reconnect{0, ms(when)}) }

// handOver has one holder and one who waits; the first releases from 10 to 20.
func handOver(h hand, granted, claimed int) {
	h.held(1, 0, 2, 1)
	h.queued(2, 3, 4, 1, 1)
	h.call(Release, 1, 10, 20, Done)
	h.promote(2, granted, 2)
	h.claim(1, 0, 2, 10, 1)
	h.claim(2, 3, claimed, 40, 2)
}
