package dlock

import "github.com/dlock-go/dlock/store"

// Readers of one process share a hold at the store. Of those at the front of the
// line one asks, for all; when the store grants it to him, they are all served, each
// with a token of its own. Whoever comes while that tenure is open joins it without
// a call of the store. It is given back with the last of them.
//
// No writer waits longer for that than for the window and for those who read then:
// a writer who waits in this process ends it at once, for readers stand behind him in
// the line, and one of another process when the window closes, for the next reader
// has to ask the store.
//
// The store knows the hold by one owner, and each reader is another. So nobody may
// act under that owner, which is what an upgrade does, unless he is the only one left;
// the one who asked for it does not either, once he has left: see tenure.end.

// openTo serves those who wait at the front for what n was granted, and lets others
// join. It reports whether anyone was served. The shard is locked.
func (n *tenure) openTo(l *local) (served bool) {
	if n.spare > 0 {
		l.reading = n
	}
	for _, t := range l.line.relying() {
		switch {
		case len(n.grants) == 0 && n.attempt.suits(t): // it has the token of the grant itself
		case len(n.grants) > 0 && n.mayServe(t):
			n.next()
		default:
			continue
		}
		t.hold = n.begin(t.party)
		l.line.serve(t)
		served = true
	}
	return served
}

// joinReaders returns a handle on the hold that others read by, or nil if this call
// of a private owner has to ask for its own. The shard is locked.
func (a *acquisition) joinReaders() *Hold {
	l := a.party.local
	n := l.reading
	if a.mode != store.Shared || n == nil || l.line.writer != nil || l.line.waiting.Len() > 0 {
		return nil
	}
	if !n.mayServe(&ticket{party: a.party, terms: a.terms, mode: a.mode}) {
		return nil
	}
	n.next()
	return n.begin(a.party)
}

// standAlone makes sure that p is the only one who goes by the owner of what it
// holds, before it asks for more under it. The shard is locked.
func (p *party) standAlone() error {
	for _, g := range p.grants {
		n := g.tenure
		if len(n.grants) > 1 {
			return ErrUpgrade
		}
		n.spare = 0
		if p.id != n.attempt.req.Owner {
			p.id, p.attempts = n.attempt.req.Owner, 1
		}
	}
	return nil
}
