package quorum

import (
	"context"
	"errors"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// proposals choose the token that a request carries to the nodes. If a majority gives its hold that token, the grant
// is complete after one round. A proposal is a guess: that tokens strictly increase does not depend on it, see
// commit.
type proposals struct {
	mu sync.Mutex
	// last is the greatest token that this handle has seen or proposed for the names of a bucket. Nodes may count
	// for several names together, at most for those of a bucket.
	last [64]uint64
	// ahead is how far the clock by which a node gives tokens is ahead of start, in µs.
	ahead []atomic.Int64
	start time.Time
}

// of is the last token for a name. The mutex is locked.
func (p *proposals) of(name string) *uint64 {
	return &p.last[crc32.ChecksumIEEE([]byte(name))%uint32(len(p.last))]
}

// next is the token to propose to nodes.
func (p *proposals) next(req store.Request) uint64 {
	var clock uint64
	now := time.Since(p.start).Microseconds()
	for i := range p.ahead {
		if ahead := p.ahead[i].Load(); ahead != 0 {
			clock = max(clock, uint64(max(0, ahead+now)))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.of(req.Name)
	token := max(*last+1, clock)
	*last = token + uint64(req.Tokens) - 1
	return token
}

// note remembers the last token of a span that a node has given.
func (p *proposals) note(name string, token uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.of(name)
	*last = max(*last, token)
}

// noteClock remembers how far the clock of a node is ahead. A request sent then was met by that clock.
func (p *proposals) noteClock(i int, sent time.Time, clock uint64) {
	if clock != 0 {
		p.ahead[i].Store(int64(clock) - sent.Sub(p.start).Microseconds())
	}
}

// vote asks a node for its vote with a proposed token; 0 proposes none.
func (s *Store) vote(ctx context.Context, n *node, req store.Request, token uint64) (v store.Vote, err error) {
	sent := time.Now()
	if n.voter != nil {
		v, err := n.voter.Vote(ctx, req, token)
		if !errors.Is(err, store.ErrUnsupported) {
			s.proposals.noteClock(n.index, sent, v.Clock)
			return v, err
		}
	}
	if v.Grant, err = n.store.Acquire(ctx, req); err != nil || !v.Grant.Held {
		return v, err
	}
	if v.Grant.Holds == 1 && v.Grant.Token < token {
		if v.Grant, v.Err = n.raise(ctx, req, token, v.Grant); v.Err != nil {
			return v, nil
		}
	}
	if n.mortal != nil {
		v.Life, v.Age, v.Err = n.mortal.Incarnation(ctx)
	}
	return v, nil
}

// raise has the node give the token to a hold that it has just granted, and returns the grant with what it has then.
func (n *node) raise(ctx context.Context, req store.Request, token uint64, g store.Grant) (store.Grant, error) {
	raised, err := n.raiser.RaiseToken(ctx, refOf(req), token, req.Tokens)
	switch {
	case errors.Is(err, store.ErrLost):
		err = errBroken
	case err == nil && raised != g.Token:
		g.Token, g.Short = raised, 0
	}
	return g, err
}
