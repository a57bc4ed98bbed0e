package watchdog

import (
	"context"
	"expvar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// wallSteps are the steps of the wall clock that are tried, one after another.
var wallSteps = []time.Duration{
	time.Hour, -time.Hour, -time.Hour, time.Hour, 365 * 24 * time.Hour, -2 * 365 * 24 * time.Hour, 365 * 24 * time.Hour,
	300 * time.Millisecond, -300 * time.Millisecond,
}

// wallWheel uses the wall clock as the library does, with a wall clock that can be
// stepped. Its timers expire at wall times, and its own time is the expiry of its
// last firing. A timer that expires before that time fires at once. It sleeps for
// the difference of the times at the moment when it goes to sleep.
type wallWheel struct {
	wall  *wallClock
	asked *atomic.Int64
	wake  chan struct{}
	quit  chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex
	current int64
	pending map[*wallTimer]bool
}

type wallTimer struct {
	expires int64
	f       func()
}

// wallClock is the bubble's clock plus the sum of the steps.
type wallClock struct{ offset atomic.Int64 }

func (c *wallClock) now() int64 { return time.Now().UnixNano() + c.offset.Load() }

func newWallWheel(wall *wallClock, asked *atomic.Int64) *wallWheel {
	w := &wallWheel{
		wall: wall, asked: asked, current: wall.now() / int64(tick) * int64(tick),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), pending: make(map[*wallTimer]bool),
	}
	w.done.Go(w.run)
	return w
}

func (w *wallWheel) AfterFunc(d time.Duration, f func()) {
	w.asked.Add(1)
	expires := (w.wall.now() + int64(d)) / int64(tick) * int64(tick)
	w.mu.Lock()
	defer w.mu.Unlock()
	if expires < w.current+int64(tick) {
		go f()
		return
	}
	w.pending[&wallTimer{expires, f}] = true
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *wallWheel) Stop() {
	close(w.quit)
	w.done.Wait()
}

func (w *wallWheel) run() {
	for {
		w.mu.Lock()
		now, wait := w.wall.now(), time.Duration(1<<62)
		for t := range w.pending {
			if t.expires <= now {
				delete(w.pending, t)
				w.current = max(w.current, t.expires)
				go t.f()
			} else {
				wait = min(wait, time.Duration(t.expires-now))
			}
		}
		w.mu.Unlock()
		sleep := time.NewTimer(wait)
		select {
		case <-sleep.C:
		case <-w.wake:
			sleep.Stop()
		case <-w.quit:
			sleep.Stop()
			return
		}
	}
}

// holdThroughSteps keeps leases armed while step moves the wall clock.
func holdThroughSteps(t *testing.T, newWheel func() wheel, step func(time.Duration), between func()) {
	const validity, pause = 3 * time.Second, 20 * time.Second
	r := newFixture(t, Config{}, newWheel)
	defer r.w.Close()
	held := make([]Lease, 30)
	for i := range held {
		r.keep(&held[i], validity)
		time.Sleep(50 * time.Millisecond)
	}
	pass(pause)
	steady := r.callCount() // in pause, and while the leases were armed
	for i, d := range wallSteps {
		dying := &Lease{} // its renewals fail from just before the step
		r.keep(dying, validity)
		pass(validity)
		r.setReply(func(ctx context.Context, batch []*Lease) []Outcome {
			out := always(Renewed)(ctx, batch)
			for i, l := range batch {
				if l == dying {
					out[i] = Unknown
				}
			}
			return out
		})
		deadline := dying.Deadline()
		var before []time.Time
		for i := range held {
			before = append(before, held[i].Deadline())
		}
		calls := r.callCount()

		step(d)
		for i := range held {
			require.True(t, held[i].Valid())
			require.True(t, held[i].Deadline().Equal(before[i]))
		}
		fresh := &Lease{} // armed after the step
		r.keep(fresh, validity)
		pass(pause)
		between()

		losses := r.lost()
		require.Len(t, losses, i+1, "step %v: false or missing loss", d)
		require.Equal(t, lossSeen{dying, DeadlinePassed, deadline}, losses[i])
		require.True(t, fresh.Valid())
		require.GreaterOrEqual(t, len(r.renewals(fresh)), int(pause/validity)*5/2)
		require.True(t, fresh.Disarm())
		for i := range held {
			require.True(t, held[i].Valid())
		}
		// There are three more leases than before the first step.
		require.Less(t, r.callCount()-calls, steady*2, "step %v: too many renewals", d)
	}
}

