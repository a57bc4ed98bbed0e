package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// runConfirmed is run for a call that counts only when enough replicas have
// what it wrote, if the store was asked for that. missing is nil if they have.
func (s *Store) runConfirmed(ctx context.Context, sc *script, n *name, args []string) (reply rueidis.RedisMessage, missing, err error) {
	if s.replicas == 0 {
		reply, err = s.run(ctx, sc, n, args)
		return reply, nil, err
	}
	err = s.repeatNotRun(ctx, func() error {
		n.withKeys(func(keys []string) error {
			reply, missing, err = s.sendConfirmed(ctx, sc, keys, args)
			return err
		})
		return err
	})
	return reply, missing, err
}

// confirmed is what a server has answered to a script and to the WAIT behind it.
type confirmed struct {
	reply        rueidis.RedisMessage
	missing, err error
}

// sendConfirmed sends the script and a WAIT over one dedicated connection, for
// WAIT speaks of the writes of its own. It does so on a goroutine: rueidis looks at no context
// while it connects or waits for a place in its pool, and on such a connection at deadlines alone.
func (s *Store) sendConfirmed(ctx context.Context, sc *script, keys, args []string) (reply rueidis.RedisMessage, missing, err error) {
	// Without a deadline rueidis would answer from another goroutine, and could not have
	// the connection back unless the server takes part; a busy one does not.
	ctx, cancel := context.WithTimeout(ctx, s.replicaWait+giveUpAfter)
	defer cancel() // here, not on the goroutine: the answer comes before the end of ctx
	came := make(chan confirmed, 1)
	if !s.wakeups.begin(func() { came <- s.dedicated(ctx, sc, keys, args) }) {
		return reply, nil, store.ErrClosed
	}
	select {
	case c := <-came:
		return c.reply, c.missing, c.err
	case <-ctx.Done():
		return reply, nil, ctx.Err()
	}
}

// dedicated takes a connection for one script and its WAIT.
func (s *Store) dedicated(ctx context.Context, sc *script, keys, args []string) (answer confirmed) {
	c, giveBack := s.client.Dedicate()
	if ctx.Err() != nil {
		c.Close()
		return confirmed{err: ctx.Err()}
	}
	timeout := int64((s.replicaWait + time.Millisecond - 1) / time.Millisecond)
	wait := func() rueidis.Completed { return c.B().Wait().Numreplicas(int64(s.replicas)).Timeout(timeout).Build() }
	answers := c.DoMulti(ctx, sc.bySHA(s.client, keys, args), wait())
	if replyIs(answers[0].Error(), "NOSCRIPT") {
		answers = c.DoMulti(ctx, sc.byText(s.client, keys, args), wait())
	}
	reply, err := answers[0].ToMessage()
	n, unanswered := answers[1].AsInt64()
	if err != nil || unanswered != nil {
		// Not given back: rueidis cleans a pipelined connection by commands then, and any may
		// be one. It panics if the server refuses them, and its wait has no bound.
		c.Close()
	} else {
		giveBack()
	}
	answer = confirmed{reply: reply, err: err}
	switch {
	case err != nil:
	case unanswered != nil:
		answer.missing = fmt.Errorf("%w: %w", ErrTooFewReplicas, unanswered)
	case n < int64(s.replicas):
		answer.missing = fmt.Errorf("%w: %d of %d", ErrTooFewReplicas, n, s.replicas)
	}
	return answer
}

// A pushed grant was made by the script of whoever released, which waited for no
// replica. With MinReplicas it is therefore only a hint: it is written once more
// and confirmed before its waiter hears of it.

// queuedHere are the requests that are queued, or about to be, through this handle.
type queuedHere struct {
	mu      sync.Mutex
	waiting map[string]queued // by id
}

type queued struct {
	name    string
	waitTTL time.Duration
	until   time.Time // its place is dead then, unless it asks again
}

// note remembers a request that may be queued, before it is sent: its event may
// overtake the answer. It looks at two other entries, which the map picks at random,
// and drops those whose place is dead. So requests that are not repeated do not pile up.
func (h *queuedHere) note(req store.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now, looked := time.Now(), 0
	for id, q := range h.waiting {
		if q.until.Before(now) {
			delete(h.waiting, id)
		}
		if looked++; looked == 2 {
			break
		}
	}
	h.waiting[req.ID] = queued{req.Name, req.WaitTTL, now.Add(req.WaitTTL)}
}

// take returns the request of an id and forgets it.
func (h *queuedHere) take(id string) (queued, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q, ok := h.waiting[id]
	delete(h.waiting, id)
	return q, ok
}

// confirm passes a pushed grant on if enough replicas have it. Else the waiter asks
// again by itself, and is told when they have. It is not given up here: an ask of the
// same id may be under way, and confirmed.
func (s *Store) confirm(ctx context.Context, e store.Event) {
	q, ok := s.queuedHere.take(e.ID)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, q.waitTTL)
	defer cancel()
	reply, missing, err := s.sendConfirmed(ctx, s.scripts.renew, s.keys.of(q.name).all(), []string{e.ID, millis(q.waitTTL), "never earlier"})
	if err != nil || missing != nil {
		return
	}
	if results, err := reply.ToArray(); err == nil && len(results) == 1 && renewed(results[0]) == nil {
		s.wakeups.sinks.Push(e)
	}
}
