package real

import (
	"maps"
	"slices"
)

// Tokens say in which order grants were made, and answers to those who wait say
// which of them had been. That narrows down when each may have happened, and is
// what makes the search short where replies are late.

// bound is what is known of when a token was granted.
type bound struct {
	token    uint64
	owner    string
	shared   bool
	from, to moment
}

// bounds are those of all tokens, in their order.
func (s *script) bounds() []*bound {
	known := map[uint64]*bound{}
	see := func(c *request, token uint64, from, to moment) {
		b := known[token]
		if b == nil {
			b = &bound{token, c.Owner, c.Shared, from, to}
			known[token] = b
		}
		if from < b.from { // what has the same token builds on what was first
			b.owner, b.shared, b.from = c.Owner, c.Shared, from
		}
		b.to = min(b.to, to)
	}
	for _, a := range s.attempts {
		for _, c := range a.calls {
			if c.Op == opAcquire && c.Outcome == held {
				see(c, c.Token, a.calls[0].Call, c.Return)
			}
		}
		for _, r := range a.events {
			see(a.calls[0], r.Token, a.promoted(r), r.Call)
		}
	}
	all := slices.SortedFunc(maps.Values(known), func(a, b *bound) int { return int(int64(a.token) - int64(b.token)) })
	for _, a := range s.attempts {
		for _, c := range a.calls {
			s.narrow(all, a, c)
		}
	}
	for i := 1; i < len(all); i++ {
		all[i].from = max(all[i].from, all[i-1].from)
	}
	for i := len(all) - 2; i >= 0; i-- {
		all[i].to = min(all[i].to, all[i+1].to)
	}
	return all
}

// narrow has one call say what it knows of others' grants.
func (s *script) narrow(all []*bound, a *attempt, c *request) {
	for _, b := range all {
		switch {
		case c.Op == opAcquire && c.Outcome == queued && len(s.e.Lossy) == 0:
			if b.token <= c.Token {
				b.to = min(b.to, c.Return)
			} else {
				b.from = max(b.from, c.Call)
			}
		case s.excludes(a, c, b):
			b.from = max(b.from, c.Call)
		}
	}
}

// excludes: c is the release of a hold that the grant had to wait for.
func (s *script) excludes(a *attempt, c *request, b *bound) bool {
	if c.Op != opRelease || c.Outcome != done || s.e.Doubled {
		return false
	}
	token, several := a.token()
	ask := a.calls[0]
	return !several && token != 0 && b.token > token && b.owner != ask.Owner && !(b.shared && ask.Shared)
}

// token is what an id was granted with; 0: nothing that is known.
func (a *attempt) token() (token uint64, several bool) {
	see := func(t uint64) {
		several = several || token != 0 && token != t
		token = t
	}
	for _, c := range a.calls {
		if c.Op == opAcquire && c.Outcome == held {
			see(c.Token)
		}
	}
	for _, r := range a.events {
		see(r.Token)
	}
	return token, several
}

// within is when a call can have taken effect that was answered.
func (s *script) within(all []*bound, a *attempt, c *request) (from, to moment) {
	from, to = c.Call, c.Return
	for _, b := range all {
		switch {
		case c.Op == opAcquire && c.Outcome == held && b.token == c.Token:
			from = max(from, b.from)
		case c.Op == opAcquire && c.Outcome == queued && len(s.e.Lossy) == 0:
			if b.token <= c.Token {
				from = max(from, b.from)
			} else {
				to = min(to, b.to)
			}
		case s.excludes(a, c, b):
			to = min(to, b.to)
		}
	}
	if from > to { // there is no such time, which is for the model to find
		return c.Call, c.Return
	}
	return from, to
}

// toldWithin is when an event can have become true at the latest.
func toldWithin(all []*bound, event record, from moment) (moment, moment) {
	to := event.Call
	for _, b := range all {
		if b.token == event.Token && max(from, b.from) <= min(to, b.to) {
			return max(from, b.from), min(to, b.to)
		}
	}
	return from, to
}
