package real

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock/integration/model"
)

// timed is a step of the model, and when it may have happened.
type timed struct {
	model.Step
	from, to moment
}

// What happened at a real server is known from outside only, so a step may have
// happened at any time from the sending of its call to the answer. Calls of
// unknown outcome and the ends of leases would leave too many orders to be tried
// if nothing more were known; but what is known later of an id says a lot of what
// happened to it earlier.

// write finds the steps of a name.
func (s *script) write() {
	known := s.bounds()
	for _, a := range s.attempts {
		s.enter(a, known)
	}
	s.steps = append(s.steps, timed{Step: model.Step{Kind: model.Over}, from: never - 1, to: never - 1})
	slices.SortFunc(s.steps, func(a, b timed) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.N, b.N))
	})
}

// operations are the steps for Porcupine: as they are, or with those that were
// answered so long before their answers at most, and without the doubtful ones if
// they are not believed.
func (s *script) operations(before time.Duration, believing bool) (all []porcupine.Operation) {
	for i := range s.steps {
		step := &s.steps[i]
		if step.Maybe && !believing {
			continue
		}
		from := step.from
		if answered := step.Kind == model.Answered || step.Kind == model.Told; answered && before > 0 {
			from = max(from, step.to.plus(-before))
		}
		all = append(all, porcupine.Operation{Input: &step.Step, Call: int64(from), Return: int64(step.to)})
	}
	return all
}

func (s *script) add(step model.Step, from, to moment) { s.doubt(step, from, to, false) }

// doubt is add for what may be doubtful.
func (s *script) doubt(step model.Step, from, to moment, doubtful bool) {
	step.Open, step.Maybe = to == never, doubtful
	s.steps = append(s.steps, timed{step, from, to})
}

// enter enters all that is known of an id.
func (s *script) enter(a *attempt, known []*bound) {
	released := false
	for i, c := range a.calls {
		step := model.Step{Kind: model.Answered, N: c.n, Call: s.call(a, c)}
		switch {
		case c.Outcome == refused || c.Op == opRenew && c.Outcome == unknown:
			// Nothing happened, or nothing but that a lease may last longer.
		case c.Op == opRenew && s.keeps(a, i):
			// That it is still there says its release.
		case c.Op == opAcquire && !c.certain():
			if a.repeats(i) || s.there(a, i) {
				break
			}
			step.Kind = model.Unanswered
			s.doubt(step, s.joins(c), a.settled(i), a.giver(i) >= 0)
			s.expiry(a, i)
			if s.e.Etcd && !s.e.judged(c.Call, c.Return) {
				// It takes its place anew when it is lost before the call is over.
				s.doubt(step, c.Call, a.settled(i), true)
			}
		case c.Op == opRelease && c.Outcome == unknown:
			// It may be repeated until it is certain, which adds nothing.
			if to, found := a.gone(i); !found && !released {
				s.leave(a, i, to)
			}
			released = true
		case c.Op == opRelease && s.e.Doubled:
			step.Kind = model.Unanswered // the answer is that to the second copy
			s.add(step, c.Call, c.Return)
		default:
			// A place may have been taken first, and granted within the same call.
			if c.Op == opAcquire && c.Queue {
				half := step
				half.Kind = model.Unanswered
				half.Early = s.e.Etcd && c.Outcome == upgrade // it takes a place while nobody has made its owner's hold
				s.doubt(half, s.joins(c), c.Return, true)
				if s.e.Etcd && !s.e.judged(c.Call, c.Return) { // and lost in it, and taken anew
					s.doubt(model.Step{Kind: model.Expires, N: c.n, ID: a.id}, c.Call, c.Return, true)
				}
			}
			from, to := s.within(known, a, c)
			s.add(step, from, to)
			if c.gives() {
				s.expiry(a, i)
			}
		}
	}
	for _, r := range a.events {
		from, to := toldWithin(known, r, a.promoted(r))
		if s.e.Etcd && s.mayUpgrade(a) { // it asks by itself when another reader has gone
			c := a.calls[0]
			s.doubt(model.Step{Kind: model.Unanswered, N: c.n, Call: s.call(a, c)}, from, to, true)
		}
		s.add(model.Step{Kind: model.Told, ID: a.id, Token: r.Token, Plain: s.e.Etcd}, from, to)
	}
}

