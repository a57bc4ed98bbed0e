package dlock

import (
	"container/list"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// line is the queue of one name inside one process. Its front, one writer or
// the leading run of readers, is admitted: it stands in the store's queue, a run of
// readers by the one of them who asks for all. The others wait here, so that a
// thousand goroutines cost the store one waiter. A line is guarded by its shard.
//
// Not everyone joins. Explicit owners and owners who hold the name already go
// to the store past the line: a nested call, perhaps by way of another process,
// must never stand behind a stranger who waits for its own caller to finish.
type line struct {
	admitted int        // at the front and not gone yet
	mode     store.Mode // of those admitted
	writer   *ticket    // the one admitted, if it is a writer's
	reader   *ticket    // the one of those admitted that asks at the store for others too
	covered  list.List  // of *ticket: those admitted that rely on the reader's asking, or the envoy's
	waiting  list.List  // of *ticket
	envoy    *envoy     // asks at the store in the place of who does not any more; or nil
}

// ticket is a waiter's place in a line.
type ticket struct {
	party *party
	terms *terms
	mode  store.Mode
	turn  chan struct{} // closed when the call has to look: it is admitted, excused or served; nil if it was admitted at once
	place *list.Element // nil when not waiting
	front bool          // counted in admitted

	attempt *attempt      // by which the call asks at the store
	covered *list.Element // not nil: it waits at the front, and somebody else asks
	since   time.Time     // it is in the line
	failed  error         // why he could not
	hold    *Hold         // what it was served: nothing is left to ask for
	envoy   *envoy        // to go on asking with attempt
}

// join adds a ticket for p and admits it at once if it can be.
func (l *line) join(p *party, t *terms, mode store.Mode) *ticket {
	k := &ticket{party: p, terms: t, mode: mode, since: time.Now()}
	if l.waiting.Len() == 0 && l.admits(mode) {
		l.admit(k)
		if k.covered != nil {
			k.turn = make(chan struct{})
		}
		return k
	}
	k.turn = make(chan struct{})
	k.place = l.waiting.PushBack(k)
	p.waiting = append(p.waiting, k)
	return k
}

// leave takes a ticket out, whatever its state, and admits who comes next.
func (l *line) leave(t *ticket) {
	switch {
	case t == nil:
		return
	case t.front:
		t.front = false
		l.admitted--
		l.forget(t)
		if l.writer == t {
			l.writer = nil
		}
		if l.reader == t {
			l.reader = nil
			l.lead()
		}
	case t.place != nil:
		l.stopWaiting(t)
	}
	for e := l.waiting.Front(); e != nil && l.admits(e.Value.(*ticket).mode); e = l.waiting.Front() {
		next := e.Value.(*ticket)
		l.stopWaiting(next)
		l.admit(next)
		if next.covered == nil {
			close(next.turn)
		}
	}
}

// serve takes out a ticket whose party has got its hold, and wakes its call if it
// asks at the store; one that waits has been excused. The place at the store stays
// with the line, for those who come next.
func (l *line) serve(t *ticket) {
	if t.attempt != nil {
		if l.envoy == nil {
			l.leavePlace(t)
		}
		t.attempt.nudge()
	}
	if l.envoy != nil {
		l.envoy.wanted = time.Now()
	}
	l.leave(t)
}

// leavePlace has an envoy ask on where the call of the ticket ends.
func (l *line) leavePlace(t *ticket) {
	l.dismiss()
	if l.reader == t {
		l.reader = nil
	}
	t.envoy = newEnvoy(t)
	l.envoy = t.envoy
}

// relies reports whether anyone at the front waits for what the envoy asks for.
func (l *line) relies() bool {
	return l.envoy != nil && l.covered.Len() > 0 && l.mode == l.envoy.attempt.req.Mode
}

// relying are those at the front that rely on somebody, to be served: that changes the
// list.
func (l *line) relying() (all []*ticket) {
	for e := l.covered.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*ticket))
	}
	return all
}

