package zookeeper

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

const (
	// maxTries bounds how often an operation begins again because another one was
	// faster.
	maxTries = 100
)

// operation is what a call does to the record of a name.
type operation struct {
	name string

	// do decides. It may be called several times; the last call counts.
	do func(st *step) error

	isFree bool // it is likely that the name is free
	adds   bool // do may add a hold or a place
}

// step is one try of an operation.
type step struct {
	record *model.Record
	call   model.Call // Now is not later than the leader's clock
	tokens counter    // of call

	// slack is by how much Now may be behind the leader's clock. A lease that is
	// to last for a TTL from the sending of its request gets that and the slack.
	slack time.Duration

	began time.Time     // the moment that Now and slack are of
	ends  time.Duration // when the first entry of the record dies that is alive

	old, next *snapshot // next is nil if nothing changes
	size      int       // of the record as the step found it
	wakes     wakeChanges
}

// final is the token that this step issued, after its write.
func (st *step) final(token uint64) uint64 {
	if st.next == nil {
		return token
	}
	return final(token, st.next.zxid)
}

// update carries out an operation: it reads the record, decides, and writes what
// changed, provided that nothing was written meanwhile. Otherwise it begins again.
// The result is the error of do, or one of the store. It returns when ctx ends;
// what do has written must not be read then, since the operation may go on.
//
// A decision that changes nothing is made on a record that was read during the
// operation. One that changes something may be made on an older one, as the
// transaction compares.
func (s *Store) update(ctx context.Context, op operation) error {
	return s.run(ctx, func() error {
		state, err := s.lockName(ctx, op.name)
		if err != nil {
			return err
		}
		defer s.unlockName(op.name, state)
		return s.try(ctx, state, op)
	})
}

// try is update with the name locked in this handle.
func (s *Store) try(ctx context.Context, state *nameState, op operation) (err error) {
	old := state.known
	state.known = nil // unless this goes well
	busy := state.busy > 0
	switch {
	case busy:
		state.busy--
		old = nil
	case old == nil && op.isFree:
		old = new(snapshot)
	}
	var (
		fresh    bool // old is no older than the operation
		answered bool // the server has answered a write, so that it reads what is as new
		asked    bool // the clock was asked
	)
	for n := range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if old == nil {
			sync := !answered && (n > 0 || !busy)
			if old, err = s.read(s.namePath(op.name), sync); err != nil {
				return err
			}
			fresh = sync || answered
		}
		st, err := s.decide(old)
		if err != nil {
			return err
		}
		answer := op.do(st)
		if !s.changes(st) {
			if fresh && (asked || st.ends > st.call.Now+st.slack) {
				state.keep(old)
				s.forget(&st.wakes)
				return answer
			}
			// What was taken for alive may be dead by now.
			if fresh {
				if err := s.askClock(); err != nil {
					return err
				}
				asked, answered = true, true
			}
			old = nil
			continue
		}
		if err := s.fits(op, st); err != nil {
			return err
		}
		err = s.commit(state, op, st.old, st)
		switch {
		case err == nil && st.late():
			return s.redo(state, op, st)
		case err == nil:
			return answer
		case err != errConflict:
			return err
		}
		old, answered, state.busy = nil, true, busyFor
		if n >= 3 { // several handles are at it
			time.Sleep(mathrand.N(time.Duration(min(n, 10)) * time.Millisecond))
		}
	}
	return errBusy
}

// decide prepares a step on a snapshot.
func (s *Store) decide(old *snapshot) (*step, error) {
	if s.zxid.Load()>>(63-tokenBits) != 0 {
		return nil, fmt.Errorf("%w: zookeeper: there were too many leaders for more tokens", store.ErrRefused)
	}
	for asked := false; ; asked = true {
		p, err := s.present(old.zxid)
		if err != nil {
			return nil, err
		}
		r, now, err := old.at(p)
		if err != nil {
			return nil, err
		}
		// If the leader's clock was set back before the record was written, an older
		// sample of it is too late, and takes live entries for dead.
		if !asked && p.zxid < old.zxid && r.Ends(math.MinInt64) <= now {
			if err := s.askClock(); err != nil {
				return nil, err
			}
			continue
		}
		st := &step{
			record: r, slack: max(p.high-now, 0), began: p.at, ends: r.Ends(now),
			old: old, next: &snapshot{epoch: p.epoch, now: now},
		}
		st.next.body, _ = r.AppendBinary(nil)
		st.size = len(st.next.body)
		st.tokens.last = firstToken(s.zxid.Load()) + tokensPerWrite - 1
		st.call = model.Call{Now: now, Tokens: &st.tokens}
		return st, nil
	}
}

