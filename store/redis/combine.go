package redis

import (
	"context"
	"sync"

	"github.com/redis/rueidis"
)

const (
	// slots is how many calls or batches are under way at once. rueidis waits without
	// looking at the context when its ring of 1024 calls is full, which this many do not fill.
	// In a cluster it is so many for each partition, and a node may have all of them.
	slots = 8
	// mostTogether is how many calls travel together at most.
	mostTogether = 256
)

// combiner sends calls to one server. When many are under way, later ones wait and
// then travel together. Each keeps its own command and its own reply.
type combiner struct {
	client rueidis.Client
	probe  string // a key that does not exist, on the same server

	mu      sync.Mutex
	used    int     // slots in use
	waiting []*call // only while all slots are in use
	gone    int     // of those, how many have been given up
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
	c.mu.Lock()
	if c.used < slots {
		c.used++
		c.mu.Unlock()
		reply, err := c.client.Do(ctx, command).ToMessage()
		if err != nil && ctx.Err() != nil {
			go c.awaitAnswer()
		} else {
			c.pass(true)
		}
		return reply, err
	}
	w := calls.Get().(*call)
	w.command, w.sent, w.gone = command, false, false
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	select {
	case result := <-w.reply:
		w.command = rueidis.Completed{}
		calls.Put(w)
		return result.ToMessage()
	case <-ctx.Done():
		c.leave(w)
		return rueidis.RedisMessage{}, ctx.Err()
	}
}

// leave gives up a call. If it has been sent its reply is dropped.
func (c *combiner) leave(w *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.gone = true
	if w.sent {
		return
	}
	c.gone++
	if c.gone > len(c.waiting)/2 {
		c.take(0)
	}
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

// pass gives up a slot, or uses it for the calls that wait.
func (c *combiner) pass(start bool) (batch []*call) {
	c.mu.Lock()
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

// send uses a slot as long as calls wait. Its context does not end with any of theirs.
func (c *combiner) send(batch []*call) {
	var commands rueidis.Commands
	for len(batch) > 0 {
		commands = commands[:0]
		for _, w := range batch {
			commands = append(commands, w.command)
		}
		for i, result := range c.client.DoMulti(context.Background(), commands...) {
			batch[i].reply <- result
		}
		batch = c.pass(false)
	}
}

// awaitAnswer gives up the slot of a call whose context ended before its reply came. That
// reply is still to come, so the slot is in use until a later command is answered.
func (c *combiner) awaitAnswer() {
	c.client.Do(context.Background(), c.client.B().Hlen().Key(c.probe).Build())
	c.pass(true)
}
