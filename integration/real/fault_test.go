package real

import (
	"slices"
	"time"
)

// kind is a kind of fault.
type kind struct {
	name  string
	on    []string // deployments; nil: all
	needs needs

	// aside: it happens to workers or to wires and gives the servers no orders, so
	// it goes together with one of another kind, that is not aside.
	aside bool
	// loses: the store may lose holds, or end them before their time. Exclusion is
	// not judged while it lasts, nor of holds from before.
	loses bool
	// slow: it makes a difference to long holds only, so there have to be some.
	slow bool
	// moves: another server is the master afterwards. Clients may go on with the old
	// one for a while, so exclusion is not judged until the end.
	moves bool
	// doubles: calls arrive twice.
	doubles bool
	// zombie: when it is over, a leader that does not know yet that it was replaced
	// may end leases that the new one has renewed (etcd-io/etcd issues 12528 and
	// 15247), so that what is lost then is the store's loss.
	zombie bool
	// prolongs: after a change of the leader holds and places last as long as they had
	// left before it, so that nothing is known of when they have ended at the latest.
	prolongs bool
	// forgets: the store begins its tokens anew.
	forgets bool
	// lingers is how much longer than else something may be left at the store.
	lingers time.Duration

	make func(h *history) trouble
}

// trouble is one fault of a history. It is run by the driver: begin, tick again
// and again for as long as it lasts, end. Any of them may be nil.
type trouble struct {
	lasts            time.Duration
	begin, tick, end func()
	// bit reports, when the history is over, whether the fault made a difference.
	bit func(span) bool
	// never may be nil. No call is like this.
	never func(record) bool
}

// span is a time.
type span struct{ From, To moment }

// kinds are all kinds of faults.
func kinds() []kind {
	return slices.Concat(workerFaults, wireFaults, replyFaults, redisFaults, failoverFaults, quorumFaults, etcdFaults, postgresFaults, zookeeperFaults)
}

// kindsOn are those that a deployment can meet.
func kindsOn(deployment string) []kind {
	return slices.DeleteFunc(kinds(), func(k kind) bool {
		return k.on != nil && !slices.Contains(k.on, deployment)
	})
}

// every returns a tick that calls f at once and then when d has passed.
func every(d time.Duration, f func()) func() {
	var last moment
	return func() {
		if at := now(); last == 0 || at.since(last) >= d {
			last = at
			f()
		}
	}
}

// Evidence that a fault has bitten.

// unknowns is whether a call of the store, by this worker or, for 0, by any, had
// an unknown outcome.
func (h *history) unknowns(worker int) func(span) bool {
	return func(s span) bool {
		return h.saw(s, func(r record) bool {
			return r.isCall() && r.Outcome == unknown && r.Return != 0 && (worker == 0 || r.Worker == worker)
		})
	}
}

// disturbed is whether calls had unknown outcomes, or took longer than d.
func (h *history) disturbed(d time.Duration) func(span) bool {
	return func(s span) bool {
		return h.unknowns(0)(s) || h.saw(s, func(r record) bool {
			return r.isCall() && r.Return != 0 && r.Return.since(r.Call) >= d
		})
	}
}

// losses is whether the store told somebody that a hold or a place is not there.
func (h *history) losses(s span) bool {
	return h.saw(s, func(r record) bool { return r.isCall() && r.Outcome == lost })
}

// reconnected is the event of a store that may have missed others.
func reconnected(r record) bool { return r.Op == opEvent && r.ID == "" }

func (r record) isCall() bool { return r.Op == opAcquire || r.Op == opRenew || r.Op == opRelease }

// saw reports whether there is such a record within the span, or so soon after
// that it can be a consequence.
func (h *history) saw(s span, like func(record) bool) bool {
	after := s.To.plus(h.plan.TTL)
	return slices.ContainsFunc(h.records, func(r record) bool {
		return r.Call <= after && max(r.Call, r.Return) >= s.From && like(r)
	})
}