// mayUpgrade: a asks for a writer's hold, and its owner asks for a reader's too.
func (s *script) mayUpgrade(a *attempt) bool {
	reads := func(other *attempt) bool { return other.calls[0].Shared && other.calls[0].Owner == a.calls[0].Owner }
	return !a.calls[0].Shared && slices.ContainsFunc(slices.Collect(maps.Values(s.attempts)), reads)
}

// joins is from when on an ask for a writer's hold may count. On etcd each waiter makes its hold itself. So an ask that
// comes after a release joins a reader of its owner that waited then and has not made its hold yet: both are granted
// before the next reader, as if the ask had come before the release.
func (s *script) joins(c *request) (from moment) {
	from = c.Call
	if !s.e.Etcd || c.Shared {
		return from
	}
	for _, other := range s.attempts {
		if first := other.calls[0]; first.Owner == c.Owner && first.Shared {
			from = min(from, other.waitedAt(c.Call))
		}
	}
	return from
}

// waitedAt is when the last call before now was sent that found the id waiting; never if it is known to have been granted
// by now.
func (a *attempt) waitedAt(now moment) (asked moment) {
	asked = never
	for _, c := range a.calls {
		switch {
		case c.Op != opAcquire || c.Call >= now:
		case c.Outcome == queued:
			asked = c.Call
		case c.Outcome == held && c.Return < now:
			return never
		}
	}
	if slices.ContainsFunc(a.events, func(r record) bool { return r.Call < now }) {
		return never
	}
	return asked
}

// call is what the model is told of c.
func (s *script) call(a *attempt, c *request) *model.Call {
	return &model.Call{
		Op: model.Op(c.Op), ID: a.id, Owner: s.number(c.Owner), Shared: c.Shared, Queue: c.Queue,
		Bury:    c.Bury && c.Outcome != unknown,
		Outcome: model.Outcome(c.Outcome), Token: c.Token, Holds: c.Holds, Position: c.Position,
		Promise: s.promise(a),
	}
}

// promise is the one token that an id was granted; 0 if it may have had another
// before that nobody heard of, because all that it had may have ended meanwhile.
func (s *script) promise(a *attempt) uint64 {
	token, several := a.token()
	if several || len(s.e.Lossy) > 0 {
		return 0
	}
	for i, c := range a.calls {
		if c.Op != opAcquire || c.Outcome == held {
			continue
		}
		known := never
		for _, later := range a.calls[i+1:] {
			if later.gives() {
				known = later.Return
				break
			}
		}
		for _, r := range a.events {
			known = min(known, r.Call)
		}
		if known > s.expires(c) {
			return 0
		}
	}
	return token
}

// keeps: the i-th call is the renewal of a hold that is still there when it is
// released.
func (s *script) keeps(a *attempt, i int) bool {
	if a.calls[i].Outcome != done || s.promise(a) == 0 {
		return false
	}
	for _, c := range a.calls[i+1:] {
		if c.Op == opAcquire || c.Outcome == lost {
			return false
		}
		if c.Op == opRelease && c.Outcome == done {
			return true
		}
	}
	return false
}

// repeats: the i-th call, an ask of unknown outcome, follows upon another. Of
// several in a row any may be the one that was applied.
func (a *attempt) repeats(i int) bool {
	return i > 0 && a.calls[i-1].Op == opAcquire && !a.calls[i-1].certain()
}

// there: when the i-th call, an ask of unknown outcome, may have been applied, its
// id had a place or a hold for certain.
func (s *script) there(a *attempt, i int) bool {
	for _, c := range slices.Backward(a.calls[:i]) {
		if c.Outcome == lost || c.Op == opRelease {
			return false
		}
		if c.gives() {
			return s.expires(c) >= a.settled(i)
		}
	}
	return false
}

