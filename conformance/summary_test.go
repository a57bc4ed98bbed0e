package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// TestSummary: the failures that are simplest to understand come first, and one
// line says what was skipped for want of a second handle.
func TestSummary(t *testing.T) {
	type lonely struct{ store.Store }
	s := Suite{New: func(testing.TB) store.Store { return lonely{memory.New()} }}
	p := s.plan(t)
	for _, name := range []string{"contract/calls after Close", "names/odd bytes", "acquire/answer"} {
		p.verdicts.add(named(t, name), outcome{report: "wrong"})
	}
	p.verdicts.add(named(t, "acquire/repeated"), outcome{})
	for _, name := range []string{"handles/close leaves holds", "wakeups/only its handle"} {
		p.verdicts.skip(named(t, name), p.skips(named(t, name)))
	}
	p.verdicts.skip(named(t, "stall/ctx is obeyed"), p.skips(named(t, "stall/ctx is obeyed")))
	got := strings.Join(p.summaryLines(), "\n")
	const want = "2 cases need two handles on the same locks and were skipped for want of Suite.Peer: wakeups/only its handle, handles/close leaves holds\n" +
		"3 cases fail. Simplest first: acquire/answer, names/odd bytes, contract/calls after Close"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTooManyHang: a store that never answers does not cost every case its
// deadline.
func TestTooManyHang(t *testing.T) {
	var v verdicts
	for range hangs {
		if v.tooManyHang() {
			t.Fatal("given up too early")
		}
		v.add(testCase{}, outcome{report: "no end", hung: true})
	}
	if !v.tooManyHang() {
		t.Errorf("%d cases that hang are not too many", hangs)
	}
}

// TestHungIsNotRepeated: a case that did not end is not run again with a longer lease,
// though its leases are over by then.
func TestHungIsNotRepeated(t *testing.T) {
	s := Suite{New: func(testing.TB) store.Store { return memory.New() }, Deadline: time.Second}
	p := s.plan(t)
	runs := 0
	c := testCase{name: "hangs", run: func(h *harness) {
		runs++
		h.mu.Lock()
		h.spoilt = true
		h.mu.Unlock()
		<-h.ctx.Done()
		select {}
	}}
	if got := p.run(t, c); !got.hung || got.report == "" || runs != 1 {
		t.Errorf("%d runs, hung %v, report %q; want one that hangs", runs, got.hung, got.report)
	}
}
