package sim

import "testing"

// The model allows what the contract does, and nothing else: of each pair of
// histories that differ in one thing, one has an order.
func TestModel(t *testing.T) {
	for _, x := range []struct {
		name  string
		open  int
		legal bool
		make  func(h hand)
	}{
		{"grant, release, grant", 0, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Release, 1, 3, 4, Done)
			h.held(2, 5, 6, 2)
		}},
		{"two at once", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 5, 6, 2) }},
		{"two readers", 0, true, func(h hand) { h.held(1, 0, 2, 1, shared); h.held(2, 5, 6, 2, shared) }},
		{"a token that stays", 0, false, func(h hand) { h.held(1, 0, 2, 1, shared); h.held(2, 5, 6, 1, shared) }},
		{"a repeated request", 0, true, func(h hand) { h.held(1, 0, 2, 1); h.held(1, 5, 6, 1) }},
		{"a repeated request with another token", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.held(1, 5, 6, 2) }},

		{"busy", 0, true, func(h hand) { h.held(1, 0, 2, 1); h.call(Acquire, 2, 3, 4, Busy, try) }},
		{"falsely busy", 0, false, func(h hand) { h.call(Acquire, 2, 3, 4, Busy, try) }},
		{"busy at the end of the lease", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.call(Acquire, 2, 1003, 1004, Busy, try) }},
		{"a reader's try behind a waiting writer", 0, true, func(h hand) {
			h.held(1, 0, 2, 1, shared)
			h.queued(2, 3, 4, 1, 1)
			h.call(Acquire, 3, 5, 6, Busy, try, shared)
		}},
		{"a reader passes a waiting writer", 0, false, func(h hand) {
			h.held(1, 0, 2, 1, shared)
			h.queued(2, 3, 4, 1, 1)
			h.held(3, 5, 6, 2, shared)
		}},

		{"re-entry", 0, true, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 5, 6, 1, owner(1), holds(2)) }},
		{"re-entry with a new token", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 5, 6, 2, owner(1), holds(2)) }},
		{"re-entry with a wrong count", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 5, 6, 1, owner(1), holds(1)) }},
		{"a release takes a sibling too", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.held(2, 5, 6, 1, owner(1), holds(2))
			h.call(Release, 2, 7, 8, Done)
			h.call(Renew, 1, 9, 10, Lost)
		}},
		{"upgrade alone", 0, true, func(h hand) { h.held(1, 0, 2, 1, shared); h.held(2, 5, 6, 2, owner(1), holds(2)) }},
		{"upgrade beside a reader", 0, true, func(h hand) {
			h.held(1, 0, 2, 1, shared)
			h.held(3, 3, 4, 2, shared)
			h.call(Acquire, 2, 5, 6, Upgrade, owner(1))
		}},
		{"upgrade that waits", 0, false, func(h hand) {
			h.held(1, 0, 2, 1, shared)
			h.held(3, 3, 4, 2, shared)
			h.queued(2, 5, 6, 1, 2, owner(1))
		}},
		{"downgrade lets readers in", 0, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.held(2, 3, 4, 1, owner(1), holds(2), shared)
			h.queued(3, 5, 6, 1, 1, shared)
			h.call(Release, 1, 7, 9, Done)
			h.promote(3, 8, 2)
		}},

		{"handed over in order", 0, true, func(h hand) { queueOfTwo(h, 2, 3) }},
		{"handed over out of order", 0, false, func(h hand) { queueOfTwo(h, 3, 2) }},
		{"a wrong position", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.queued(2, 3, 4, 2, 1) }},
		{"a promotion ends after WaitTTL", 0, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.queued(2, 3, 4, 1, 1)
			h.call(Release, 1, 5, 7, Done)
			h.promote(2, 6, 2)
			h.held(3, 507, 508, 3)
		}},
		{"a promotion lasts until WaitTTL", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.queued(2, 3, 4, 1, 1)
			h.call(Release, 1, 5, 7, Done)
			h.promote(2, 6, 2)
			h.held(3, 504, 505, 3)
		}},
		{"an event of nobody's promotion", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.queued(2, 3, 4, 1, 1)
			h.promote(2, 6, 2)
		}},
		{"a hold and the place behind it end together", 0, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.queued(2, 503, 504, 1, 1)
			h.held(3, 1010, 1011, 2)
		}},

		{"expired, then another", 0, true, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 1001, 1003, 2) }},
		{"expired early", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.held(2, 750, 760, 2) }},
		{"renewed, then expired early", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Renew, 1, 500, 501, Done)
			h.held(2, 1001, 1003, 2)
		}},
		{"renewal revives", 0, false, func(h hand) { h.held(1, 0, 2, 1); h.call(Renew, 1, 1003, 1004, Done) }},
		{"renewal of a place", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.queued(2, 3, 4, 1, 1)
			h.call(Renew, 2, 5, 6, Done)
		}},
		{"released twice", 0, true, func(h hand) { h.held(1, 0, 2, 1); h.call(Release, 1, 3, 4, Done); h.call(Release, 1, 5, 6, Lost) }},
		{"released twice, and found", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Release, 1, 3, 4, Done)
			h.call(Release, 1, 5, 6, Done)
		}},
		{"buried", 0, true, func(h hand) { h.call(Release, 1, 3, 4, Lost, bury); h.call(Acquire, 1, 5, 6, Lost) }},
		{"buried and granted", 0, false, func(h hand) { h.call(Release, 1, 3, 4, Lost, bury); h.held(1, 5, 6, 1) }},
		{"buried and granted much later", 0, true, func(h hand) { h.call(Release, 1, 3, 4, Lost, bury); h.held(1, 1005, 1006, 1) }},
		{"lost without burial", 0, false, func(h hand) { h.call(Acquire, 1, 5, 6, Lost) }},
		{"forced", 0, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.Marks = []Mark{{"a", ms(3), ms(4), 1}}
			h.held(2, 5, 6, 2)
		}},
		{"forced another name", 0, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.Marks = []Mark{{"b", ms(3), ms(4), 1}}
			h.held(2, 5, 6, 2)
		}},
		{"all data lost", 0, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.queued(3, 3, 4, 1, 1)
			h.Marks = []Mark{{"", ms(5), ms(6), 1}}
			h.held(2, 7, 8, 2)
		}},
		{"all data lost but the token", 0, false, func(h hand) {
			h.held(1, 0, 2, 7)
			h.Marks = []Mark{{"", ms(5), ms(6), 7}}
			h.held(2, 7, 8, 1)
		}},

		{"unknown and applied", 0, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, arrived(2, Held))
			h.call(Acquire, 2, 6, 7, Busy, try)
		}},
		{"unknown and not applied", 0, false, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, neverArrived)
			h.call(Acquire, 2, 6, 7, Busy, try)
		}},
		{"a late copy", 0, true, func(h hand) {
			h.held(1, 0, 2, 1, arrivedToo(10, Held))
			h.call(Release, 1, 3, 4, Done)
			h.call(Acquire, 2, 11, 12, Busy, try)
		}},
		{"open, it may have been applied", 1, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, neverArrived)
			h.call(Acquire, 2, 6, 7, Busy, try)
		}},
		{"open, it may not have been applied", 1, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, neverArrived)
			h.held(2, 6, 7, 1)
		}},
		{"open, it may be applied between", 1, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, neverArrived, neverReturned)
			h.held(2, 6, 7, 1)
			h.call(Release, 2, 8, 9, Done)
			h.call(Acquire, 3, 10, 11, Busy, try)
		}},
		{"open, it cannot both be and not be", 1, false, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, neverArrived)
			h.call(Acquire, 2, 6, 7, Busy, try)
			h.held(2, 8, 9, 1, try)
		}},
		{"open, its lease ends", 1, true, func(h hand) {
			h.call(Acquire, 1, 0, 5, Unknown, neverArrived)
			h.call(Acquire, 2, 6, 7, Busy, try)
			h.held(2, 1001, 1002, 2, try)
		}},
		{"open, a renewal may have kept it", 1, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Renew, 1, 500, 510, Unknown, neverArrived)
			h.call(Acquire, 2, 1400, 1401, Busy, try)
			h.held(2, 1600, 1601, 2, try)
		}},
		{"open, nothing has kept it", 1, false, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Renew, 1, 300, 310, Lost, neverArrived)
			h.call(Acquire, 2, 1400, 1401, Busy, try)
		}},
		{"open, a release may have come", 1, true, func(h hand) {
			h.held(1, 0, 2, 1)
			h.call(Release, 1, 3, 4, Unknown, neverArrived)
			h.held(2, 5, 6, 2)
		}},
	} {
		h := byHand()
		x.make(h)
		found := linearizable(h.History, x.open)
		if len(found) == 0 != x.legal {
			t.Errorf("%s: legal %t, found %v", x.name, x.legal, found)
		}
		for _, v := range found {
			if v.Checker != "model" {
				t.Errorf("%s: %v", x.name, v)
			}
		}
	}
}

// queueOfTwo has two waiters behind a holder that leaves, and gives them these tokens.
func queueOfTwo(h hand, first, second uint64) {
	h.held(1, 0, 2, 1)
	h.queued(2, 3, 4, 1, 1)
	h.queued(3, 5, 6, 2, 1)
	h.call(Release, 1, 7, 10, Done)
	if first < second {
		h.promote(2, 8, first)
		h.call(Release, 2, 11, 14, Done)
		h.promote(3, 12, second)
		return
	}
	h.promote(3, 8, second)
	h.call(Release, 3, 11, 14, Done)
	h.promote(2, 12, first)
}
