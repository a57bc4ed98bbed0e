package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// slots is how many calls or batches are under way at once. rueidis waits without
	// looking at the context when its ring of 1024 calls is full, which this many do not fill.
	// In a cluster it is so many for each partition, and a node may have all of them.
	slots = 8
	// mostTogether is how many calls travel together at most.
	mostTogether = 256
	// fresh is for how long after the sending of a call that was answered others are sent on
	// their callers' goroutines, which is quicker. After that the connection may be gone, and
	// while rueidis dials it looks at no context but that of the first call that needs it.
	fresh = 100 * time.Millisecond
	never = -fresh
)

// errNotSent: the context of a call ended before it was sent. The server will not run it.
var errNotSent = errors.New("not sent, because earlier calls have no reply")

// combiner sends calls to one server. When many are under way, later ones wait and
// then travel together. Each keeps its own command and its own reply.
type combiner struct {
	client rueidis.Client
	ctx    context.Context // the handle's
	probe  string          // a key that does not exist, on the same server
	direct bool            // the client has one pipelined connection to the server

	loading chan struct{} // full while a call sends the text of a script
	loads   atomic.Uint64 // how often one has

	mu      sync.Mutex
	used    int           // slots in use
	replied time.Duration // since start, when the last call was sent that has been answered
	waiting []*call       // only while all slots are in use
	gone    int           // of those, how many have been given up
}

// call is a command that waits to be sent, or for its reply.
type call struct {
	command rueidis.Completed
	reply   chan rueidis.RedisResult // has room for one

	// Guarded by combiner.mu.
	sent, gone bool
}

var calls = sync.Pool{New: func() any { return &call{reply: make(chan rueidis.RedisResult, 1)} }}

// do sends a command and returns when it is answered or ctx ends.
func (c *combiner) do(ctx context.Context, command rueidis.Completed) (rueidis.RedisMessage, error) {
	began := time.Since(start)
	c.mu.Lock()
	if c.direct && c.used < slots && began-c.replied < fresh {
		c.used++
		c.mu.Unlock()
		result := c.client.Do(ctx, command)
		if result.NonRedisError() != nil && ctx.Err() != nil {
			go c.awaitAnswer()
		} else {
			c.pass(true, began, result)
		}
		return result.ToMessage()
	}
	w := calls.Get().(*call)
	w.command, w.sent, w.gone = command, c.used < slots, false
	if w.sent {
		c.used++
		go c.send([]*call{w})
	} else {
		c.waiting = append(c.waiting, w)
	}
	c.mu.Unlock()
	select {
	case result := <-w.reply:
		w.command = rueidis.Completed{}
		calls.Put(w)
		return result.ToMessage()
	case <-ctx.Done():
		if !c.leave(w) {
			return rueidis.RedisMessage{}, fmt.Errorf("%w: %w", errNotSent, ctx.Err())
		}
		return rueidis.RedisMessage{}, ctx.Err()
	}
}

// leave gives up a call, and reports whether it was sent. Then its reply is dropped.
func (c *combiner) leave(w *call) (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
	if w.sent {
		return true
	}
	c.gone++
	if c.gone > len(c.waiting)/2 {
		c.take(0)
	}
	return false
}

// take returns up to n calls that wait, and forgets those that were given up.
// The caller holds mu.
func (c *combiner) take(n int) (batch []*call) {
	left := c.waiting[:0]
	for _, w := range c.waiting {
		switch {
		case w.gone:
		case len(batch) < n:
			w.sent = true
			batch = append(batch, w)
		default:
			left = append(left, w)
		}
	}
	clear(c.waiting[len(left):])
	c.waiting, c.gone = left, 0
	return batch
}

// pass notes what became of a call, and gives up its slot or uses it for the calls that wait.
func (c *combiner) pass(start bool, began time.Duration, result rueidis.RedisResult) (batch []*call) {
	c.mu.Lock()
	if result.NonRedisError() == nil {
		c.replied = max(c.replied, began)
	} else {
		c.replied = never
	}
	if len(c.waiting) > 0 {
		batch = c.take(mostTogether)
	}
	if len(batch) == 0 {
		c.used--
	}
	c.mu.Unlock()
	if start && len(batch) > 0 {
		go c.send(batch)
	}
	return batch
}

// unsent is the context of commands that are awaited as long as the handle is open, and that are not
// sent once their callers have left: rueidis looks at Err before it sends, and at Done while
// it waits. What was sent after a long dial would leave a hold.
type unsent struct {
	context.Context
	left func() error // why the callers have left, or nil
}

// Err returns why the commands are not to be sent.
func (u unsent) Err() error {
	if err := u.left(); err != nil {
		return err
	}
	return u.Context.Err()
}

// allGone is an error if no caller of the batch waits any more.
func (c *combiner) allGone(batch []*call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(batch, func(one *call) bool { return !one.gone }) {
		return nil
	}
	return errNotSent
}

// send uses a slot as long as calls wait. Its context ends with none of theirs, but with the handle.
// Each batch has a slice of its own, which rueidis still reads after that context has ended.
func (c *combiner) send(batch []*call) {
	for len(batch) > 0 {
		commands := make(rueidis.Commands, len(batch))
		for i, w := range batch {
			commands[i] = w.command
		}
		began := time.Since(start)
		results := c.client.DoMulti(unsent{c.ctx, func() error { return c.allGone(batch) }}, commands...)
		for i, result := range results {
			batch[i].reply <- result
		}
		batch = c.pass(false, began, results[len(results)-1])
	}
}

// awaitAnswer gives up the slot of a call whose context ended before its reply came. That
// reply is still to come, so the slot is in use until a later command is answered, or the
// connection has ended. rueidis repeats a command that it knows as a look as long as the
// server is down, and does not know an arbitrary one.
func (c *combiner) awaitAnswer() {
	began := time.Since(start)
	c.pass(true, began, c.client.Do(c.ctx, c.look()))
}

// look is a command that reads a key of the server.
func (c *combiner) look() rueidis.Completed {
	return c.client.B().Arbitrary("HLEN").Keys(c.probe).Build()
}
