package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// FuzzMemory makes the same calls on the memory store and on the model of
// this package, which were written apart, and wants the same answers, events
// and states. Two bytes are one call. Fuzz with -fuzzminimizetime=1x: coverage
// in a bubble varies a little, which minimizing takes for progress.
func FuzzMemory(f *testing.F) {
	f.Add([]byte("\x00\x00\x04\x11\x04\x22\x01\x00\x07\x05\x00\x00"))
	f.Add([]byte("\x10\x00\x10\x01\x00\x02\x14\x03\x11\x00\x17\xff\x15\x02\x12\x03"))
	f.Add([]byte("\x10\x00\x04\x11\x10\x20\x02\x00\x07\x1e\x00\x00\x06\x00\x03\x11\x08\x00"))
	f.Fuzz(func(t *testing.T, calls []byte) {
		if len(calls) > 400 {
			return
		}
		synctest.Test(t, func(t *testing.T) { compare(t, calls) })
	})
}

// TestMemoryAgrees is the same with calls drawn at random, for every run of the tests.
func TestMemoryAgrees(t *testing.T) {
	for seed := range 40 {
		calls := make([]byte, 400)
		random := rand.NewChaCha8([32]byte{byte(seed)})
		random.Read(calls)
		synctest.Test(t, func(t *testing.T) { compare(t, calls) })
	}
}

func compare(t *testing.T, calls []byte) {
	stores := []store.Store{memory.New(), newModel("")}
	var events [2][]store.Event
	for i, s := range stores {
		s.Listen(func(e store.Event) { events[i] = append(events[i], e) })
	}
	var history string
	for ; len(calls) >= 2; calls = calls[2:] {
		op, arg := calls[0], calls[1]
		// Few owners and ids, so that calls meet; the fields of an id are a
		// function of it, as the contract has it.
		n := arg & 15
		mode := store.Mode(n & 1)
		ref := store.Ref{Name: "n", Owner: fmt.Sprintf("owner-%d", n>>1&3), ID: fmt.Sprintf("%032x", n), Mode: mode}
		ref.TTL = time.Duration(20+10*n) * time.Millisecond
		var answers [2]string
		for i, s := range stores {
			answers[i] = call(t, s, op, arg, ref)
		}
		if op&15 == 7 {
			time.Sleep(time.Duration(arg) * time.Millisecond)
		}
		history += fmt.Sprintf("%x %x: %s\n", op, arg, answers[0])
		seen := [2]string{fmt.Sprint(events[0]), fmt.Sprint(events[1])}
		events[0], events[1] = nil, nil
		if answers[0] != answers[1] || seen[0] != seen[1] {
			t.Fatalf("%s\nmemory: %s, events %s\nmodel:  %s, events %s", history, answers[0], seen[0], answers[1], seen[1])
		}
	}
}

// call makes one call and puts its answer into words. Retry is left out: the
// contract leaves its stagger to the store.
func call(t *testing.T, s store.Store, op, arg byte, ref store.Ref) string {
	ctx := t.Context()
	switch op & 15 {
	case 0, 1, 2, 4:
		req := store.Request{
			Name: ref.Name, Owner: ref.Owner, ID: ref.ID, Mode: ref.Mode,
			TTL: ref.TTL, WaitTTL: ref.TTL / 2, Queue: op&15 != 2, Tokens: 1 + int(arg&3),
		}
		g, err := s.Acquire(ctx, req)
		g.Retry = 0
		return fmt.Sprintf("Acquire %+v %v", g, err)
	case 3:
		return fmt.Sprintf("Release %v", s.Release(ctx, ref))
	case 5:
		ref.Bury = true
		return fmt.Sprintf("Bury %v", s.Release(ctx, ref))
	case 6:
		return fmt.Sprintf("Renew %v", errors.Join(s.Renew(ctx, []store.Ref{ref})...))
	case 8:
		n, err := s.(store.Breaker).Break(ctx, ref.Name)
		return fmt.Sprintf("Break %v %v", n, err)
	default:
		state, err := s.Inspect(ctx, ref.Name)
		return fmt.Sprintf("Inspect %+v %v", state, err)
	}
}