// The wall clock of a wheel that works as the library does is stepped.
func TestFault60WallClockSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wall wallClock
		var asked atomic.Int64
		made := 0
		holdThroughSteps(t,
			func() wheel {
				made++
				return newWallWheel(&wall, &asked)
			},
			func(d time.Duration) { wall.offset.Add(int64(d)) },
			func() {
				// At most an entry for each third of the validity, shard and
				// point of the grid. A loop without pause makes far more.
				require.Less(t, asked.Swap(0), int64(21*32*shardCount))
			})
		require.Less(t, made, 2*len(wallSteps))
		require.Greater(t, made, 1, "the steps were noticed")
	})
}

// stepVariable is an expvar that the changed copy of the library publishes. Its
// value is the offset of the copy's wall clock in milliseconds.
const stepVariable = "timingwheel.wallclock.step"

// The real library is used, with a clock that can be stepped. A child process runs
// this test with a copy of the module in which timeToMs adds an offset; all times
// of the library pass through it. An overlay cannot replace the file, because the
// go command refuses one for files of the module cache.
func TestFault60RealWheel(t *testing.T) {
	if step, ok := expvar.Get(stepVariable).(*expvar.Int); ok {
		synctest.Test(t, func(t *testing.T) {
			made := 0
			holdThroughSteps(t,
				func() wheel {
					made++
					return newTimingWheel()
				},
				func(d time.Duration) { step.Add(d.Milliseconds()) },
				func() {})
			require.Greater(t, made, 1, "the steps were noticed")
			require.Less(t, made, 2*len(wallSteps))
		})
		return
	}

	dir := t.TempDir()
	goTool := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("go", args...).CombinedOutput()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
		return strings.TrimSpace(string(out))
	}
	const module = "github.com/RussellLuo/timingwheel"
	library := filepath.Join(dir, "timingwheel")
	require.NoError(t, os.CopyFS(library, os.DirFS(goTool("list", "-m", "-f", "{{.Dir}}", module))))

	utils := filepath.Join(library, "utils.go")
	source, err := os.ReadFile(utils)
	require.NoError(t, err)
	const clock = "return t.UnixNano() / int64(time.Millisecond)"
	require.Equal(t, 1, strings.Count(string(source), clock))
	changed := strings.Replace(string(source), clock, clock+" + step.Value()", 1)
	changed = strings.Replace(changed, "import (", "import (\n\t\"expvar\"", 1)
	changed += "\nvar step = expvar.NewInt(\"" + stepVariable + "\")\n"
	require.NoError(t, os.Chmod(utils, 0o644))
	require.NoError(t, os.WriteFile(utils, []byte(changed), 0o644))

	goMod := goTool("env", "GOMOD")
	modfile := filepath.Join(dir, "go.mod")
	for from, to := range map[string]string{
		goMod: modfile,
		strings.TrimSuffix(goMod, ".mod") + ".sum": filepath.Join(dir, "go.sum"),
	} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, text, 0o644))
	}
	goTool("mod", "edit", "-replace", module+"="+library, modfile)
	out := goTool("test", "-modfile", modfile, "-count=1", "-v", "-run", "^TestFault60RealWheel$", ".")
	require.Contains(t, out, "--- PASS: TestFault60RealWheel")
}
