package quorum

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// vote is a node's grant that counts: the node has lost nothing since before it was asked.
type vote struct {
	node  *node
	grant store.Grant
}

// ballot is what the nodes answered to one request.
type ballot struct {
	s     *Store
	entry *entry
	req   store.Request
	sent  time.Time
	token uint64   // of the grant that the id is already, 0 if it is none
	lives []string // of each node, when it was asked

	granted []atomic.Bool // of each node: it has granted, and has not yet said all

	votes    []vote        // grants that count
	held     []*node       // where the id holds, whether or not that counts
	busy     []store.Grant // queued, or refused because others hold
	errs     []error       // of each node: why it is no vote
	queued   []*node       // where it has a place
	missing  []*node       // that have answered, and have neither the hold nor a place
	tainted  int           // nodes where the id holds, which does not count as a release may still arrive
	died     int           // nodes that have lost data since they were asked, as their votes say
	upgrades int           // of those that are busy: they refuse to make a reader's hold of the owner a writer's
	strange  int           // nodes at which the owner has no other hold
	told     uint64        // the last token that a node told
}

func newBallot(s *Store, e *entry, req store.Request) *ballot {
	b := &ballot{s: s, entry: e, req: req, sent: time.Now(), token: e.granting(), lives: make([]string, len(s.nodes)), errs: make([]error, len(s.nodes)), granted: make([]atomic.Bool, len(s.nodes))}
	for i, n := range s.nodes {
		b.lives[i] = n.life.now()
		b.errs[i] = errSilent
	}
	return b
}

// exclusion is for how long a node that lost its data does not vote for this request.
func (b *ballot) exclusion() time.Duration { return b.s.exclusion(max(b.req.TTL, b.req.WaitTTL)) }

// take counts an answer.
func (b *ballot) take(a answer[store.Vote]) {
	i, g := a.node.index, a.value.Grant
	b.errs[i] = a.err
	b.told = max(b.told, g.Token)
	if !g.Held {
		b.entry.noteLate(i, false)
	}
	b.s.proposals.note(b.req.Name, g.Token)
	if isMissing(a.err) {
		b.missing = append(b.missing, a.node)
	}
	switch {
	case a.err == nil && g.Held:
		b.s.proposals.note(b.req.Name, g.Token+uint64(b.req.Tokens)-1)
		b.held = append(b.held, a.node)
		if g.Holds == 1 {
			b.strange++
		}
		if b.errs[i] = b.refuse(a); b.errs[i] == nil {
			b.votes = append(b.votes, vote{a.node, g})
		}
	case a.err == nil:
		b.queued, b.busy = append(b.queued, a.node), append(b.busy, g)
		b.strange++
	case errors.Is(a.err, store.ErrHeld):
		b.busy = append(b.busy, g)
		b.strange++
	case errors.Is(a.err, store.ErrUpgrade):
		b.busy = append(b.busy, g)
		b.upgrades++
	}
}

// refuse says why the vote of a node that has granted does not count.
func (b *ballot) refuse(a answer[store.Vote]) error {
	v := a.value
	if b.entry.isTainted(a.node.index) {
		b.tainted++
		return errTainted
	}
	if a.node.mortal == nil || v.Err != nil {
		return v.Err
	}
	known := a.node.life.excluded(time.Now(), b.exclusion()) != nil
	if err := a.node.life.judge(b.lives[a.node.index], b.sent, v.Life, v.Age, b.exclusion()); err != nil {
		if !known {
			b.died++
		}
		return err
	}
	return b.s.twins()
}

// isUpgrade: the owner may hold already, as a reader beside others. Where he holds, a
// majority has his hold. So many nodes know of none that a single one that does has only
// missed his release.
func (b *ballot) isUpgrade() bool { return b.upgrades > 0 && b.strange <= len(b.errs)-b.s.need }

// enough: what left nodes are still to say does not change the outcome.
func (b *ballot) enough(left int) bool {
	need, votes, busy := b.s.need, len(b.votes), len(b.busy)
	switch {
	case votes >= need:
		_, agreed := b.agreed()
		return agreed || !b.repeats()
	case votes+left >= need:
		return false
	case b.isUpgrade():
		return b.strange+left <= len(b.errs)-need // else the others may say that it is none
	}
	return (votes+busy >= need || votes+busy+left < need) && !b.mayHold()
}

// mayHold reports whether a node that has not answered has granted the request, now or when
// it answered an earlier try too late, as far as is known. A request that gets no majority has to know what it
// holds: it gives that back, or several requests could wait for each other.
func (b *ballot) mayHold() bool {
	for i, err := range b.errs {
		if errors.Is(err, errSilent) && (b.granted[i].Load() || b.entry.heldLate(i)) {
			return true
		}
	}
	return false
}