// dismiss ends the envoy. Who relied on it ask for themselves.
func (l *line) dismiss() {
	if e := l.envoy; e != nil {
		relied := l.relies()
		l.envoy = nil
		e.cancel()
		if relied {
			l.lead()
		}
	}
}

// spare dismisses the envoy if nobody relies on it, and returns it.
func (l *line) spare() *envoy {
	if l.relies() {
		return nil
	}
	e := l.envoy
	l.dismiss()
	return e
}

// uncover has those who relied on the asking of somebody look for themselves, or
// fail with what he met. That the store has been silent for a whole TTL ends their
// wait, too, if they have waited for half of that; else they have patience of their
// own.
func (l *line) uncover(err error) {
	if err != nil {
		for e := l.covered.Front(); e != nil; {
			t := e.Value.(*ticket)
			e = e.Next()
			if !errors.Is(err, ErrUnavailable) || t.hasWaited() {
				t.failed = err
				l.call(t)
			}
		}
	}
	l.lead()
}

// despair fails those who wait behind somebody by whose terms the store has been
// silent for too long, if it has been so by theirs too. The others take their turn,
// with patience of their own. Else each would be silent for a TTL more than the one
// before.
func (l *line) despair(err error, terms *terms) {
	for e := l.waiting.Front(); e != nil; {
		t := e.Value.(*ticket)
		e = e.Next()
		if t.terms.ttl <= terms.ttl && t.hasWaited() {
			l.stopWaiting(t)
			t.failed = err
			close(t.turn)
		}
	}
}

// hasWaited reports whether a silence of the store that ends the wait of somebody
// else in the line ends that of t.
func (t *ticket) hasWaited() bool { return time.Since(t.since) >= t.terms.ttl/2 }

// lead has the first of those who relied on somebody ask at the store; of readers,
// for the others too.
func (l *line) lead() {
	if l.covered.Len() == 0 {
		return
	}
	t := l.covered.Front().Value.(*ticket)
	if t.mode == store.Shared {
		l.reader = t
	}
	l.call(t)
}

// call has the call of a ticket that relied on somebody look for itself.
func (l *line) call(t *ticket) {
	l.forget(t)
	close(t.turn)
}

// forget takes a ticket out of those who rely on somebody.
func (l *line) forget(t *ticket) {
	if t.covered != nil {
		l.covered.Remove(t.covered)
		t.covered = nil
		t.party.covered = slices.DeleteFunc(t.party.covered, func(x *ticket) bool { return x == t })
	}
}

// excuse lets the waiting tickets of p go on past the line: p holds the lock
// now, so they re-enter.
func (l *line) excuse(p *party) {
	for len(p.covered) > 0 {
		l.call(p.covered[0])
	}
	for _, t := range p.waiting {
		l.waiting.Remove(t.place)
		t.place = nil
		close(t.turn)
	}
	p.waiting = nil
}

func (l *line) admits(mode store.Mode) bool {
	return l.admitted == 0 || l.mode == store.Shared && mode == store.Shared
}

func (l *line) admit(t *ticket) {
	l.admitted++
	l.mode = t.mode
	t.front = true
	if t.mode == store.Exclusive {
		l.writer = t
	}
	switch {
	case l.envoy != nil && l.envoy.attempt.suits(t),
		l.reader != nil && t.suitedBy(l.reader.terms, l.reader.mode):
		t.covered = l.covered.PushBack(t)
		t.party.covered = append(t.party.covered, t)
	case t.mode == store.Shared && l.reader == nil && !l.relies() && t.terms.spans():
		l.reader = t
	}
}

func (l *line) stopWaiting(t *ticket) {
	l.waiting.Remove(t.place)
	t.place = nil
	p := t.party
	for i, other := range p.waiting {
		if other == t {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			break
		}
	}
}