// settled is from when on it makes no difference any more whether the i-th call,
// an ask of unknown outcome, was applied: its id has a place or a hold by another
// one, or was buried.
func (a *attempt) settled(i int) moment {
	for _, c := range a.calls[i+1:] {
		if c.gives() || c.Op == opRelease && c.Outcome != unknown {
			return c.Return
		}
	}
	return never
}

// leave enters a release that may have been applied, and with it the end of the
// lease before it, which comes to the same.
func (s *script) leave(a *attempt, i int, to moment) {
	from := a.calls[i].Call
	if g := a.giver(i); g >= 0 {
		from = min(from, s.expires(a.calls[g]))
	}
	s.add(model.Step{Kind: model.Expires, N: a.calls[i].n, ID: a.id}, from, to)
}

// giver is the last call before the i-th that gave a lease for certain; or -1.
func (a *attempt) giver(i int) int {
	for i--; i >= 0 && !a.calls[i].gives(); i-- {
	}
	return i
}

// gone is when an id that the i-th call, a release, may have removed was gone for
// certain; found, if it was there until a later release.
func (a *attempt) gone(i int) (to moment, found bool) {
	for _, c := range a.calls[i+1:] {
		if c.Op == opRelease && c.Outcome == done {
			return c.Return, true
		}
		if c.Op == opRelease && c.Outcome == lost {
			return c.Return, false
		}
	}
	return never, false
}

// promoted is when the promotion that an event tells of can have been first: after
// the last answer that knows of a smaller token only.
func (a *attempt) promoted(event record) (from moment) {
	from = a.calls[0].Call
	for _, c := range a.calls {
		if c.Op == opAcquire && c.Outcome == queued && c.Token < event.Token && c.Call < event.Call {
			from = max(from, c.Call)
		}
	}
	return from
}

// Redis looks at each access what has expired. A server's clock may differ from
// that of the machine in the meaning of a second by next to nothing.
const slack = 50 * time.Millisecond

// expiry enters the ghost that ends what the i-th call gave, unless it is known
// that the id was still there later.
func (s *script) expiry(a *attempt, i int) {
	c := a.calls[i]
	if c.certain() && a.leaves(i) {
		return
	}
	from, to := s.expires(c), never
	latest := never
	if _, killed := s.e.Killed[a.worker]; !killed && !s.e.Etcd && !s.e.Longer && len(s.e.Lossy) == 0 && c.certain() {
		latest = c.Return.plus(max(s.e.TTL, 2*c.WaitTTL) + slack) // a place may be promoted at its very end
	}
	for _, later := range a.calls[i+1:] {
		if !later.certain() {
			latest = never // it may have been made longer
			continue
		}
		there := later.Outcome == done
		if there && later.Call <= latest && !a.asks(i, from) {
			return
		}
		if there || later.gives() || later.Outcome == lost {
			to = later.Return
			break
		}
	}
	to = min(to, latest)
	if from <= to {
		s.doubt(model.Step{Kind: model.Expires, N: c.n, ID: a.id}, from, to, !c.certain() && a.giver(i) >= 0)
	}
}

// leaves: what the i-th call gave is the last that is given for certain before a
// release of unknown outcome, which is entered with its end.
func (a *attempt) leaves(i int) bool {
	for u, c := range a.calls {
		if c.Op == opRelease && c.Outcome == unknown {
			_, found := a.gone(u)
			return !found && a.giver(u) == i
		}
	}
	return false
}

// asks: after the i-th call there is an ask of this id that may have been applied
// after a moment, and so may have brought it back.
func (a *attempt) asks(i int, from moment) bool {
	return slices.ContainsFunc(a.calls[i+1:], func(c *request) bool {
		return c.Op == opAcquire && (c.gives() || !c.certain()) && (c.Return > from || !c.certain())
	})
}

// expires is when the lease that a call gave can have ended first, at a server
// that counts in milliseconds.
func (s *script) expires(c *request) moment {
	lease := c.WaitTTL
	if c.Op == opRenew || c.Outcome == held {
		lease = c.TTL
	}
	ends := c.Call.plus(lease - rounding)
	for _, span := range s.e.Lossy {
		if c.Call <= span.To && ends >= span.From {
			ends = min(ends, max(c.Call, span.From))
		}
	}
	return max(ends, c.Call)
}
