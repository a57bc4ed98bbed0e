// Package model is the lock model of package store for Porcupine: what the
// simulation and the histories on real servers are judged by.
//
// Its state is the live holds and the queue of one name. Expiry is an operation
// of its own, a ghost, that the checker may put anywhere within the time in which
// the store may have noticed; it names the request that gave the lease, so it
// does nothing if another request has renewed it since. What has expired is
// removed by the next operation that looks, all of it at once.
package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// PromotedLease is the number of the lease that a promotion gives; its end says
// by the token which promotion of the id that was.
const PromotedLease = -1

// lockState is a state of the model. Steps never change one in place.
type lockState struct {
	holds  []modelHold // oldest grant first
	queue  []modelPlace
	buried []burial
	top    uint64 // the greatest token known to have been issued
	over   bool
	broken bool // a promise was
}

type modelHold struct {
	id, owner int
	shared    bool
	token     uint64 // 0: not known yet, but greater than after
	after     uint64
	promoted  bool
	place     int    // what its place had as a lease when it was promoted
	leases    string // numbers of the steps whose leases last, as text, so that states compare; none: it has expired
}

type modelPlace struct {
	id, owner int
	shared    bool
	lease     int // 0: it has expired
	promise   uint64
}

type burial struct{ id, n int }

// answer is what the model says to a call. A token of 0 is a new one, of which
// only a lower bound is known.
type answer struct {
	outcome  Outcome
	token    uint64
	after    uint64
	holds    int
	position int
}

func lockModel() porcupine.Model {
	return porcupine.Model{
		Init:              func() any { return &lockState{} },
		Step:              func(state, input, _ any) (bool, any) { return state.(*lockState).step(input.(*Step)) },
		Equal:             func(a, b any) bool { return a.(*lockState).equal(b.(*lockState)) },
		DescribeOperation: func(input, _ any) string { return input.(*Step).String() },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", *state.(*lockState)) },
	}
}

// step returns whether s may happen in this state, and the state after it. What
// is open happens when it changes something or, which means not at all, after
// the end: to let it do nothing earlier would only be another order to search.
func (l *lockState) step(s *Step) (bool, any) {
	if l.over {
		return true, l
	}
	ok, next := l.happen(s)
	if next.(*lockState).broken {
		return false, l
	}
	if s.Open && ok && l.equal(next.(*lockState)) {
		return false, l
	}
	return ok, next
}

func (l *lockState) equal(x *lockState) bool {
	return l == x || l.top == x.top && l.over == x.over &&
		slices.Equal(l.holds, x.holds) && slices.Equal(l.queue, x.queue) && slices.Equal(l.buried, x.buried)
}

func (l *lockState) happen(s *Step) (bool, any) {
	switch s.Kind {
	case Answered, Unanswered:
		return l.call(s)
	case Told:
		i := l.findHold(s.ID)
		if i < 0 || !l.holds[i].promoted && !s.Plain || !l.holds[i].admits(s.Token) {
			return false, l
		}
		if l.holds[i].token == s.Token {
			return true, l
		}
		next := l.clone()
		next.learn(i, s.Token)
		return true, next
	case HoldEnds, PlaceEnds, BurialEnds:
		next := l.clone()
		next.end(s)
		return true, next
	case Expires:
		next := l.clone()
		next.expire(s.ID, s.N)
		next.settle()
		return true, next
	case Noticed:
		next := l.clone()
		for _, ghost := range s.Ended {
			next.end(ghost)
		}
		next.settle()
		return true, next
	case Forced:
		next := l.clone()
		next.settle()
		next.holds = nil
		next.promote()
		return true, next
	case Wiped:
		return true, &lockState{top: l.top}
	case Over:
		return true, &lockState{over: true}
	}
	panic("model: no such step")
}

// call applies a call, and compares its answer with the one that was given.
func (l *lockState) call(s *Step) (bool, any) {
	var (
		next = l.clone()
		a    answer
	)
	next.settle()
	switch c := s.Call; c.Op {
	case Acquire:
		a = next.acquire(c, s.N, s.Early)
	case Renew:
		a = next.renew(c, s.N)
	case Release:
		a = next.release(c, s.N)
	}
	if s.Kind == Unanswered {
		return true, next
	}
	c := s.Call
	if a.outcome != c.Outcome {
		return false, l
	}
	switch a.outcome {
	case Held:
		if a.holds != c.Holds {
			return false, l
		}
		if i := next.findHold(c.ID); a.token == 0 {
			if c.Token <= a.after {
				return false, l
			}
			next.learn(i, c.Token)
		} else if a.token != c.Token {
			return false, l
		}
	case Queued:
		if a.position != c.Position || c.Token < l.top {
			return false, l
		}
	}
	return true, next
}

