package dlock

import (
	"container/list"

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
	waiting  list.List  // of *ticket
}

// ticket is a waiter's place in a line.
type ticket struct {
	party *party
	mode  store.Mode
	turn  chan struct{} // closed when the ticket is admitted or excused; nil if it was admitted at once
	place *list.Element // nil when not waiting
	front bool          // counted in admitted
}

// join adds a ticket for p and admits it at once if it can be.
func (l *line) join(p *party, mode store.Mode) *ticket {
	t := &ticket{party: p, mode: mode}
	if l.waiting.Len() == 0 && l.admits(mode) {
		l.admit(t)
		return t
	}
	t.turn = make(chan struct{})
	t.place = l.waiting.PushBack(t)
	p.waiting = append(p.waiting, t)
	return t
}

// leave takes a ticket out, whatever its state, and admits who comes next.
func (l *line) leave(t *ticket) {
	switch {
	case t == nil:
		return
	case t.front:
		t.front = false
		l.admitted--
	case t.place != nil:
		l.stopWaiting(t)
	}
	for e := l.waiting.Front(); e != nil && l.admits(e.Value.(*ticket).mode); e = l.waiting.Front() {
		next := e.Value.(*ticket)
		l.stopWaiting(next)
		l.admit(next)
		close(next.turn)
	}
}

// excuse lets the waiting tickets of p go on past the line: p holds the lock
// now, so they re-enter.
func (l *line) excuse(p *party) {
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
