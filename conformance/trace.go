package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/store"
)

// traced is how much of a trace is kept: the end explains a failure.
const traced = 200

// trace is what a case did and saw, in order. Lines are made when somebody
// reads them, since cases with many calls make many and mostly pass.
type trace struct {
	lines   []*line
	dropped int
}

type line struct {
	at, until time.Duration
	done      bool
	text      func() string
	result    func() string
}

func (t *trace) add(l *line) {
	if len(t.lines) == 2*traced {
		t.dropped += traced
		t.lines = append(t.lines[:0], t.lines[traced:]...)
	}
	t.lines = append(t.lines, l)
}

func (t *trace) String() string {
	var b strings.Builder
	lines, dropped := t.lines, t.dropped
	if n := len(lines) - traced; n > 0 {
		lines, dropped = lines[n:], dropped+n
	}
	if dropped > 0 {
		fmt.Fprintf(&b, "      (%d earlier lines left out)\n", dropped)
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "      %12v  %s", l.at.Round(time.Microsecond), l.text())
		switch {
		case l.result == nil:
		case !l.done:
			b.WriteString(" -> (no result yet)")
		default:
			fmt.Fprintf(&b, " -> %s", l.result())
			if took := (l.until - l.at).Round(time.Microsecond); took > 0 {
				fmt.Fprintf(&b, " (%v)", took)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// traceCall notes a call before it is sent; the function returned notes its end.
func (h *harness) traceCall(text, result func() string) (end func()) {
	l := &line{at: h.now(), text: text, result: result}
	h.mu.Lock()
	h.trace.add(l)
	h.mu.Unlock()
	return func() {
		now := h.now()
		h.mu.Lock()
		defer h.mu.Unlock()
		l.until, l.done = now, true
		h.last = callTime{l.at, l.until}
	}
}

// notef puts a remark into the trace.
func (h *harness) notef(format string, args ...any) {
	h.traceCall(func() string { return fmt.Sprintf(format, args...) }, nil)
}

func describeRequest(r store.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Acquire(%s id=%s %v", describeOwner(r.Owner), store.Short(r.ID), r.Mode)
	fmt.Fprintf(&b, " TTL=%v", r.TTL)
	if r.Queue {
		fmt.Fprintf(&b, " queue WaitTTL=%v", r.WaitTTL)
	}
	if r.Fixed {
		b.WriteString(" fixed")
	}
	if r.Tokens != 1 {
		fmt.Fprintf(&b, " tokens=%d", r.Tokens)
	}
	if !strings.HasPrefix(r.Name, "dlock-conformance:") {
		fmt.Fprintf(&b, " name=%.40q", r.Name)
	}
	return b.String() + ")"
}

func describeRef(r store.Ref) string {
	return fmt.Sprintf("%s id=%s", describeOwner(r.Owner), store.Short(r.ID))
}

// describeOwner shows the label that the harness put in front.
func describeOwner(owner string) string { return strings.TrimSuffix(store.Short(owner), "-") }

func describeGrant(g store.Grant, err error) string {
	switch {
	case err != nil:
		return describeError(err)
	case g.Held:
		return fmt.Sprintf("held: token=%d short=%d TTL=%v holds=%d", g.Token, g.Short, g.TTL, g.Holds)
	default:
		return fmt.Sprintf("queued: position=%d token=%d retry=%v", g.Position, g.Token, g.Retry)
	}
}

func describeErrors(errs []error) string {
	if len(errs) > 8 {
		return fmt.Sprintf("%d results", len(errs))
	}
	parts := make([]string, len(errs))
	for i, err := range errs {
		parts[i] = describeError(err)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// describeError names the sentinel, for a store may say it in words of its own.
func describeError(err error) string {
	for name, sentinel := range map[string]error{
		"ErrHeld": store.ErrHeld, "ErrUpgrade": store.ErrUpgrade, "ErrLost": store.ErrLost,
		"ErrForeignKey": store.ErrForeignKey, "ErrRefused": store.ErrRefused, "ErrClosed": store.ErrClosed,
	} {
		if errors.Is(err, sentinel) {
			return name
		}
	}
	if err == nil {
		return "nil"
	}
	return fmt.Sprintf("unknown (%v)", err)
}

func describeEntries(entries []store.Entry) string {
	parts := make([]string, len(entries))
	for i, e := range entries {
		parts[i] = fmt.Sprintf("%s id=%s %v", describeOwner(e.Owner), store.Short(e.ID), e.Mode)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
