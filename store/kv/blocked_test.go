package kv_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// TestRenewalsDoNotShareTheirFate: one name that cannot be changed costs the
// other holds nothing.
func TestRenewalsDoNotShareTheirFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &picky{backend: backend{table: newTable()}, bad: "n0"}
		s := open(t, b, nil)
		var refs []store.Ref
		for n := range 150 {
			req := request(fmt.Sprintf("n%d", n), n+1, false)
			if req.Name != b.bad {
				hold(t, s, req)
			}
			refs = append(refs, refOf(req), refOf(req)) // a hold may be there twice
		}
		synctest.Wait() // a sweep may be under way
		b.steps = 0
		for i, err := range s.Renew(t.Context(), refs) {
			if bad := refs[i].Name == b.bad; bad != (err != nil) || bad && certain(err) {
				t.Errorf("%s: got %v", refs[i].Name, err)
			}
		}
		if b.steps != 2+100 {
			t.Errorf("%d steps for 150 names of which one fails, want 102", b.steps)
		}
		b.bad, b.steps = "", 0
		s.Renew(t.Context(), refs)
		if b.steps != 2 {
			t.Errorf("%d steps for 150 names, want 2", b.steps)
		}
	})
}

// TestRenewalThatBlocks: one name that is locked until the call's ctx ends costs
// the other holds nothing, also those of another step.
func TestRenewalThatBlocks(t *testing.T) {
	for _, names := range []int{3, 250} {
		synctest.Test(t, func(t *testing.T) {
			b := &picky{backend: backend{table: newTable()}}
			b.block("n1")
			s := open(t, b, nil)
			var refs []store.Ref
			for n := range names {
				req := request(fmt.Sprintf("n%d", n), n+1, false)
				if req.Name != "n1" {
					hold(t, s, req)
				}
				refs = append(refs, refOf(req))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for i, err := range s.Renew(ctx, refs) {
				if blocked := refs[i].Name == "n1"; blocked != (err != nil) || blocked && certain(err) {
					t.Errorf("%s of %d: got %v", refs[i].Name, names, err)
				}
			}
		})
	}
}

// TestLookThatBlocks: a name that is locked for an hour hides no event of another one.
func TestLookThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &picky{backend: backend{table: newTable()}}
		polling, s := open(t, b, nil), open(t, &backend{table: b.table}, nil)
		defer polling.Close()
		events := hear(polling)
		for n, name := range []string{"a", "b"} {
			holder, waiter := request(name, 2*n, false), request(name, 2*n+1, true)
			holder.TTL, waiter.WaitTTL = 2*time.Hour, 2*time.Hour
			hold(t, s, holder)
			queue(t, polling, waiter)
		}
		b.block("a")
		time.Sleep(time.Hour)
		s.Release(t.Context(), refOf(request("b", 2, false)))
		time.Sleep(10 * time.Second)
		if got := events(); len(got) != 1 || got[0].ID != request("b", 3, true).ID {
			t.Errorf("got %+v, want the event of the name that is not blocked", got)
		}
	})
}

// hundredLive takes 5,000 locks that nobody releases, a hundred of which live at any time. It
// returns how many values the backend has in the end.
func hundredLive(t *testing.T, s *kv.Store, b *table) int {
	t.Helper()
	for n := range 5000 {
		hold(t, s, request(fmt.Sprintf("dead-%d", n), n, false))
		time.Sleep(lease / 100)
	}
	time.Sleep(time.Minute) // a sweep that is under way ends
	synctest.Wait()
	return len(b.values)
}

// TestSweepThatBlocks: a name that is locked keeps no other expired one from being removed.
func TestSweepThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &picky{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		hold(t, s, request("dead", 0, false))
		b.block("dead")
		if n := hundredLive(t, s, b.table); n > 500 {
			t.Errorf("%d values, a hundred of them alive", n)
		}
	})
}

// silent is a backend whose first answer of Names is lost.
type silent struct {
	backend
	asked atomic.Int32
}

func (b *silent) Names(ctx context.Context) ([]string, error) {
	if b.asked.Add(1) == 1 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.backend.Names(ctx)
}

// TestSweepGoesOnAfterALostAnswer: it is tried again, with later names.
func TestSweepGoesOnAfterALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &silent{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		if n := hundredLive(t, s, b.table); n > 500 {
			t.Errorf("%d values, a hundred of them alive", n)
		}
	})
}

// lateSweeper is a backend whose Sweep ends with its context.
type lateSweeper struct {
	backend
	asked atomic.Int32 // for names
}

func (b *lateSweeper) Sweep(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (b *lateSweeper) Names(ctx context.Context) ([]string, error) {
	b.asked.Add(1)
	return b.backend.Names(ctx)
}

// TestSweepOfAClosedBackend: Close cuts a sweep, which asks the backend for nothing more.
func TestSweepOfAClosedBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &lateSweeper{backend: backend{table: newTable()}}
		s := open(t, b, nil)
		for n := range 64 {
			hold(t, s, request(fmt.Sprint(n), n, false))
		}
		s.Close()
		synctest.Wait()
		if n := b.asked.Load(); n > 0 {
			t.Errorf("asked for names %d times after Close", n)
		}
	})
}

// TestSweepTriesEachAlone: a name that cannot be changed keeps no other one of its step from
// being removed, and those that live count for the next sweep though the step failed.
func TestSweepTriesEachAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &picky{backend: backend{table: newTable()}}
		s := open(t, b, &kv.Options{Batch: 1000})
		grant := func(from, to int) {
			for n := from; n < to; n++ {
				hold(t, s, request(fmt.Sprintf("n%d", n), n, false))
				synctest.Wait()
			}
		}
		grant(0, 64)
		b.bad = "n0"
		time.Sleep(lease)
		grant(64, 128)
		if n := len(b.values); n != 65 {
			t.Errorf("%d values after a sweep, want the 64 that live and the one that cannot be changed", n)
		}
		grant(128, 128+65) // the sweep left 65, so the next one is due
		time.Sleep(lease)
		grant(193, 193+129)
		if n := len(b.values); n != 1+129+129 {
			t.Errorf("%d values before the next sweep is due, want 259", n)
		}
	})
}

// picky is a backend that fails every step with one name in it.
type picky struct {
	backend
	mu     sync.Mutex
	bad    string
	blocks string // a step with this name lasts until its ctx ends
	steps  int
}

func (p *picky) block(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks = name
}

func (p *picky) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	p.mu.Lock()
	p.steps++
	bad, blocks := p.bad, p.blocks
	p.mu.Unlock()
	for _, name := range names {
		switch name {
		case bad:
			return errCommit
		case blocks:
			<-ctx.Done()
			return ctx.Err()
		}
	}
	return p.backend.Update(ctx, names, f)
}
