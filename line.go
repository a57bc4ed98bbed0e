package dlock

import (
	"container/list"
	"errors"
	"time"

	"github.com/dlock-go/dlock/store"
)

// line is the queue of one name inside one process. Its front, one writer or
// the leading run of readers, is admitted: it stands in the store's queue, each
// under its own id. The others wait here, so that a thousand goroutines cost
// the store one waiter. A line is guarded by its shard.
//
// Not everyone joins. Explicit owners and owners who hold the name already go
// to the store past the line: a nested call, perhaps by way of another process,
// must never stand behind a stranger who waits for its own caller to finish.
type line struct {
	admitted int        // at the front and not gone yet
	mode     store.Mode // of those admitted
	writer   *ticket    // the one admitted, if it is a writer's
	waiting  list.List  // of *ticket
	envoy    *envoy     // asks at the store in the place of the writer; nil if it asks itself
}

// ticket is a waiter's place in a line.
type ticket struct {
	party *party
	terms *terms
	mode  store.Mode
	turn  chan struct{} // closed when the call has to look: it is admitted, excused or served; nil if it was admitted at once
	place *list.Element // nil when not waiting
	front bool          // counted in admitted

	attempt *attempt  // by which the call asks at the store
	covered bool      // it waits at the front, and the envoy asks
	since   time.Time // it is covered
	failed  error     // why the envoy could not
	hold    *Hold     // what it was served: nothing is left to ask for
	envoy   *envoy    // to go on asking with attempt
}

// join adds a ticket for p and admits it at once if it can be.
func (l *line) join(p *party, t *terms, mode store.Mode) *ticket {
	k := &ticket{party: p, terms: t, mode: mode}
	if l.waiting.Len() == 0 && l.admits(mode) {
		l.admit(k)
		if k.covered {
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
		t.front, t.covered = false, false
		l.admitted--
		if l.writer == t {
			l.writer = nil
		}
	case t.place != nil:
		l.stopWaiting(t)
	}
	for e := l.waiting.Front(); e != nil && l.admits(e.Value.(*ticket).mode); e = l.waiting.Front() {
		next := e.Value.(*ticket)
		l.stopWaiting(next)
		l.admit(next)
		if !next.covered {
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
			t.envoy = newEnvoy(t)
			l.envoy = t.envoy
		}
		t.attempt.nudge()
	}
	if l.envoy != nil {
		l.envoy.wanted = time.Now()
	}
	l.leave(t)
}

// dismiss ends the envoy. A writer who relied on it asks for himself.
func (l *line) dismiss() {
	if e := l.envoy; e != nil {
		l.envoy = nil
		e.cancel()
		l.uncover(nil)
	}
}

// spare dismisses the envoy if no writer relies on it, and returns it.
func (l *line) spare() *envoy {
	if l.writer != nil && l.writer.covered {
		return nil
	}
	e := l.envoy
	l.dismiss()
	return e
}

// uncover lets the writer at the front look for himself, or fail with what the
// envoy met. That the store has been silent for a whole TTL ends his wait, too, if
// he has waited for half of that; else he has patience of his own.
func (l *line) uncover(err error) {
	t := l.writer
	if t == nil || !t.covered {
		return
	}
	if errors.Is(err, ErrUnavailable) && time.Since(t.since) < t.terms.ttl/2 {
		err = nil
	}
	t.covered, t.failed = false, err
	close(t.turn)
}

// excuse lets the waiting tickets of p go on past the line: p holds the lock
// now, so they re-enter.
func (l *line) excuse(p *party) {
	if l.writer != nil && l.writer.party == p {
		l.uncover(nil)
	}
	for len(p.waiting) > 0 {
		t := p.waiting[0]
		l.stopWaiting(t)
		close(t.turn)
	}
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
		if l.envoy != nil && l.envoy.attempt.suits(t) {
			t.covered, t.since = true, time.Now()
		}
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
