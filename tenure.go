package dlock

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/watchdog"
)

// tenure is one hold at the store and the lease that is renewed for it, from
// the store's grant until it is given back or lost. A writer's is had by one party
// after another: while goroutines of this process wait for each other, it passes on
// from one to the next without a call of the store. A reader's is had by several
// parties at a time: see reading.go. Each has a token of its own out of the span that
// was reserved with the grant.
//
// That is kept within bounds in number, by the span, and in time, so that other
// processes wait for at most one such batch; their places at the store are in
// their order. The store knows the hold by the random id of the party that asked
// for it. That id goes along with a writer's, which is safe because it never left
// this process and nothing else was asked for under it: see party.attempts.
type tenure struct {
	client  *Client
	shard   *shard   // of its name
	attempt *attempt // whose id it is held by
	issued  uint64   // the token that the store knows it by
	lease   watchdog.Lease
	first   grant // spares an allocation where there is only one, as does sole
	sole    [1]*grant

	// Guarded by the shard of the name.
	grants []*grant  // whose turn it is
	token  uint64    // the last one given
	spare  int       // how many tokens of the span are left
	began  time.Time // when the first of them got it
}

// handoverWindow is how long after the store's grant a tenure may pass on, or be
// joined. Where critical sections are so long that it ends a batch, the round trip
// to the store that a local hand-over saves no longer matters.
const handoverWindow = 10 * time.Millisecond

const (
	defaultLocalHandoffs = 100
	maxLocalHandoffs     = 1000
)

// newTenure arms the lease of what at was granted.
func newTenure(sh *shard, at *attempt, won award) *tenure {
	n := &tenure{client: at.client, shard: sh, attempt: at, issued: won.token, token: won.token}
	n.spare = max(at.req.Tokens-1-max(won.short, 0), 0)
	n.grants = n.sole[:0]
	n.lease.Value = n
	t := watchdog.Terms{Deadline: won.deadline}
	if !at.terms.fixed {
		t.Validity = at.terms.ttl - margin(at.terms.ttl)
	}
	n.began = time.Now()
	if at.terms.maxHold > 0 {
		t.Last = n.began.Add(at.terms.maxHold)
	}
	n.client.dog.Keep(&n.lease, t)
	return n
}

// buildOn takes into account what else p has of this name, or may have by the same
// id at the store: then the store may have answered with the token of that, and
// what follows the token is not ours. The shard is locked.
func (n *tenure) buildOn(p *party) {
	if p.attempts > 1 {
		n.spare = 0
	}
	if n.issued == p.issued {
		n.token = p.given
	}
}

// begin gives p its turn. The shard is locked.
func (n *tenure) begin(p *party) *Hold {
	g := &n.first
	if g.party != nil {
		g = &grant{}
	}
	*g = grant{tenure: n, party: p, token: n.token}
	if n.token != n.issued {
		p.issued, p.given = n.issued, n.token
	}
	n.grants = append(n.grants, g)
	p.grants = append(p.grants, g)
	h := g.handle()
	p.local.line.excuse(p)
	return h
}

// end ends the turn of a grant. If others go on, the party that asked for the
// tenure no longer goes by its owner: another call of it may be under way. The shard
// is locked.
func (n *tenure) end(g *grant) {
	n.grants = slices.DeleteFunc(n.grants, func(x *grant) bool { return x == g })
	p := g.party
	p.grants = slices.DeleteFunc(p.grants, func(x *grant) bool { return x == g })
	if len(n.grants) > 0 && p.id == n.attempt.req.Owner {
		p.rename()
	}
}

// heir returns the ticket that the tenure may pass on to when the last handle of
// its one grant is unlocked, or nil. The shard is locked.
func (n *tenure) heir() *ticket {
	p := n.grants[0].party
	t := p.local.line.writer
	if t == nil || p.refs > 1 || p.attempts > 1 || !n.mayServe(t) {
		return nil
	}
	return t
}

// mayServe reports whether the tenure can be the ticket's. The shard is locked.
func (n *tenure) mayServe(t *ticket) bool {
	return n.attempt.suits(t) && n.isOpen()
}

// isOpen reports whether the tenure may pass on, or be joined, just now. The shard
// is locked.
func (n *tenure) isOpen() bool {
	return n.spare > 0 && time.Since(n.began) < handoverWindow && !n.client.isClosing() && n.lease.Valid()
}

// pass gives the next turn to the ticket. The shard is locked.
func (n *tenure) pass(t *ticket) {
	n.next()
	n.serve(t)
}

// next goes on to the next token of the span.
func (n *tenure) next() {
	n.token++
	n.spare--
}

// serve gives a turn to a writer's ticket, whose party goes by the owner of the hold
// from now on, and wakes its call. The shard is locked.
func (n *tenure) serve(t *ticket) {
	t.party.id, t.party.attempts = n.attempt.req.Owner, 1
	t.hold = n.begin(t.party)
	t.party.local.line.serve(t)
}

// serveFront gives what was granted to an envoy to those at the front who rely on
// it, and reports whether anyone took it. The shard is locked.
func (n *tenure) serveFront(l *local) bool {
	t := l.line.writer
	switch {
	case n.client.isClosing() || !n.lease.Valid():
		return false
	case n.attempt.req.Mode == store.Shared:
		return n.openTo(l)
	case t == nil || !n.attempt.suits(t):
		return false
	}
	n.serve(t)
	return true
}

// spans reports whether holds by these terms may be had by several parties of the
// process: those that are renewed for as long as they last.
func (t *terms) spans() bool { return !t.fixed && t.maxHold == 0 && t.handoffs > 0 }

// suits reports whether what the attempt gets from the store is what t waits
// for, and t.party nobody but this one call of a private owner.
func (a *attempt) suits(t *ticket) bool { return t.suitedBy(a.terms, a.req.Mode) }

func (t *ticket) suitedBy(terms *terms, mode store.Mode) bool {
	asked := 0
	if t.attempt != nil {
		asked = 1
	}
	return t.mode == mode && t.terms.spans() && terms.spans() &&
		t.terms.ttl == terms.ttl && t.terms.waitTTL == terms.waitTTL &&
		t.party.refs == 1 && t.party.attempts == asked
}
