package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts what happens. It is safe for concurrent use.
type tally struct {
	start time.Time

	mu      sync.Mutex
	orders  struct{ accepted, turnedDown, failed, notServed int }
	bad     int
	waits   []time.Duration // for the outermost lock of each order
	reentry int
	tokens  int
	highest uint64
}

func newTally() *tally { return &tally{start: time.Now()} }

func (t *tally) count(n *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*n++
}

func (t *tally) accepted()   { t.count(&t.orders.accepted) }
func (t *tally) turnedDown() { t.count(&t.orders.turnedDown) }
func (t *tally) failed()     { t.count(&t.orders.failed) }
func (t *tally) notServed()  { t.count(&t.orders.notServed) }
func (t *tally) badLine()    { t.count(&t.bad) }

func (t *tally) waited(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits = append(t.waits, d)
}

// locked notes an innermost lock: its token, and how deep it is nested.
func (t *tally) locked(token uint64, depth int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reentry += depth - 1
	t.tokens++
	t.highest = max(t.highest, token)
}

// unserved reports whether some of the input was not turned into an answer.
func (t *tally) unserved() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bad+t.orders.failed+t.orders.notServed > 0
}

func (t *tally) read() int {
	o := t.orders
	return o.accepted + o.turnedDown + o.failed + o.notServed
}

// summarize prints the results, one figure a line, and the verdict.
func (t *tally) summarize(w io.Writer, cfg config, b books) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	scheme, _, _ := strings.Cut(cfg.store, "://")
	locks := fmt.Sprintf("%s://, %d workers", scheme, cfg.workers)
	if cfg.unsafe {
		locks = fmt.Sprintf("none (-unsafe), %d workers", cfg.workers)
	}
	var s strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&s, "%-16s%s\n", label, fmt.Sprintf(format, args...))
	}
	line("locks", "%s", locks)
	line("time", "%v", show(time.Since(t.start)))
	line("orders", "%d", t.read())
	line("  accepted", "%d", t.orders.accepted)
	line("  turned down", "%d", t.orders.turnedDown)
	line("  failed", "%d", t.orders.failed)
	if t.orders.notServed > 0 {
		line("  not served", "%d", t.orders.notServed)
	}
	line("bad lines", "%d", t.bad)
	if !cfg.unsafe {
		slices.Sort(t.waits)
		line("waits", "%d, p50 %v, p99 %v", len(t.waits), show(percentile(t.waits, 50)), show(percentile(t.waits, 99)))
		line("re-entries", "%d", t.reentry)
		line("tokens", "%d, highest %d", t.tokens, t.highest)
	}
	line("units sold", "%d of %d", b.sold, b.initial)
	line("oversold", "%d", b.oversold)
	s.WriteString("\n" + verdict(cfg.unsafe, b.oversold) + "\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// verdict says what the figures mean.
func verdict(unsafe bool, oversold int) string {
	result := "OK: nothing oversold"
	if oversold > 0 {
		result = fmt.Sprintf("WRONG: %d units were sold that do not exist", oversold)
	}
	if unsafe {
		result += "\nThis run took no locks. It is faster because no order waits for another one of the same article;" +
			"\nfor the same reason two orders can sell the same unit."
	}
	return result
}

// percentile of a sorted list, by nearest rank.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

// show rounds to three digits or so.
func show(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}