// changes says whether a step has changed its record, and completes st.next.
func (s *Store) changes(st *step) bool {
	before := st.next.body
	st.next.body, _ = st.record.AppendBinary(nil)
	empty := st.record.Empty()
	same := bytes.Equal(before, st.next.body)
	// Deadlines on the clock of another leader are known to this handle alone until
	// they are written.
	moved := st.old.exists() && epochOf(st.old.zxid) != st.next.epoch
	if same && !moved || empty && !st.old.exists() {
		st.next = nil
		return false
	}
	switch {
	case empty:
	case st.old.exists() && !st.old.bare:
		st.next.room = st.old.room
	default:
		st.next.room = rand.Text()[:roomSize]
	}
	asked := st.wakes.deleted // of the request that asks, which may be granted as a waiter
	for _, e := range st.call.Events {
		if !slices.Contains(asked, e.ID) {
			st.wakes.deleted = append(st.wakes.deleted, e.ID)
		}
	}
	return true
}

// commit writes what a step decided, in place of the snapshot that the node has,
// and tells the waiters of this handle. Those of other handles are told by the
// transaction.
func (s *Store) commit(state *nameState, op operation, old *snapshot, st *step) error {
	err := s.write(s.namePath(op.name), old, st.next, &st.wakes)
	var events []store.Event
	for _, e := range st.call.Events {
		events = append(events, store.Event{ID: e.ID, Token: st.final(e.Token), Short: e.Short})
	}
	s.noteWakes(op.name, &st.wakes, events, err)
	if err != nil {
		return err
	}
	if st.next.exists() {
		state.keep(st.next)
	}
	if !old.exists() {
		s.created()
	}
	if st.tokens.ranOut { // whatever waits for a token has the next operation to grant it
		go s.settle(s.ctx, op.name)
	}
	return nil
}

// late says whether an entry that the step took for alive may have died before the
// step was carried out. Nobody else was granted, since the record was as the step
// had it. But the step may have renewed a dead hold, or built on it. A step is late
// as well if the leader's clock has gone forward: its deadlines are too early then.
func (st *step) late() bool {
	age := time.Since(st.began)
	moment := st.call.Now + age
	if st.next.exists() && epochOf(st.next.zxid) == st.next.epoch {
		moment = st.next.written
		if moment > st.call.Now+st.slack+age+age/maxDrift+time.Millisecond {
			return true
		}
	}
	return moment >= st.ends
}

// raise makes the present of a step at least that moment, before the step decides.
func (st *step) raise(moment time.Duration) {
	st.call.Now = max(st.call.Now, moment)
	st.next.now = st.call.Now
	st.ends = st.record.Ends(st.call.Now)
}

// redo decides a late step again, on the record that it was decided on, and
// writes that in place of what the step wrote. If it cannot, the outcome is
// unknown. The grants of waiters stay, since they have been told.
func (s *Store) redo(state *nameState, op operation, late *step) error {
	if !late.next.exists() || len(late.call.Events) > 0 {
		return errLate
	}
	st, err := s.decide(late.old)
	if err != nil {
		return errLate
	}
	if st.next.epoch == epochOf(late.next.zxid) {
		st.raise(late.next.written)
	}
	next := st.next
	answer := op.do(st)
	s.changes(st)
	if st.next = next; !st.record.Empty() {
		next.room = late.next.room
	}
	if s.fits(op, st) != nil || s.commit(state, op, late.next, st) != nil || st.late() {
		return errLate
	}
	return answer
}
