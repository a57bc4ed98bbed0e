package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/model"
)

// errUnderWay: the call was under way when the handle was closed.
var errUnderWay = errors.New("kv: the handle was closed during the call")

// change is what a call does to the record of one name.
type change struct {
	name string

	// do runs inside the backend's step. It may run again, so it overwrites the
	// results of its earlier run. It is not called if the value is foreign.
	do func(r *model.Record, c *model.Call)

	// foreign is set if the value is no record of a known version.
	foreign error

	created bool          // the name had no record before
	issued  bool          // the step gave tokens
	dry     bool          // it had too few for all that could be granted
	events  []model.Event // of the last run
}

// update makes the changes in one step of the backend and then delivers their
// events. The changes have distinct names, in order. It returns when ctx ends,
// even if the backend does not; the changes must not be read then, since the
// step may go on.
func (s *Store) update(ctx context.Context, changes ...*change) error {
	return s.call(ctx, func(ctx context.Context) error { return s.commit(ctx, changes) })
}

// call calls the backend. It returns when ctx ends or the handle is closed, even if the
// backend does not; what do writes must not be read then.
func (s *Store) call(ctx context.Context, do func(context.Context) error) error {
	if s.isClosed() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		defer stop()
		done <- do(ctx)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // both at once: the answer counts
		return err
	default:
	}
	if s.isClosed() {
		return errUnderWay
	}
	return ctx.Err()
}

// commit runs one Update. Events leave after it has returned: before that, the
// grants they tell of may still be undone.
func (s *Store) commit(ctx context.Context, changes []*change) error {
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = c.name
	}
	err := s.backend.Update(ctx, names, func(i int, r *Record) { changes[i].apply(r) })
	var events []model.Event
	var dry []string
	created, issued := 0, false
	for _, c := range changes {
		events = append(events, c.events...)
		if c.created {
			created++
		}
		issued = issued || c.issued
		if c.dry {
			dry = append(dry, c.name)
		}
	}
	switch {
	case err == nil:
		s.route(events, true)
		s.added(created)
		if len(dry) > 0 && issued { // the next step has tokens for more of those that wait
			go s.settle(dry)
		}
	case errors.Is(err, store.ErrRefused):
	default:
		// The step may have been committed. Then these waiters are granted and
		// have no event, so they are told to ask again.
		s.route(events, false)
		err = unknown(err)
	}
	return err
}

// unknown returns err without what a caller would take for a certain refusal.
func unknown(err error) error {
	for _, certain := range []error{store.ErrHeld, store.ErrUpgrade, store.ErrLost, store.ErrForeignKey, store.ErrClosed} {
		if errors.Is(err, certain) {
			return fmt.Errorf("kv: the outcome is unknown: %v", err)
		}
	}
	return err
}

// apply runs the change on a record of the backend.
func (c *change) apply(r *Record) {
	c.foreign, c.events, c.created, c.dry = nil, nil, r.Value == nil, false
	var m model.Record
	if r.Value != nil {
		if c.foreign = m.UnmarshalBinary(r.Value); c.foreign != nil {
			return
		}
	}
	last := r.Last
	call := model.Call{Now: time.Duration(r.Now.UnixNano()), Tokens: tokens{r, &c.dry}}
	c.do(&m, &call)
	c.events, c.issued = call.Events, r.Last > last
	if m.Empty() {
		r.Changed = r.Value != nil
		r.Value = nil
		c.created = false
		return
	}
	value, _ := m.AppendBinary(make([]byte, 0, len(r.Value)+200))
	if r.Changed = !bytes.Equal(value, r.Value); r.Changed {
		r.Value = value
		r.Expires = time.Unix(0, int64(m.Expires()))
	}
}

// tokens is the counter of a record.
type tokens struct {
	*Record
	dry *bool // set when none is left
}

// Issue implements [model.Counter].
func (t tokens) Issue(n int) (first uint64, reserved int) {
	if t.Limit != 0 {
		left := t.Limit - min(t.Record.Last, t.Limit)
		// Half of them stay for requests that are granted in the same step.
		n = int(min(uint64(n), max(left/2, min(left, 1))))
	}
	if n == 0 {
		*t.dry = true
		return 0, 0
	}
	first = t.Record.Last + 1
	t.Record.Last += uint64(n)
	return first, n
}

// Last implements [model.Counter].
func (t tokens) Last() uint64 { return t.Record.Last }