// end notes that what a lease kept has expired, if it was not renewed since.
func (l *lockState) end(ghost *Step) {
	switch ghost.Kind {
	case HoldEnds:
		i := l.findHold(ghost.ID)
		if i >= 0 && (ghost.N != PromotedLease || l.holds[i].token == ghost.Token) {
			l.holds[i].leases = without(l.holds[i].leases, ghost.N)
		}
	case PlaceEnds:
		if i := l.findPlace(ghost.ID); i >= 0 && l.queue[i].lease == ghost.N {
			l.queue[i].lease = 0
		}
	case BurialEnds:
		l.buried = slices.DeleteFunc(l.buried, func(b burial) bool { return b == burial{ghost.ID, ghost.N} })
	}
}

// expire notes that all leases of an id that it got from steps up to n are over.
// Ghosts of that kind do without the end of what a promotion gave: nobody may know
// when that was, but it is not over before the place would have been.
func (l *lockState) expire(id, n int) {
	if i := l.findHold(id); i >= 0 {
		last := l.holds[i].place
		for _, lease := range l.holds[i].leases {
			last = max(last, int(lease)-firstLease)
		}
		if last <= n {
			l.holds[i].leases = ""
		}
	}
	if i := l.findPlace(id); i >= 0 && l.queue[i].lease <= n {
		l.queue[i].lease = 0
	}
}

// settle removes what has expired, which is a removal like any other.
func (l *lockState) settle() {
	l.holds = slices.DeleteFunc(l.holds, func(h modelHold) bool { return h.leases == "" })
	l.queue = slices.DeleteFunc(l.queue, func(p modelPlace) bool { return p.lease == 0 })
	l.promote()
}

func (l *lockState) acquire(c *Call, n int, early bool) answer {
	if slices.ContainsFunc(l.buried, func(b burial) bool { return b.id == c.ID }) {
		return answer{outcome: Lost}
	}
	if i := l.findHold(c.ID); i >= 0 {
		l.holds[i].leases = with(l.holds[i].leases, n) // whichever ends later
		return l.held(i)
	}
	if token, after, ok := l.grantable(c.Owner, c.ID, c.Shared); ok {
		token = l.promised(token, after, c.Promise)
		l.grant(modelHold{id: c.ID, owner: c.Owner, shared: c.Shared, token: token, after: after, leases: with("", n)})
		return l.held(l.findHold(c.ID))
	}
	if l.holdsAny(c.Owner) && !early {
		l.leave(c.ID)
		return answer{outcome: Upgrade}
	}
	if !c.Queue {
		return answer{outcome: Busy}
	}
	i := l.findPlace(c.ID)
	if i < 0 {
		l.queue = append(l.queue, modelPlace{c.ID, c.Owner, c.Shared, n, c.Promise})
		i = len(l.queue) - 1
	}
	l.queue[i].lease = n
	return answer{outcome: Queued, position: i + 1}
}

func (l *lockState) renew(c *Call, n int) answer {
	i := l.findHold(c.ID)
	if i < 0 {
		return answer{outcome: Lost}
	}
	l.holds[i].leases = with("", n)
	return answer{outcome: Done}
}

func (l *lockState) release(c *Call, n int) answer {
	if c.Bury {
		l.buried = append(l.buried, burial{c.ID, n}) // sorted, so that equal sets are equal states
		slices.SortFunc(l.buried, func(a, b burial) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.n, b.n)) })
	}
	if !l.leave(c.ID) {
		return answer{outcome: Lost}
	}
	return answer{outcome: Done}
}

// leave removes the hold or place of id and promotes.
func (l *lockState) leave(id int) bool {
	if i := l.findHold(id); i >= 0 {
		l.holds = slices.Delete(l.holds, i, i+1)
	} else if i := l.findPlace(id); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	} else {
		return false
	}
	l.promote()
	return true
}