// repeats: the token of this grant exists already. The id has been granted before, or
// some node says that its owner has another hold.
func (b *ballot) repeats() bool {
	return slices.ContainsFunc(b.votes, func(v vote) bool { return v.grant.Holds > 1 || v.grant.Token == b.token })
}

// unsure: the owner has another hold, and a node that has not answered may be needed to
// tell by which token.
func (b *ballot) unsure() bool {
	_, agreed := b.agreed()
	return !agreed && len(b.votes) >= b.s.need &&
		!slices.ContainsFunc(b.votes, func(v vote) bool { return v.grant.Token == b.token }) &&
		slices.ContainsFunc(b.votes, func(v vote) bool { return v.grant.Holds > 1 }) &&
		slices.ContainsFunc(b.errs, mayYetVote)
}

// inherit takes over what the id has got in the ballot before, of which this one need not
// have heard.
func (b *ballot) inherit(before *ballot) {
	for _, n := range before.held {
		if !slices.Contains(b.held, n) {
			b.held = append(b.held, n)
		}
	}
}

// isSpoilt: the id cannot be granted, for releases of it may still arrive at nodes whose
// votes it would need: at so many that the others are no majority, or at some that
// have granted it now, and without which those that have answered are none. Who does
// not wait is told what the others say: that somebody holds, or that they are too few.
func (b *ballot) isSpoilt() bool {
	answered := len(b.votes) + len(b.busy)
	return b.req.Queue && (b.entry.isSpoilt(b.s.need) ||
		!b.entry.inUse() && answered < b.s.need && answered+b.tainted >= b.s.need)
}

// mayYetVote: a node said nothing, or nothing certain, for a reason that may pass.
func mayYetVote(err error) bool {
	return err != nil && !certain(err) && !errors.Is(err, errTainted) && !errors.Is(err, errRestarted)
}

// agreed returns the token that a majority has given to this id.
func (b *ballot) agreed() (uint64, bool) {
	count := make(map[uint64]int, len(b.votes))
	for _, v := range b.votes {
		if count[v.grant.Token]++; count[v.grant.Token] == b.s.need {
			return v.grant.Token, true
		}
	}
	return 0, false
}

// candidate is the token to begin with: the one that a majority has given, or that
// the id had before, or that of the owner's other hold, or the greatest. One that
// comes without its span is passed over for the one behind that: to make it the
// hold's reserves all.
func (b *ballot) candidate() uint64 {
	if token, ok := b.agreed(); ok {
		return token
	}
	var greatest, reentry uint64
	for _, v := range b.votes {
		token := v.grant.Token
		if v.grant.Short > 0 {
			token += uint64(b.req.Tokens)
		}
		greatest = max(greatest, token)
		if v.grant.Token == b.token {
			return b.token
		}
		if v.grant.Holds > 1 {
			reentry = max(reentry, v.grant.Token)
		}
	}
	if reentry > 0 {
		return reentry
	}
	return greatest
}

// untilVotes reports whether a request that waits, and that failed with err, has only to
// wait until nodes that may have lost holds vote again, and for how long: at the start of
// new servers no majority does.
func (b *ballot) untilVotes(err error) (wait time.Duration, ok bool) {
	var none *NoQuorumError
	if !b.req.Queue || !errors.As(err, &none) {
		return 0, false
	}
	var waits []time.Duration
	for i, err := range none.Nodes {
		switch {
		case errors.Is(err, errRestarted):
			waits = append(waits, b.s.nodes[i].life.left(time.Now(), b.exclusion()))
			ok = true
		case err == nil || errors.Is(err, store.ErrHeld):
			waits = append(waits, 0)
		}
	}
	if !ok || len(waits) < b.s.need {
		return 0, false
	}
	slices.Sort(waits)
	return waits[b.s.need-1], true
}

// heldBy is the label of a hold in the way at one of the nodes.
func (b *ballot) heldBy() string {
	for _, g := range b.busy {
		if g.HeldBy != "" {
			return g.HeldBy
		}
	}
	return ""
}

// retry is when a majority of the nodes may be free.
func (b *ballot) retry() time.Duration {
	waits := make([]time.Duration, len(b.held), len(b.s.nodes)) // there: no time
	for _, g := range b.busy {
		waits = append(waits, g.Retry)
	}
	slices.Sort(waits)
	return max(waits[min(b.s.need, len(waits))-1], time.Millisecond)
}

// position is the place that it has at a majority of the nodes, or one ahead of it.
func (b *ballot) position() int {
	positions := make([]int, len(b.held), len(b.s.nodes))
	for _, g := range b.busy {
		positions = append(positions, g.Position)
	}
	slices.Sort(positions)
	return max(positions[min(b.s.need, len(positions))-1], 1)
}
