package redis

import (
	"context"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/dlock-go/dlock/store"
)

// mostVotes is how many votes are under way at once, each of up to four commands. More
// are asked for by single calls, which the combiner sends together.
const mostVotes = 32

var proposeScript = sync.OnceValue(func() *script { return newScript("propose", "#!lua", listed) })

// Vote implements [store.Voter], for a server that is no cluster, without MinReplicas. It
// takes one round trip and blocks as Acquire does. The commands go through one connection, so
// that each is run after the one before.
func (s *Store) Vote(ctx context.Context, req store.Request, token uint64) (store.Vote, error) {
	if err := s.ready(ctx); err != nil {
		return store.Vote{}, err
	}
	if s.replicas > 0 || s.client.Mode() == rueidis.ClientModeCluster || !s.beginVote() {
		return store.Vote{}, store.ErrUnsupported
	}
	n := s.keys.of(req.Name)
	args := s.acquireArgs(req)
	commands := make([]rueidis.Completed, 0, 4)
	if token != 0 {
		proposal := []string{args[0], args[1], args[2], strconv.Itoa(req.Tokens), strconv.FormatUint(token, 10)}
		commands = append(commands, proposeScript().bySHA(s.client, []string{n.counter, n.lock}, proposal))
	}
	commands = append(commands, s.scripts.acquire.bySHA(s.client, n.keys(), args))
	commands = append(commands, s.askLife()...)
	replies := s.client.DoMulti(ctx, commands...)
	life := replies[len(replies)-2:]
	reply, err := replies[len(replies)-3].ToMessage()
	if err != nil && ctx.Err() != nil {
		go s.endVoteLater(n)
	} else {
		s.votes.Add(-1)
	}
	if notRun(err) || replyIs(err, "NOSCRIPT", indexedReply) {
		return store.Vote{}, store.ErrUnsupported
	}
	var v store.Vote
	if v.Grant, err = s.readAcquire(req, n, reply, err); err != nil {
		return v, err
	}
	if !v.Grant.Held {
		if v.Grant, err = s.whenListening(ctx, req, n, v.Grant); err == nil && v.Grant.Held {
			v.Life, v.Age, v.Err = s.Incarnation(ctx) // the replies are older than the grant
		}
		return v, err
	}
	if token != 0 {
		s.readProposal(&v.Grant, token, replies[0])
	}
	v.Life, v.Age, v.Err = s.readLife(ctx, life)
	if v.Err != nil {
		v.Err = s.outcome(v.Err)
	}
	if text, err := life[0].ToString(); err == nil {
		v.Clock = clockOf(text)
	}
	return v, nil
}

// readAcquire reads the reply of the acquire script, as ask does.
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

// readProposal notes that the propose script has granted. Its text is sent to a server that does
// not know it, for the next votes.
func (s *Store) readProposal(g *store.Grant, token uint64, reply rueidis.RedisResult) {
	granted, err := reply.AsInt64()
	switch {
	case replyIs(err, "NOSCRIPT"):
		s.sendProposeScript()
	case err == nil && granted == 1 && g.Token == token:
		g.Short = 0
	}
}

// sendProposeScript has the server know the propose script, in the background and once at a
// time: it is run with a token that it refuses.
func (s *Store) sendProposeScript() {
	if !s.proposing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.proposing.Store(false)
		n := s.keys.of("")
		args := []string{"", "", "0", "0", "0"}
		s.client.Do(context.Background(), proposeScript().byText(s.client, []string{n.counter, n.lock}, args))
	}()
}

// beginVote takes one of the places for votes, if there is one.
func (s *Store) beginVote() bool {
	if s.votes.Add(1) <= mostVotes {
		return true
	}
	s.votes.Add(-1)
	return false
}

// endVoteLater gives up the place of a vote whose context ended before its replies came. They
// are still to come, so the place is in use until a later command is answered.
func (s *Store) endVoteLater(n *name) {
	s.client.Do(context.Background(), s.client.B().Hlen().Key(n.lock).Build())
	s.votes.Add(-1)
}

// clockOf returns the server's clock in µs, by which it gives tokens, or 0.
func clockOf(info string) uint64 {
	clock, _ := strconv.ParseUint(field(info, "server_time_usec:"), 10, 64)
	return clock
}

var _ store.Voter = (*Store)(nil)
