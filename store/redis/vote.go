package redis

import (
	"context"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// mostVotes is how many votes are under way at once in one round trip, each of three commands. More
// take two, and travel with other calls.
const mostVotes = 32

// Vote implements [store.Voter], for a server that is no cluster, without MinReplicas. It
// takes one round trip, two for the first votes and while more than 32 are under way, and blocks
// as Acquire does.
func (s *Store) Vote(ctx context.Context, req store.Request, token uint64) (store.Vote, error) {
	if err := s.ready(ctx); err != nil {
		return store.Vote{}, err
	}
	if s.replicas > 0 || s.client.Mode() == rueidis.ClientModeCluster {
		return store.Vote{}, store.ErrUnsupported
	}
	n, args := s.keys.of(req.Name), s.acquireArgs(req)
	if token != 0 {
		args = append(args, strconv.FormatUint(token, 10))
	}
	s.failed.begin(req.ID)
	reply, life, err := s.sendVote(ctx, n, args)
	if err == nil && life == nil || notRun(err) || replyIs(err, "NOSCRIPT", indexedReply) {
		life = nil
		reply, err = s.run(ctx, s.scripts.acquire, n, args)
	}
	var v store.Vote
	if v.Grant, err = s.readAcquire(req, n, reply, err); err != nil {
		return v, err
	}
	if !v.Grant.Held {
		if v.Grant, err = s.whenListening(ctx, req, n, v.Grant); err != nil || !v.Grant.Held {
			return v, err
		}
		life = nil // it is older than the grant
	}
	if life == nil {
		life, v.Err = s.fetchLife(ctx)
	}
	if v.Err == nil {
		v.Life, v.Age, v.Err = s.readLife(ctx, life)
	}
	if v.Err != nil {
		v.Err = s.outcome(v.Err)
		return v, nil
	}
	if text, err := life[0].ToString(); err == nil {
		v.Clock = clockOf(info(text))
	}
	return v, nil
}

// sendVote calls the acquire script once and asks for the life after it, in one round trip. It goes through
// one connection, so the life is that of the process that has voted, or of one that
// came later. Without replies and error nothing was sent.
func (s *Store) sendVote(ctx context.Context, n *name, args []string) (reply rueidis.RedisMessage, life []rueidis.RedisResult, err error) {
	if s.votes.Add(1) > mostVotes {
		s.votes.Add(-1)
		return reply, nil, nil
	}
	vote := append([]rueidis.Completed{s.scripts.acquire.bySHA(s.client, n.keys(), args)}, s.askLife()...)
	replies, err := apart(ctx, func() []rueidis.RedisResult {
		defer s.votes.Add(-1)
		return s.client.DoMulti(unsent{s.wakeups.ctx, ctx.Err}, vote...)
	})
	if err != nil {
		return reply, nil, err
	}
	reply, err = replies[0].ToMessage()
	return reply, replies[1:], err
}

// apart runs f on a goroutine, because rueidis lets a call wait for another's dialing without
// looking at its context. It returns what f returned, or why ctx ended.
func apart[T any](ctx context.Context, f func() T) (value T, err error) {
	returned := make(chan T, 1)
	go func() { returned <- f() }()
	select {
	case value = <-returned:
		return value, nil
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// askNode sends a command to one node and returns when it has answered or ctx ends.
func askNode(ctx context.Context, node rueidis.Client, command rueidis.Completed) rueidis.RedisResult {
	result, err := apart(ctx, func() rueidis.RedisResult { return node.Do(ctx, command) })
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	return result
}

// readAcquire reads the reply of the acquire script.
func (s *Store) readAcquire(req store.Request, n *name, reply rueidis.RedisMessage, err error) (store.Grant, error) {
	if err != nil {
		err = s.outcomeOf(n, err)
		s.failed.note(req, err)
		return store.Grant{}, err
	}
	if reply.IsString() {
		n.indexed.Store(false) // it was free
	} else {
		n.markContended()
	}
	return grant(reply, req)
}

// clockOf returns the server's clock in µs, by which it gives tokens, or 0.
func clockOf(in info) uint64 {
	clock, _ := strconv.ParseUint(in.field("server_time_usec"), 10, 64)
	return clock
}

var _ store.Voter = (*Store)(nil)
