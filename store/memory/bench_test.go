package memory_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store/memory"
)

// BenchmarkAcquireRelease is one Acquire and one Release of a free name.
func BenchmarkAcquireRelease(b *testing.B) {
	s := memory.New()
	req := request("free", 1, time.Minute)
	ref := locktest.RefTo(req)
	b.ReportAllocs()
	for b.Loop() {
		if g, err := s.Acquire(b.Context(), req); err != nil || !g.Held {
			b.Fatalf("Acquire: got %+v, %v", g, err)
		}
		if err := s.Release(b.Context(), ref); err != nil {
			b.Fatalf("Release: got %v", err)
		}
	}
}

// TestFreeNameAllocatesNothing: a free name is acquired and released without
// an allocation, once the store has seen a name.
func TestFreeNameAllocatesNothing(t *testing.T) {
	if underRace {
		return // the race detector allocates
	}
	s := memory.New()
	req := request("free", 1, time.Minute)
	ctx, ref := t.Context(), locktest.RefTo(req)
	if n := testing.AllocsPerRun(1000, func() {
		s.Acquire(ctx, req)
		s.Release(ctx, ref)
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
	if state, err := s.Inspect(ctx, req.Name); err != nil || len(state.Holders) > 0 || state.Token < 1000 {
		t.Errorf("Inspect: got %+v, %v, want a free name with a token of 1000 or more", state, err)
	}
}