// grantable decides rules 2 and 3. A token of 0 is a new one.
func (l *lockState) grantable(owner, id int, shared bool) (token, after uint64, ok bool) {
	var mine []modelHold
	exclusive, others, writers := false, false, false
	for _, h := range l.holds {
		if h.owner == owner {
			mine = append(mine, h)
			exclusive = exclusive || !h.shared
		} else {
			others = true
			writers = writers || !h.shared
		}
	}
	switch {
	case exclusive || len(mine) > 0 && shared:
		token, after = inherited(mine, exclusive)
		return token, after, true
	case others && !shared || writers:
		return 0, 0, false
	case len(mine) == 0 && len(l.queue) > 0 && l.queue[0].id != id:
		return 0, 0, false
	}
	return 0, l.top, true
}

// inherited is the token of a re-entry: the greatest of the owner's exclusive
// holds if it has any, else of its shared ones. If one of them is not known,
// neither is the greatest, but it is as great as the others.
func inherited(mine []modelHold, exclusive bool) (token, after uint64) {
	open := false
	for _, h := range mine {
		if exclusive && h.shared {
			continue
		}
		if h.token == 0 {
			open = true
			after = max(after, h.after)
		}
		token = max(token, h.token)
	}
	if open {
		return 0, max(after, token) - min(1, max(after, token)) // it may be as great as the greatest known
	}
	return token, 0
}

// grant makes h a hold, and with it those waiting requests of its owner that
// re-entry now allows.
func (l *lockState) grant(h modelHold) {
	l.queue = slices.DeleteFunc(l.queue, func(p modelPlace) bool { return p.id == h.id })
	l.holds = append(l.holds, h)
	for again := true; again; {
		again = false
		for _, p := range l.queue {
			if p.owner != h.owner {
				continue
			}
			if token, after, ok := l.grantable(p.owner, p.id, p.shared); ok {
				l.grantWaiting(p, token, after)
				again = true
				break
			}
		}
	}
}

func (l *lockState) grantWaiting(p modelPlace, token, after uint64) {
	token = l.promised(token, after, p.promise)
	l.grant(modelHold{
		id: p.id, owner: p.owner, shared: p.shared, token: token, after: after, promoted: true,
		place: p.lease, leases: with("", PromotedLease),
	})
}

// promised is the token of a grant, which is the one that was promised if it is a
// new one. So an order in which grants are made that nobody was told of is given
// up at once.
func (l *lockState) promised(token, after, promise uint64) uint64 {
	if token != 0 || promise == 0 {
		return token
	}
	l.broken = l.broken || promise <= after
	l.top = max(l.top, promise)
	return promise
}

// promote grants from the head of the queue as far as the rules allow.
func (l *lockState) promote() {
	for len(l.queue) > 0 {
		head := l.queue[0]
		token, after, ok := l.grantable(head.owner, head.id, head.shared)
		if !ok {
			return
		}
		l.grantWaiting(head, token, after)
	}
}

// held is the answer that hold i gets.
func (l *lockState) held(i int) answer {
	a := answer{outcome: Held, token: l.holds[i].token, after: l.holds[i].after}
	for _, h := range l.holds {
		if h.owner == l.holds[i].owner {
			a.holds++
		}
	}
	return a
}

// admits: the hold may have that token.
func (h modelHold) admits(token uint64) bool {
	return h.token == token || h.token == 0 && token > h.after
}

// learn enters the token of hold i.
func (l *lockState) learn(i int, token uint64) {
	l.holds[i].token = token
	l.top = max(l.top, token)
}

func (l *lockState) holdsAny(owner int) bool {
	return slices.ContainsFunc(l.holds, func(h modelHold) bool { return h.owner == owner })
}

func (l *lockState) findHold(id int) int {
	return slices.IndexFunc(l.holds, func(h modelHold) bool { return h.id == id })
}

func (l *lockState) findPlace(id int) int {
	return slices.IndexFunc(l.queue, func(p modelPlace) bool { return p.id == id })
}

func (l *lockState) clone() *lockState {
	return &lockState{slices.Clone(l.holds), slices.Clone(l.queue), slices.Clone(l.buried), l.top, l.over, l.broken}
}

// with adds a lease to a list of them.
func with(leases string, n int) string {
	lease := string(rune(n + firstLease))
	if strings.Contains(leases, lease) {
		return leases // the two halves of one request
	}
	return leases + lease
}

// without takes a lease out of a list of them.
func without(leases string, n int) string {
	return strings.Replace(leases, string(rune(n+firstLease)), "", 1)
}

// firstLease keeps the numbers in the text above zero.
const firstLease = 2
