package conformance

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

// harness is one run of one case: its handles, its clock, its trace and its
// verdict. Methods that check something end the calling goroutine when the
// check fails.
type harness struct {
	*plan
	testCase
	name     string        // of the lock, unless a claim says otherwise
	ttl      time.Duration // a lease to wait for
	long     time.Duration // a lease that does not end within the case
	tick     time.Duration // how long before its end a lease is looked at
	lag      time.Duration
	deadline time.Duration
	ctx      context.Context
	cancel   context.CancelFunc

	main, other store.Store
	handles     []store.Store // to be closed
	stops       []func()
	resumes     []func() // of stalls
	tb          testing.TB
	last        callTime // of the latest call

	mu        sync.Mutex
	start     time.Time
	skipped   time.Duration // that Sleep let pass without time.Now noticing
	relied    time.Duration // what is seen after this moment means nothing; 0: no limit
	opened    bool
	skippedBy bool // New skipped the case
	spoilt    bool
	hung      bool // a call did not return
	failure   string
	trace     trace
	owners    map[string]string // by the label that the case uses
	ids       int
	refs      map[string]store.Ref // by id: what may have to be released
	events    []heard
	changed   chan struct{} // closed at each new event
}

// callTime is when a call was sent and when its answer came.
type callTime struct{ sent, answered time.Duration }

// heard is an event and the handle that it came through.
type heard struct {
	store.Event
	via store.Store
	at  time.Duration
}

func newHarness(p *plan, c testCase, ttl time.Duration) *harness {
	h := &harness{plan: p, testCase: c, ttl: ttl, lag: p.Lag, deadline: p.Deadline}
	h.name = "dlock-conformance:" + randomHex(6)
	if h.lag == 0 && !p.Bubble {
		h.lag = ttl / 4
	}
	if h.deadline == 0 {
		h.deadline = 15*time.Second + 50*ttl
	}
	h.long = 2*h.deadline + 20*ttl
	h.tick = ttl / 4
	if p.Bubble {
		// Not a nanosecond: a store may count in milliseconds.
		h.tick = time.Millisecond
	}
	h.owners = make(map[string]string)
	h.refs = make(map[string]store.Ref)
	return h
}

// begin makes what belongs to the bubble, if there is one.
func (h *harness) begin() {
	h.start = time.Now()
	h.changed = make(chan struct{})
	h.ctx, h.cancel = context.WithTimeout(context.Background(), h.deadline)
}

// open runs on the test's own goroutine, because New may end it.
func (h *harness) open(t testing.TB) {
	h.tb = t
	h.main = h.New(t)
	h.other = h.main
	h.handles = append(h.handles, h.main)
	if (h.needs.has(peer) || h.needs.has(twoHandles)) && h.Peer != nil {
		h.other = h.Peer(t, h.main)
		h.handles = append(h.handles, h.other)
	}
	for _, s := range h.handles {
		h.stops = append(h.stops, h.listen(s, nil))
	}
	if h.needs.has(plant) {
		h.Plant(t, h.main, h.name)
	}
	h.mu.Lock()
	h.opened = true
	h.mu.Unlock()
}

// report notes what is wrong; the first failure is the one that counts, for
// the others mostly follow from it.
func (h *harness) report(call, got, want string) {
	now := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spoilt = h.spoilt || h.relied != 0 && now >= h.relied
	if h.failure != "" || h.spoilt {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", h.testCase.name)
	fmt.Fprintf(&b, "    call:     %s\n    got:      %s\n    want:     %s\n    contract: %s\n", call, got, want, h.says)
	fmt.Fprintf(&b, "    trace of %q, TTL %v:\n%s", h.name, h.ttl, h.trace.String())
	h.failure = b.String()
}

// fail reports, lets everything else of the case end and ends the goroutine.
func (h *harness) fail(call, got, want string) {
	h.report(call, got, want)
	h.cancel()
	runtime.Goexit()
}

// failf is fail for a check that is about no single call.
func (h *harness) failf(want, got string, args ...any) {
	h.fail("(what the calls together show)", fmt.Sprintf(got, args...), want)
}

func (h *harness) outcome() (got outcome, spoilt bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.skippedBy {
		got.skipped = "Suite.New skipped the case"
	}
	got.report, got.hung = h.failure, h.hung
	if h.spoilt && got.report == "" {
		got.report = fmt.Sprintf("%s: the machine is too slow to tell, even with a TTL of %v", h.testCase.name, h.ttl)
	}
	return got, h.spoilt
}

// now is the time since the start, as the store should see it pass.
func (h *harness) now() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.start) + h.skipped
}

// sleep lets d pass.
func (h *harness) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	before := time.Now()
	h.Sleep(d)
	h.mu.Lock()
	h.skipped += max(0, d-time.Since(before))
	h.mu.Unlock()
}

// before waits until just before what lasts d from the call s can end, and
// makes the case repeat if what it sees from now on comes too late.
func (h *harness) before(s callTime, d time.Duration) {
	h.inTime()
	h.sleep(s.sent + d - h.tick - h.now())
	h.setRelied(s.sent + d)
}

// rely says that the checks from now on need what lasts d from the call s.
func (h *harness) rely(s callTime, d time.Duration) {
	h.inTime()
	h.setRelied(s.sent + d)
}

// setRelied sets the moment after which nothing seen means anything. In a
// bubble calls take no time, so there being late is the store's fault.
func (h *harness) setRelied(moment time.Duration) {
	if h.Bubble {
		return
	}
	h.mu.Lock()
	h.relied = moment
	h.mu.Unlock()
}

// inTime ends an attempt whose earlier calls were answered too late to mean
// what the case takes them to mean.
func (h *harness) inTime() {
	now := h.now()
	h.mu.Lock()
	late := h.relied != 0 && now >= h.relied
	h.spoilt = h.spoilt || late
	h.mu.Unlock()
	if late {
		h.cancel()
		runtime.Goexit()
	}
}

// after waits until what lasts d from the call s has certainly ended.
func (h *harness) after(s callTime, d time.Duration) {
	h.inTime()
	h.sleep(s.answered + d + h.lag - h.now())
	h.setRelied(0)
}

// owner returns the owner that a label stands for in this case. A printable
// label without quotes stays readable in store.Short.
func (h *harness) owner(label string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners[label] == "" {
		h.owners[label] = label + "-" + randomHex(12)
	}
	return h.owners[label]
}

// id returns a new id, numbered so that traces can be read.
func (h *harness) id() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids++
	return fmt.Sprintf("%06x", h.ids) + randomHex(13)
}

// rounds is how often a case repeats something.
func (h *harness) rounds(n int) int {
	if h.quick {
		return max(4, n/10)
	}
	return n
}

// taken lists what may still be there.
func (h *harness) taken() (refs []store.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ref := range h.refs {
		refs = append(refs, ref)
	}
	return refs
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (h *harness) setHung() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hung = true
}

func isLost(err error) bool { return errors.Is(err, store.ErrLost) }

// stopIfFailed ends the case when one of its goroutines has failed.
func (h *harness) stopIfFailed() {
	h.mu.Lock()
	over := h.failure != "" || h.spoilt
	h.mu.Unlock()
	if over {
		runtime.Goexit()
	}
}
