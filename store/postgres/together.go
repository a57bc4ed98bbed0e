package postgres

import (
	"context"
	"sync"
	"time"
)

const (
	// few: with at most so many calls at once, each has a statement of its own. Two
	// or three calls in one statement cost more than alone.
	few = 12

	// slots is how many statements are under way at once when there are more calls.
	// Further calls wait for one of them and then travel together.
	slots = 4

	// mostTogether is how many calls travel together at most, and how many names a
	// transaction has. Each has an advisory lock, and with this many on every connection
	// the server's table of locks, 64 entries for each connection by default, does not
	// fill up.
	mostTogether = 32

	// slowAfter is when a statement gives up its slot before it has ended, so that
	// a name or a connection that is blocked delays other calls no longer.
	slowAfter = 50 * time.Millisecond
)

// call takes a lone hold or gives one back.
type call struct {
	take     bool
	name, id string
	value    []byte // of the row to take
	lease    time.Duration
	short    int

	reply chan answer // has room for one

	// Guarded by combiner.mu.
	gone bool  // its ctx has ended
	with *load // set when it is sent with others
}

// answer says what became of a call. If it is neither done nor failed, it has
// certainly changed nothing, and a transaction has to do it.
type answer struct {
	done  bool
	token int64
	err   error // the outcome is unknown, or a refusal
}

// load is calls that travel together: all take or all give back.
type load struct {
	calls  []*call
	left   int // how many of them are still waited for; guarded by combiner.mu
	cancel context.CancelFunc
}

// combiner sends calls. While they are few, or a slot is free, each goes alone and at
// once. Later ones wait, and a slot that becomes free takes those that wait, many in
// one statement.
type combiner struct {
	ctx      context.Context // ends with Close
	alone    func(ctx context.Context, c *call) answer
	together func(ctx context.Context, calls []*call) []answer

	mu      sync.Mutex
	calls   int     // that have not returned
	used    int     // slots in use, more than there are while calls are few
	waiting []*call // first come first; only while all slots are in use
}

// do returns the answer to a call, or the error of ctx when that ends first. A call
// whose ctx ends before it is in a load is never sent. A load may wait for a connection.
func (c *combiner) do(ctx context.Context, w *call) (a answer) {
	c.mu.Lock()
	c.calls++
	defer c.returned()
	if c.used < slots || c.calls <= few {
		c.used++
		c.mu.Unlock()
		c.inSlot(func() { a = c.alone(ctx, w) })
		return a
	}
	w.reply = make(chan answer, 1)
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	select {
	case a = <-w.reply:
		return a
	case <-ctx.Done():
	}
	c.leave(w)
	select {
	case a = <-w.reply: // both at once: the answer counts
		return a
	default:
		return answer{err: ctx.Err()}
	}
}

// returned counts a call that returns.
func (c *combiner) returned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls--
}

// leave gives up a call. When all calls of a load are given up, it is cancelled.
func (c *combiner) leave(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
	if w.with == nil {
		return
	}
	if w.with.left--; w.with.left == 0 {
		w.with.cancel()
	}
}

// inSlot runs send and gives up its slot then, or earlier if it is slow.
func (c *combiner) inSlot(send func()) {
	free := sync.OnceFunc(c.free)
	slow := time.AfterFunc(slowAfter, free)
	send()
	slow.Stop()
	free()
}

// free gives up a slot, or uses it for calls that wait.
func (c *combiner) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used--
	if c.used >= slots {
		return
	}
	calls := c.next()
	if len(calls) == 0 {
		return
	}
	c.used++
	// Its context does not end with that of one call.
	ctx, cancel := context.WithCancel(c.ctx)
	l := &load{calls: calls, left: len(calls), cancel: cancel}
	for _, w := range calls {
		w.with = l
	}
	go c.inSlot(func() { c.carry(ctx, l) })
}

// next returns the calls to send now, those of the first call's kind, and forgets
// those that were given up. The caller holds mu.
func (c *combiner) next() (calls []*call) {
	left := c.waiting[:0]
	for _, w := range c.waiting {
		switch {
		case w.gone:
		case len(calls) == 0, len(calls) < mostTogether && w.take == calls[0].take:
			calls = append(calls, w)
		default:
			left = append(left, w)
		}
	}
	clear(c.waiting[len(left):])
	c.waiting = left
	return calls
}

// carry sends the calls of a load and passes the answers on.
func (c *combiner) carry(ctx context.Context, l *load) {
	defer l.cancel()
	if len(l.calls) == 1 {
		l.calls[0].reply <- c.alone(ctx, l.calls[0])
		return
	}
	for i, a := range c.together(ctx, l.calls) {
		l.calls[i].reply <- a
	}
}
