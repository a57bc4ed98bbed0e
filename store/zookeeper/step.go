package zookeeper

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// maxTries bounds how often an operation begins again because another one was
// faster.
const maxTries = 100

// operation is what a call does to the record of a name.
type operation struct {
	name string

	// do decides. It may be called several times; the last call counts.
	do func(st *step) error

	acquires bool // do may add a hold or a place, and most likely the name is free
}

// step is one try of an operation.
type step struct {
	record *model.Record
	call   model.Call // Now is not later than the leader's clock, unless that was set back after the record was written
	tokens counter    // of call

	// slack is by how much Now may be behind the leader's clock. A lease that is
	// to last for a TTL from the sending of its request gets that and the slack.
	slack time.Duration

	low   time.Duration // the leader's clock at least, by its answers alone
	began time.Time     // the moment that low, Now and slack are of
	ends  time.Duration // when the first entry of the record dies that is alive

	old, next *snapshot // next is nil if nothing changes
	size      int       // of the record as the step found it
}

// final is the token that this step issued, after its write.
func (st *step) final(token uint64) uint64 {
	if st.next == nil {
		return token
	}
	return final(token, st.next.zxid)
}

// room is that of the node after the step.
func (st *step) room() string {
	if st.next == nil {
		return st.old.room
	}
	return st.next.room
}

// update carries out an operation: it reads the record, decides, and writes what
// changed, provided that nothing was written meanwhile. Otherwise it begins again.
// last is the step that counts, and err that of do. Without a step the error is one of
// the store, and the operation may go on: what do has written must not be read then.
//
// A decision that changes nothing is made on a record that was read during the
// operation. One that changes something may be made on an older one, as the
// transaction compares.
func (s *Store) update(ctx context.Context, op operation) (last *step, err error) {
	return run(ctx, s, func() (*step, error) {
		state, err := s.lockName(ctx, op.name)
		if err != nil {
			return nil, err
		}
		defer s.unlockName(op.name, state)
		return s.try(ctx, state, op)
	})
}

// try is update with the name locked in this handle.
func (s *Store) try(ctx context.Context, state *nameState, op operation) (*step, error) {
	path := s.namePath(op.name)
	known, base := state.guess(op)
	var (
		fresh   bool      // base is no older than the operation
		refused *snapshot // the latest on which a transaction failed
		late    *snapshot // what a late step has written in place of base
	)
	for n := range maxTries {
		if base == nil {
			var err error
			// After a transaction that failed, the server reads what is as new.
			fresh = refused != nil || n > 0 || !state.contended
			if base, err = s.read(path, fresh && refused == nil); err != nil {
				return nil, err
			}
			if refused != nil && refused.exists() && refused.zxid == base.zxid {
				return nil, errForeignChild
			}
			state.contended = state.contended && (known == nil || known.zxid != base.zxid)
		}
		st, err := s.decide(base)
		if err != nil {
			return nil, err
		}
		answer := op.do(st)
		switch {
		case st.changes(late):
		case fresh:
			state.keep(base)
			return st, answer
		default:
			base = nil
			continue
		}
		if err = ctx.Err(); err == nil { // nothing is written for a caller that has left during a read
			err = s.commit(state, op, path, st)
		}
		switch {
		case err != nil && late != nil: // what the late step has written stands, so this refuses nothing
			return nil, fmt.Errorf("%w; then: %v", errLate, err)
		case err == errConflict:
			refused, base, state.contended = base, nil, true
			backOff(n)
		case err != nil:
			return nil, err
		case !st.late():
			return st, answer
		case !st.next.exists() || len(st.call.Events) > 0: // waiters have been told
			return nil, errLate
		default:
			late = st.next
		}
	}
	return nil, errBusy
}

// backOff waits before an operation begins again if several handles are at it.
func backOff(tries int) {
	if tries >= 3 {
		time.Sleep(mathrand.N(time.Duration(min(tries, 10)) * time.Millisecond))
	}
}

// decide prepares a step on a snapshot.
func (s *Store) decide(old *snapshot) (*step, error) {
	p, err := s.present(old.zxid)
	if err != nil {
		return nil, err
	}
	r, now, err := old.at(p)
	// If the leader's clock was set back before the record was written, an older
	// answer of it is too late, and takes live entries for dead.
	if err == nil && p.zxid < old.zxid && r.Ends(math.MinInt64) <= now {
		if err = s.askClock(); err == nil {
			p, _ = s.clock.now(0)
			r, now, err = old.at(p)
		}
	}
	if err != nil {
		return nil, err
	}
	seen := max(p.zxid, old.zxid)
	if seen>>(63-tokenBits) != 0 {
		return nil, fmt.Errorf("%w: zookeeper: there were too many leaders for more tokens", store.ErrRefused)
	}
	st := &step{
		record: r, low: p.low, slack: max(p.high-now, 0), began: p.at, ends: r.Ends(now),
		old: old, next: &snapshot{epoch: p.epoch, now: now},
	}
	old.queue = r.Queued()
	st.next.body, _ = r.AppendBinary(nil)
	st.size = len(st.next.body)
	st.tokens.last = firstToken(seen) + tokensPerWrite - 1
	st.call = model.Call{Now: now, Tokens: &st.tokens}
	return st, nil
}

// changes says whether there is something to write, and completes st.next. late is
// what an earlier step of the operation has written, or nil: this one replaces it.
func (st *step) changes(late *snapshot) bool {
	before := st.next.body
	st.next.body, _ = st.record.AppendBinary(nil)
	same := bytes.Equal(before, st.next.body)
	// Deadlines on the clock of another leader are known to this handle alone until
	// they are written.
	moved := st.old.exists() && epochOf(st.old.zxid) != st.next.epoch
	if late != nil {
		st.old = late
	} else if same && !moved || st.record.Empty() && !st.old.exists() {
		st.next = nil
		return false
	}
	st.next.queue = st.record.Queued()
	switch {
	case st.record.Empty():
	case st.old.exists():
		st.next.room = st.old.room
	default:
		st.next.room = rand.Text()[:roomSize]
	}
	return true
}

// commit writes what a step decided, and tells the waiters of this handle. The
// transaction tells those of other handles.
func (s *Store) commit(state *nameState, op operation, path string, st *step) error {
	grows := op.acquires && len(st.call.Events) == 0 && len(st.next.body) > st.size
	if err := fits(path, st.old, st.next, grows); err != nil {
		return err
	}
	if err := s.write(path, st.old, st.next); err != nil {
		return err
	}
	for _, e := range st.call.Events {
		if _, waited := s.ended(e.ID); waited {
			s.sinks.Push(store.Event{ID: e.ID, Token: st.final(e.Token), Short: e.Short})
		}
	}
	state.keep(st.next)
	if !st.old.exists() {
		s.created()
	}
	if st.tokens.ranOut { // whatever waits for a token has the next operation to grant it
		go s.settle(s.ctx, op.name)
	}
	return nil
}

// late says whether an entry that the step took for alive may have died before the
// step was carried out. No other owner was granted, since the record was as the step
// had it. But the step may have renewed a dead hold, or built on it. A step is late
// as well if the leader's clock was set meanwhile, or before. If it has gone forward, the
// deadlines of the step are too early. If it has gone back, live entries passed for dead.
func (st *step) late() bool {
	age := time.Since(st.began)
	moment := st.call.Now + age
	if st.next.exists() && epochOf(st.next.zxid) == st.next.epoch {
		moment = st.next.written
		if moment > st.call.Now+st.slack+age+age/maxDrift+time.Millisecond || moment+time.Millisecond < st.low {
			return true
		}
	}
	return moment >= st.ends
}
