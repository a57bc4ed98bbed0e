package quorum

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// vote is a node's grant that counts: the node has lost nothing since before it was asked.
type vote struct {
	node  *node
	grant store.Grant
}

func (v vote) ttl() time.Duration { return v.grant.TTL }
func (v vote) token() uint64      { return v.grant.Token }
func (v vote) holds() int         { return v.grant.Holds }
func (v vote) reserved() int      { return -v.grant.Short } // that much fewer than asked for

// ballot is what the nodes answered to one request.
type ballot struct {
	s         *Store
	entry     *entry
	req       store.Request
	sent      time.Time
	exclusion time.Duration // for so long a node that lost its data does not vote for this request
	known     known         // of the owner's holds, when it was sent
	lives     []string      // of each node, when it was asked
	tries     []*try        // of each node
	holding   int           // nodes that hold the id, whether or not that counts

	votes    []vote          // grants that count
	busy     []store.Grant   // queued, or refused because other owners hold
	errs     []error         // of each node: why it is no vote
	waits    []time.Duration // of nodes that vote, are busy or have restarted: for how long until they vote
	died     int             // nodes that have lost data since they were asked, as their votes say
	upgrades int             // of those that are busy: they refuse to make a reader's hold of the owner a writer's
	told     uint64          // the last token that a node told
}

func newBallot(s *Store, e *entry, req store.Request) *ballot {
	b := &ballot{s: s, entry: e, req: req, sent: time.Now(), errs: s.silence()}
	b.exclusion = s.exclusion(max(req.TTL, req.WaitTTL))
	for l := s.longest.Load(); l < int64(b.exclusion) && !s.longest.CompareAndSwap(l, int64(b.exclusion)); {
		l = s.longest.Load()
	}
	b.tries, b.known = e.sending()
	for _, n := range s.nodes {
		b.lives = append(b.lives, n.life.now())
	}
	return b
}

// take counts an answer.
func (b *ballot) take(a answer[store.Vote]) {
	i, g := a.node.index, a.value.Grant
	b.errs[i] = a.err
	b.told = max(b.told, g.Token)
	switch {
	case a.err == nil && g.Held:
		b.s.proposals.note(b.req.Name, g.Token+uint64(b.req.Tokens)-1)
		b.count(a)
	case errors.Is(a.err, store.ErrUpgrade):
		b.upgrades++
		fallthrough
	case a.err == nil, errors.Is(a.err, store.ErrHeld):
		b.s.proposals.note(b.req.Name, g.Token)
		b.busy, b.waits = append(b.busy, g), append(b.waits, 0)
	}
}

// count takes the vote of a node that has granted, if the node has lost nothing since before it was asked.
func (b *ballot) count(a answer[store.Vote]) {
	i, v, life := a.node.index, a.value, &a.node.life
	err := v.Err
	if a.node.mortal != nil && err == nil {
		excluded := life.excluded(time.Now(), b.exclusion) != nil
		err = life.judge(b.lives[i], b.sent, v.Life, v.Age, b.exclusion, b.s.fresh(b.sent, b.exclusion))
		if err != nil && !excluded {
			b.died++
		}
	}
	b.errs[i] = err
	switch {
	case err == nil:
		b.votes, b.waits = append(b.votes, vote{a.node, v.Grant}), append(b.waits, 0)
	case errors.Is(err, errRestarted):
		b.waits = append(b.waits, life.left(time.Now(), b.exclusion))
	}
}

// isUpgrade: the owner reads, and another owner holds too. A node may say so because it has missed a release of the
// owner; then it is only busy.
func (b *ballot) isUpgrade() bool { return b.upgrades > 0 && b.known.upgrade }

// undecided: a minority is busy although the owner holds. A waiter may have these nodes, or they missed a release. It
// says nothing of the majority, which has the owner's hold.
func (b *ballot) undecided() bool {
	return b.known.others > 0 && len(b.busy) <= len(b.s.nodes)-b.s.need
}

// enough: what left nodes are still to say does not change the outcome.
func (b *ballot) enough(left int) bool {
	need, votes, busy := b.s.need, len(b.votes), len(b.busy)
	switch {
	case votes >= need:
		knowing := b.knowing() // a node that has not answered may know the hold too
		return b.known.token == 0 || knowing >= need || knowing+left < need
	case votes+left >= need:
		return false
	}
	return votes+busy >= need || votes+busy+left < need
}

// repeats: a majority knows the hold by which this request gets a token that exists already. With fewer, that hold
// may have been lost, and another owner may have had a greater token since.
func (b *ballot) repeats() bool { return b.known.token > 0 && b.knowing() >= b.s.need }

// knowing counts the votes of nodes that know that hold: they answer with a token that they gave to it. What a node has
// of the owner may be another hold, whose release has failed.
func (b *ballot) knowing() (n int) {
	for _, v := range b.votes {
		gave := func(s span) bool { return s.from <= v.grant.Token && v.grant.Token <= s.to }
		if slices.ContainsFunc(b.known.at[v.node.index], gave) {
			n++
		}
	}
	return n
}

// candidate is the token to begin with: that of the hold which the request repeats, or one that a majority has given,
// or the greatest. A token of a vote beside another hold of the owner may be an old one, so one is taken that is
// above all that this handle has seen. The same goes for the token of a node that was asked for this try before:
// there may have been another hold then, and the try has kept its token. A token that comes without its span is passed
// over for the one behind that: to make that the hold's reserves all.
func (b *ballot) candidate() (greatest uint64) {
	if b.repeats() {
		return b.known.token
	}
	old := func(v vote) bool { return v.grant.Holds > 1 || b.known.repeated[v.node.index] }
	if b.known.again || slices.ContainsFunc(b.votes, old) {
		return b.s.proposals.next(b.req)
	}
	if token, ok := common(each(b.votes, vote.token), b.s.need); ok {
		return token
	}
	for _, v := range b.votes {
		token := v.grant.Token
		if v.grant.Short > 0 {
			token += uint64(b.req.Tokens)
		}
		greatest = max(greatest, token)
	}
	return greatest
}

// untilVotes is for how long a request has to wait until a majority votes or is busy, if only restarts of nodes keep
// it from that: at the start of new servers no majority votes.
func (b *ballot) untilVotes() (wait time.Duration, ok bool) {
	if len(b.waits) < b.s.need {
		return 0, false
	}
	slices.Sort(b.waits)
	return b.waits[b.s.need-1], true
}

// onceMore: fewer nodes than a majority have voted, because their lives were not known, which they are now.
func (b *ballot) onceMore() bool {
	wait, ok := b.untilVotes()
	return ok && wait == 0 && len(b.votes)+len(b.busy) < b.s.need
}

// refusal is the answer to a request that is not granted: what has to go by before a majority can grant it. It names a
// hold in the way at one of the nodes.
func (b *ballot) refusal() (g store.Grant) {
	slices.SortFunc(b.busy, func(x, y store.Grant) int { return cmp.Compare(x.Retry, y.Retry) })
	if last := min(b.s.need-b.holding, len(b.busy)) - 1; last >= 0 {
		g.Retry, g.Position = b.busy[last].Retry, b.busy[last].Position
	}
	g.Retry = max(g.Retry, time.Millisecond)
	if i := slices.IndexFunc(b.busy, func(g store.Grant) bool { return g.HeldBy != "" }); i >= 0 {
		g.HeldBy, g.HeldFor = b.busy[i].HeldBy, b.busy[i].HeldFor
	}
	return g
}
