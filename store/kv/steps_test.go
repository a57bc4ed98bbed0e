package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// strict is a backend that notes the names of each step, and says what it was told to save.
type strict struct {
	backend
	mu      sync.Mutex
	steps   [][]string
	records []kv.Record // after each f
	limit   uint64      // of tokens, 0: none
	between func()      // between the run of a step that is rolled back and its repetition
}

func (s *strict) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	s.mu.Lock()
	s.steps = append(s.steps, slices.Clone(names))
	between := s.between
	s.mu.Unlock()
	if between != nil {
		s.backend.step(names, f)
		between()
	}
	return s.backend.Update(ctx, names, func(i int, r *kv.Record) {
		r.Limit = s.limit
		f(i, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.records = append(s.records, *r)
	})
}

func (s *strict) Names(ctx context.Context) ([]string, error) {
	names, err := s.backend.Names(ctx)
	slices.Sort(names)
	slices.Reverse(names)
	return append(names, names...), err
}

// repeat has every step run twice, and calls between in the middle.
func (s *strict) repeat(between func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = between
}

func (s *strict) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.steps)
}

// The names of a step are distinct and sorted, as Backend promises: without that two steps
// may wait for each other.
func TestNamesOfAStepAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &strict{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		defer s.Close()
		var refs []store.Ref
		names := []string{"d", "b", "a", "c"}
		for n, name := range names {
			hold(t, s, request(name, n, false))
			refs = append(refs, refOf(request(name, n, false)))
			queue(t, s, request(name, n+10, true)) // the handle looks for them
		}
		for _, err := range s.Renew(t.Context(), append(refs, refs...)) {
			if err != nil {
				t.Errorf("Renew: got %v", err)
			}
		}
		used, err := s.List(t.Context())
		if want := []string{"a", "b", "c", "d"}; err != nil || !slices.Equal(used, want) {
			t.Errorf("List: got %v, %v, want %v", used, err, want)
		}
		for n := range 200 {
			hold(t, s, request(fmt.Sprintf("n%03d", 999-n), n+100, false)) // sweeps begin
		}
		time.Sleep(time.Second)
		synctest.Wait()
		several := 0
		for _, step := range b.steps {
			if !slices.IsSorted(step) || len(slices.Compact(slices.Clone(step))) != len(step) {
				t.Errorf("a step of the names %v", step)
			}
			if len(step) > 1 {
				several++
			}
		}
		if several < 5 {
			t.Errorf("%d steps of several names, want renewals, lists, looks and sweeps among them", several)
		}
	})
}

// A step that is repeated answers what its last run found.
func TestRepeatedStepForgetsItsFirstRun(t *testing.T) {
	b := &strict{backend: backend{table: newTable()}}
	s, other := open(t, b, nil), open(t, &backend{table: b.table}, nil)
	defer s.Close()
	holder := request("n", 1, false)
	hold(t, s, holder)
	b.repeat(func() { other.Break(t.Context(), "n") })
	if errs := s.Renew(t.Context(), []store.Ref{refOf(holder)}); !errors.Is(errs[0], store.ErrLost) {
		t.Errorf("got %v, want ErrLost, as the hold was broken before the step was repeated", errs[0])
	}
}

// One name that cannot be renewed is tried once, since there is nothing to try alone.
func TestRenewalOfOneNameIsOneStep(t *testing.T) {
	b := &strict{backend: backend{table: newTable()}}
	s := open(t, b, nil)
	defer s.Close()
	hold(t, s, request("n", 1, false))
	b.before = func() error { return errCommit }
	before := b.count()
	if errs := s.Renew(t.Context(), []store.Ref{refOf(request("n", 1, false))}); !errors.Is(errs[0], errCommit) {
		t.Errorf("got %v", errs[0])
	}
	if n := b.count() - before; n != 1 {
		t.Errorf("%d steps, want 1", n)
	}
}

// What a step tells its backend: to save a changed value and when it expires, and nothing
// if nothing has changed.
func TestWhatAStepSaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &strict{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		last := func() kv.Record { return b.records[len(b.records)-1] }
		s.Inspect(t.Context(), "n")
		if r := last(); r.Changed || r.Value != nil {
			t.Errorf("a look at a free name: got %+v", r)
		}
		hold(t, s, request("n", 1, false))
		if r := last(); !r.Changed || r.Value == nil || !r.Expires.Equal(time.Now().Add(lease)) {
			t.Errorf("a grant: got %+v, want a value that expires in %v", r, lease)
		}
		s.Inspect(t.Context(), "n")
		if r := last(); r.Changed {
			t.Errorf("a look at a held name changes it: %+v", r)
		}
		s.Release(t.Context(), refOf(request("n", 1, false)))
		if r := last(); !r.Changed || r.Value != nil {
			t.Errorf("the last release: got %+v, want the value deleted", r)
		}
	})
}

// A step with few tokens keeps half of them for other requests that it grants, and issues
// none beyond the limit.
func TestFewTokensInAStep(t *testing.T) {
	for _, test := range []struct{ last, limit, token uint64 }{
		{10, 16, 11}, {10, 12, 11}, {10, 11, 11}, {10, 10, 0}, {10, 9, 0},
	} {
		b := &strict{backend: backend{table: newTable()}, limit: test.limit}
		b.last = test.last
		s := open(t, b, nil)
		req := request("n", 1, false)
		req.Tokens = 50
		g, err := s.Acquire(t.Context(), req)
		left := int(test.limit) - int(test.last)
		if test.token == 0 {
			if g.Held || !errors.Is(err, store.ErrHeld) {
				t.Errorf("%d tokens left: got %+v, %v, want it refused", left, g, err)
			}
		} else if want := 50 - max(left/2, 1); err != nil || g.Token != test.token || g.Short != want {
			t.Errorf("%d tokens left: got %+v, %v, want token %d and %d short", left, g, err, test.token, want)
		}
		s.Close()
	}
}

// A step has too few tokens for all the readers that it lets in. The others are granted by the next steps, at once.
func TestReadersBeyondTheTokensOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{table: newTable()}
		b.limit = true
		s := open(t, notifying{b}, nil)
		defer s.Close()
		events := hear(s)
		writer := request("n", 0, false)
		hold(t, s, writer)
		const readers = 60
		for i := range readers {
			req := request("n", i+1, true)
			req.Mode, req.Tokens = store.Shared, 101
			queue(t, s, req)
		}
		if err := s.Release(t.Context(), refOf(writer)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		granted := make(map[string]bool)
		for _, e := range events() {
			granted[e.ID] = granted[e.ID] || e.Token > 0
		}
		if len(granted) != readers {
			t.Errorf("%d of %d readers are granted", len(granted), readers)
		}
	})
}

// A list whose names cannot be looked at is an error, not an empty list.
func TestListThatFails(t *testing.T) {
	b := &backend{table: newTable()}
	s := open(t, b, nil)
	defer s.Close()
	hold(t, s, request("n", 1, false))
	b.before = func() error { return errCommit }
	if names, err := s.List(t.Context()); !errors.Is(err, errCommit) || names != nil {
		t.Errorf("got %v, %v, want the error of the step", names, err)
	}
}
