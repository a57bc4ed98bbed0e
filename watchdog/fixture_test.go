package watchdog

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain fails the run if a goroutine of this package or of the wheel is
// left when all tests are over.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := leftGoroutines(5 * time.Second); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// leftGoroutines returns the stacks of goroutines of this package that do not
// end within patience.
func leftGoroutines(patience time.Duration) string {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(patience); ; <-poll.C {
		left := ownGoroutines()
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}

// ownGoroutines returns the stacks of goroutines that run code of this package
// or of the wheel, but for the tests themselves.
func ownGoroutines() []string {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	var own []string
	for _, s := range stacks[1:] { // the first is this goroutine
		if strings.Contains(s, "testing.tRunner(") {
			continue
		}
		if strings.Contains(s, "dlock/watchdog.") || strings.Contains(s, "timingwheel") {
			own = append(own, s)
		}
	}
	return own
}

// fixture is a watchdog with a store whose replies a test sets, and a record of the
// calls of Renew and Expired.
type fixture struct {
	t *testing.T
	w *Watchdog

	mu     sync.Mutex
	reply  func(ctx context.Context, batch []*Lease) []Outcome
	calls  []callSeen
	losses []lossSeen
	flying map[*Lease]bool
}

type callSeen struct {
	at    time.Time
	batch []*Lease
}

type lossSeen struct {
	l     *Lease
	cause Cause
	at    time.Time
}

func newFixture(t *testing.T, cfg Config, newWheel func() wheel) *fixture {
	t.Helper()
	r := &fixture{t: t, reply: renewAll, flying: make(map[*Lease]bool)}
	cfg.Renew, cfg.Expired = r.renew, r.expired
	if newWheel == nil {
		newWheel = newTimingWheel
	}
	w, err := newWatchdog(cfg, newWheel)
	require.NoError(t, err)
	r.w = w
	return r
}

func (r *fixture) renew(ctx context.Context, batch []*Lease) []Outcome {
	r.mu.Lock()
	for _, l := range batch {
		if r.flying[l] {
			r.t.Errorf("two Renew calls at once for one lease")
		}
		r.flying[l] = true
	}
	r.calls = append(r.calls, callSeen{time.Now(), append([]*Lease(nil), batch...)})
	reply := r.reply
	r.mu.Unlock()

	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, l := range batch {
			delete(r.flying, l)
		}
	}()
	return reply(ctx, batch)
}

func (r *fixture) expired(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses = append(r.losses, lossSeen{l, l.Cause(), time.Now()})
}

func (r *fixture) setReply(f func(ctx context.Context, batch []*Lease) []Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reply = f
}

// holdReplies has all calls answer o, but not before the returned function is
// called. Calls ignore their context.
func (r *fixture) holdReplies(o Outcome) (release func()) {
	held := make(chan struct{})
	r.setReply(func(_ context.Context, batch []*Lease) []Outcome {
		<-held
		return always(o)(nil, batch)
	})
	return sync.OnceFunc(func() { close(held) })
}

// lost returns the losses that were reported.
func (r *fixture) lost() []lossSeen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]lossSeen(nil), r.losses...)
}

// renewals returns when l was sent for renewal.
func (r *fixture) renewals(l *Lease) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at []time.Time
	for _, c := range r.calls {
		for _, x := range c.batch {
			if x == l {
				at = append(at, c.at)
			}
		}
	}
	return at
}

func (r *fixture) callCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls)
}

// keep arms l with the given validity, from now.
func (r *fixture) keep(l *Lease, validity time.Duration) {
	r.w.Keep(l, Terms{Deadline: time.Now().Add(validity), Validity: validity})
}

// pass lets d pass in the bubble and waits until all goroutines of it are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func always(o Outcome) func(context.Context, []*Lease) []Outcome {
	return func(_ context.Context, batch []*Lease) []Outcome {
		out := make([]Outcome, len(batch))
		for i := range out {
			out[i] = o
		}
		return out
	}
}

// silent does not answer: the call ends with its context.
func silent(ctx context.Context, _ []*Lease) []Outcome {
	<-ctx.Done()
	return nil
}

// fakeWheel is a wheel on standard timers. A test switches its faults on.
type fakeWheel struct {
	mu     sync.Mutex
	asked  int
	most   time.Duration // longest delay asked for
	silent bool          // never fires
	hasty  bool          // fires at once
	block  chan struct{} // AfterFunc and Stop block until it is closed
	timers []*time.Timer
}

func (f *fakeWheel) AfterFunc(d time.Duration, fn func()) {
	f.mu.Lock()
	f.asked++
	f.most = max(f.most, d)
	block := f.block
	switch {
	case f.hasty:
		go fn()
	case !f.silent && block == nil:
		f.timers = append(f.timers, time.AfterFunc(d, func() {
			f.mu.Lock()
			silent := f.silent
			f.mu.Unlock()
			if !silent {
				fn()
			}
		}))
	}
	f.mu.Unlock()
	if block != nil {
		<-block
	}
}

func (f *fakeWheel) Stop() {
	f.mu.Lock()
	block := f.block
	for _, t := range f.timers {
		t.Stop()
	}
	f.mu.Unlock()
	if block != nil {
		<-block
	}
}

// fakeWheels makes fake wheels and counts them.
type fakeWheels struct {
	mu    sync.Mutex
	setup func(n int, f *fakeWheel)
	made  []*fakeWheel
}

func (s *fakeWheels) make() wheel {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &fakeWheel{}
	if s.setup != nil {
		s.setup(len(s.made), f)
	}
	s.made = append(s.made, f)
	return f
}

// most returns the longest delay that was asked for.
func (s *fakeWheels) most() (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.made {
		f.mu.Lock()
		d = max(d, f.most)
		f.mu.Unlock()
	}
	return d
}

// counts returns how many wheels were made and how often they were asked.
func (s *fakeWheels) counts() (made, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.made {
		f.mu.Lock()
		asked += f.asked
		f.mu.Unlock()
	}
	return len(s.made), asked
}
