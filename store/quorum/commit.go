package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
)

// maxRounds bounds an agreement. The last ones leave room for a million grants.
const maxRounds = 25

// commit agrees on a token with the nodes that voted. It is the one that a majority of them has given to the hold, as
// proposed, and then no round is needed. Otherwise it is the greatest that one of them gave, and a majority has to
// give it to the hold.
//
// It is greater than that of every grant that was reported before this one was asked for, or that this one had to
// wait for. Such a grant was given its token by a majority, and one node of it has voted here after that, with a
// greater one. Two shared holds cannot get the same, as no node gives it twice. This needs no
// clock, and no two counters that are near each other.
//
// A counter that has gone further, because it serves other names too or other readers were quicker, makes another
// round necessary, from where it is. A hold that the owner has already keeps its token where a node is further.
func (s *Store) commit(ctx context.Context, b *ballot) (store.Grant, error) {
	end := b.sent.Add(b.lease() - drift(b.lease()))
	votes, token := b.votes, b.candidate()
	for round := range maxRounds {
		if len(b.sure(votes, token)) < s.need {
			votes = b.raise(ctx, votes, token)
		}
		sure := b.sure(votes, token)
		for _, v := range votes {
			b.errs[v.node.index] = errToken
		}
		if !time.Now().Before(end) {
			for _, v := range b.votes {
				b.errs[v.node.index] = errLate
			}
			break
		}
		if len(sure) >= s.need {
			return b.grant(sure, token), nil
		}
		if len(votes) < s.need {
			break
		}
		// Each round leaves more room to counters that are ahead.
		token = max(token, slices.Max(each(votes, vote.token))) + 1<<min(round, 20)
	}
	return store.Grant{}, s.verdict(b.errs)
}

// sure are the votes with the token. A hold that the owner has already keeps its token where a node is further.
func (b *ballot) sure(votes []vote, token uint64) (sure []vote) {
	for _, v := range votes {
		if v.grant.Token == token || b.repeats() && v.grant.Token > token {
			sure = append(sure, v)
		}
	}
	return sure
}

// raise has the nodes with lower tokens give the token to the hold. It returns the votes that still count.
func (b *ballot) raise(ctx context.Context, votes []vote, token uint64) (left []vote) {
	var lower []*node
	grants := make([]store.Grant, len(b.s.nodes))
	for _, v := range votes {
		if v.grant.Token >= token {
			left = append(left, v)
			continue
		}
		lower, grants[v.node.index], b.errs[v.node.index] = append(lower, v.node), v.grant, errSilent
	}
	ask(ctx, b.s, b.s.timeout(b.req.TTL), lower, func(ctx context.Context, n *node) (store.Grant, error) {
		t := b.tries[n.index]
		g, err := n.raise(ctx, b.entry.asked(b.req, t), token, grants[n.index])
		b.entry.raised(t, g.Token)
		return g, err
	}, func(a answer[store.Grant], _ int) bool {
		if b.errs[a.node.index] = a.err; a.err == nil {
			b.s.proposals.note(b.req.Name, a.value.Token+uint64(b.req.Tokens)-1)
			left = append(left, vote{a.node, a.value})
		}
		return len(b.sure(left, token)) >= b.s.need // if it is not to be, all answers are of use to the next round
	})
	return left
}

// lease is what a majority of those who voted keeps the hold for.
func (b *ballot) lease() time.Duration { return nth(each(b.votes, vote.ttl), b.s.need) }

// grant is what a majority of the nodes says of the hold. The owner has the holds that this handle knows, but no more
// than some node says: others were broken.
func (b *ballot) grant(sure []vote, token uint64) store.Grant {
	g := store.Grant{
		Held: true, Token: token, Short: -nth(each(sure, vote.reserved), b.s.need),
		TTL: nth(each(sure, vote.ttl), b.s.need), Holds: min(b.known.others+1, nth(each(sure, vote.holds), 1)),
	}
	if b.repeats() && !b.known.again {
		g.Short = b.req.Tokens - 1
	}
	return g
}

// each is what each of the items has.
func each[T, V any](items []T, of func(T) V) (all []V) {
	for _, item := range items {
		all = append(all, of(item))
	}
	return all
}

// nth is the n-th greatest of all: so many have that much.
func nth[T int | time.Duration](all []T, n int) T {
	slices.Sort(all)
	return all[len(all)-n]
}

// common is the token that so many have.
func common(tokens []uint64, need int) (token uint64, ok bool) {
	count := make(map[uint64]int, len(tokens))
	for _, token := range tokens {
		if count[token]++; count[token] == need {
			return token, true
		}
	}
	return 0, false
}
