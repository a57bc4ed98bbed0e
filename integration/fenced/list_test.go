package fenced

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/fence/redisfence"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/redistest"
)

func listKey(lock int) string { return "list " + strconv.Itoa(lock) }

// append adds an element to the list of a lock: it reads the list, works on it
// for up to two leases and writes it. It does not look whether the lock is lost
// meanwhile, as a program should: here the tokens alone must do.
func (w *worker) append(lock int) {
	hold, ok := w.lock(lock)
	if !ok {
		return
	}
	defer hold.Unlock()
	list := redisfence.New(w.data, listKey(lock))
	r := report{Lock: lock, Token: hold.Token(), Outcome: read}

	r.Call = now()
	elements, _, err := list.Get(context.Background(), r.Token)
	r.Return = now()
	switch {
	case errors.Is(err, fence.ErrStale):
		r.Outcome = refused
	case err != nil:
		r.Outcome, r.Error = failed, err.Error()
	}
	w.tell(r)
	if err != nil {
		return
	}

	time.Sleep(rand.N(1 + rand.N(2*w.order.TTL))) // the work

	r.Outcome, r.Element = written, w.element(r.Token)
	r.Call = now()
	err = list.Set(context.Background(), r.Token, elements+r.Element+" ")
	r.Return = now()
	switch {
	case errors.Is(err, fence.ErrStale):
		r.Outcome = refused
	case err != nil:
		r.Outcome, r.Error = unknown, err.Error()
	}
	w.tell(r)
}

// Workers append to lists that check tokens, and again and again one that holds
// a lock is stopped, for up to two leases. Nothing acknowledged is lost.
func TestFencedListLosesNothing(t *testing.T) {
	everywhere(t, size{16, 100, 3 * time.Minute}, size{160, 10_000, 20 * time.Minute}, listLosesNothing)
}

func listLosesNothing(t *testing.T, s size, server *redistest.Server, on *keeper) {
	const workers, ttl = 4, time.Second
	locks, err := stores.Open(on.direct)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	c := newCrew(t)
	var hands []*hand
	for i := range workers {
		hands = append(hands, c.hire(order{Worker: i, Job: "append", Locks: s.locks, Store: on.direct, Data: server.Addr, TTL: ttl}))
	}
	pauses := 0
	for !c.done(s, c.told(refused) > 0) {
		state, err := locks.Inspect(t.Context(), lockName(rand.N(s.locks)))
		if err != nil {
			t.Fatal(err)
		}
		if len(state.Holders) == 0 {
			continue
		}
		holder, err := strconv.Atoi(state.Holders[0].Label)
		if err != nil {
			t.Fatal(err)
		}
		if err := hands[holder].Pause(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ttl/2 + rand.N(3*ttl/2))
		if err := hands[holder].Resume(); err != nil {
			t.Fatal(err)
		}
		pauses++
	}
	dismiss(hands)
	c.log("%d pauses", pauses)
	for lock := range s.locks {
		about := slices.DeleteFunc(slices.Clone(c.reports), func(r report) bool { return r.Lock != lock })
		checkList(t, lock, about, server.MustDo("HGET", listKey(lock), "value"))
		checkOrder(t, lock, about)
	}
}

// checkList asserts that the list has each element that was acknowledged once,
// none whose write was refused, and all in the order of their tokens.
func checkList(t *testing.T, lock int, reports []report, list string) {
	t.Helper()
	times := map[string]int{}
	last := uint64(0)
	for element := range strings.FieldsSeq(list) {
		times[element]++
		digits, _, _ := strings.Cut(element, "/")
		token, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			t.Errorf("list %d: element %q: %v", lock, element, err)
		}
		if token <= last {
			t.Errorf("list %d: element %s was written after one with token %d", lock, element, last)
		}
		last = token
	}
	lost := 0
	for _, r := range reports {
		switch n := times[r.Element]; {
		case r.Outcome == written && n == 0:
			lost++
		case r.Outcome == refused && r.Element != "" && n > 0:
			t.Errorf("list %d: %s was refused and is there", lock, r.Element)
		case n > 1:
			t.Errorf("list %d: %s is there %d times", lock, r.Element, n)
		}
	}
	if lost > 0 {
		t.Errorf("list %d: %d acknowledged elements are lost", lock, lost)
	}
}

// checkOrder asserts that no access was admitted with a lower token than one that
// had returned before it began.
func checkOrder(t *testing.T, lock int, reports []report) {
	t.Helper()
	admitted := slices.DeleteFunc(reports, func(r report) bool { return r.Outcome != read && r.Outcome != written })
	returned := slices.SortedFunc(slices.Values(admitted), func(a, b report) int { return cmp.Compare(a.Return, b.Return) })
	begun := slices.SortedFunc(slices.Values(admitted), func(a, b report) int { return cmp.Compare(a.Call, b.Call) })
	highest := uint64(0)
	for _, r := range begun {
		for len(returned) > 0 && returned[0].Return < r.Call {
			highest = max(highest, returned[0].Token)
			returned = returned[1:]
		}
		if r.Token < highest {
			t.Errorf("list %d: worker %d was admitted (%s) with token %d after %d", lock, r.Worker, r.Outcome, r.Token, highest)
		}
	}
}
