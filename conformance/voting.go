package conformance

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/dlock-go/dlock/store"
)

const (
	saysVote       = "Vote does what Acquire does."
	saysVoteRaises = "If that grants, and the hold is the only one of its owner, it then does what RaiseToken does with token; 0 raises nothing. A store may leave that out, as Grant.Token then says."
	saysVoteLife   = "After that it does what Incarnation does."
	saysVoteClock  = "Clock is the least token that the store would give to a new hold now, by a clock that counts on in microseconds. 0: its tokens follow no clock."
)

// What the quorum store asks of a node in one round trip.
var votingCases = []testCase{
	{
		name: "grants",
		says: saysVote, needs: voter,
		run: func(h *harness) {
			a := h.exclusive("A")
			token := a.wantVote(0).Grant.Token
			a.wantVoteToken(0, token)
			a.wantReentry(token, 1)
			h.exclusive("B").wantVoteError(0, store.ErrHeld)
			h.shared("A").on(h.name + "/other").wantVote(0)
		},
	},
	{
		name: "refuses a buried id",
		says: saysVote, needs: voter,
		run: func(h *harness) {
			a := h.exclusive("A")
			a.buryAbsent()
			a.wantVoteError(0, store.ErrLost)
		},
	},
	{
		name: "queues",
		says: saysVote, needs: voter | fair,
		run: func(h *harness) {
			h.exclusive("A").hold()
			w := h.exclusive("W").waiting()
			if v, err := w.vote(0); err != nil || v.Grant.Held || v.Grant.Position != 1 {
				w.wrong("queued at position 1")
			}
			h.wantQueue(w)
		},
	},
	{
		name: "gives the token that it says",
		says: saysVoteRaises, needs: voter | alone,
		run: func(h *harness) {
			for _, mode := range []store.Mode{store.Exclusive, store.Shared} {
				a, b := h.claim("A", mode).tokens(spanned), h.exclusive("B")
				token := a.hold().Token + 1000
				a.release()
				a = h.claim("A", mode).tokens(spanned)
				given := a.wantVote(token).Grant.Token
				if given <= token-1000 {
					a.wrong("a token above %d", token-1000)
				}
				h.wantEntry(h.inspect(a.req.Name).Holders, a, given)
				last := a.behind()
				a.wantVoteToken(token, given)
				a.release()
				b.wantToken(last)
				b.release()
			}
		},
	},
	{
		name: "raises no re-entry",
		says: saysVoteRaises, needs: voter,
		run: func(h *harness) {
			a := h.exclusive("A")
			token := a.hold().Token
			h.exclusive("A").wantVoteToken(token+1000, token)
			a.wantReentry(token, 2)
		},
	},
	{
		name: "says the life",
		says: saysVoteLife, needs: voter | incarnator,
		run: func(h *harness) {
			v := h.exclusive("A").wantVote(0)
			life, _, err := h.main.(store.Incarnator).Incarnation(h.ctx)
			if (v.Err != nil) != (err != nil) || err == nil && (v.Life != life || v.Age < 0) {
				h.failf(fmt.Sprintf("life %q, no negative age, %s", life, describeError(err)), "life %q, age %v, %s", v.Life, v.Age, describeError(v.Err))
			}
		},
	},
	{
		name: "says no clock ahead of the tokens",
		says: saysVoteClock, needs: voter,
		run: func(h *harness) {
			a := h.exclusive("A")
			clock := a.wantVote(0).Clock
			a.release()
			h.exclusive("B").wantToken(clock)
		},
	},
}

// vote calls Vote and remembers the answer. Where the store leaves it to the three calls, the case ends.
func (c *claim) vote(token uint64) (v store.Vote, err error) {
	h, req := c.h, c.req
	h.mu.Lock()
	h.refs[req.ID] = c.refFor(max(req.TTL, req.WaitTTL))
	h.mu.Unlock()
	end := h.traceCall(func() string { return fmt.Sprintf("Vote %d: %s", token, describeRequest(req)) },
		func() string { return describeGrant(v.Grant, err) })
	v, err = c.via.(store.Voter).Vote(h.ctx, req, token)
	end()
	c.grant, c.err = v.Grant, err
	if errors.Is(err, store.ErrUnsupported) {
		state := h.inspect(req.Name)
		for _, e := range append(state.Holders, state.Queue...) {
			if e.ID == store.Short(req.ID) {
				c.wrong("nothing done by a store that does not vote")
			}
		}
		runtime.Goexit()
	}
	return v, err
}

// wantVote wants the hold.
func (c *claim) wantVote(token uint64) store.Vote {
	v, err := c.vote(token)
	if err != nil || !v.Grant.Held {
		c.wrong("held")
	}
	return v
}

func (c *claim) wantVoteToken(token, want uint64) {
	if got := c.wantVote(token).Grant.Token; got != want {
		c.wrong("token %d", want)
	}
}

func (c *claim) wantVoteError(token uint64, sentinel error) {
	if _, err := c.vote(token); !errors.Is(err, sentinel) {
		c.wrong("%s", describeError(sentinel))
	}
}
