package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock"
)

var runCommand = command{
	name: "run", args: "NAME [--] COMMAND [ARGUMENT...]", short: "run a command while holding a lock",
	long: `Takes the lock NAME, runs the command, and gives the lock back when the command has ended. Its
exit status is that of the command. SIGTERM and other signals go to the command.

If the lease cannot be renewed, the command is ended while it still lasts: SIGTERM --grace
before its end, SIGKILL a moment before its end. If the lock is gone (it was broken, or the
store has lost it), the command is killed at once.

The command gets DLOCK_TOKEN, the fencing token, and DLOCK_OWNER. A dlock run inside it that
takes the same name re-enters.

  dlock run --try nightly-report -- ./report.sh
  dlock run --wait 30s --ttl 10s deploy/web ./deploy.sh --fast
`,
	raw: true,
	setup: func(p *Program, f *flag.FlagSet) action {
		r := &run{p: p, flags: f, store: p.storeFlag(f)}
		f.BoolVar(&r.try, "try", false, "do not wait: exit with 124 if the lock is held")
		f.DurationVar(&r.wait, "wait", 0, "wait for at most this `duration`, then exit with 124 (default for ever)")
		f.BoolVar(&r.shared, "shared", false, "take the reader's lock: it excludes writers only")
		f.DurationVar(&r.ttl, "ttl", 30*time.Second, "lease `duration`: how long the lock outlives a machine that dies")
		f.DurationVar(&r.grace, "grace", 0, "`duration` between SIGTERM and the end of the lease (default a sixth of the lease, at most 5s)")
		f.StringVar(&r.label, "label", "", "`text` that list and inspect show (default host, process and command)")
		f.BoolVar(&r.quiet, "quiet", false, "do not print that the lock is waited for")
		return r.do
	},
}

// run is one dlock run.
type run struct {
	p                  *Program
	flags              *flag.FlagSet
	store              *storeFlag
	try, shared, quiet bool
	wait, ttl, grace   time.Duration
	label              string
	name               string
	command            []string
	interrupt          interrupt // how Ctrl-C has ended the run
}

// killMargin is how long before the end of the lease a command is killed: what the kill
// and the end of the processes may take.
func (r *run) killMargin() time.Duration { return min(r.ttl/20, 500*time.Millisecond) }

func (r *run) check(args []string) error {
	if len(args) < 2 {
		return usage("want a name and a command")
	}
	r.name, r.command = args[0], args[1:]
	if r.grace == 0 {
		r.grace = min(r.ttl/6, 5*time.Second)
	}
	waits := false
	r.flags.Visit(func(f *flag.Flag) { waits = waits || f.Name == "wait" })
	switch {
	case r.try && waits:
		return usage("--try and --wait exclude each other")
	case r.wait < 0:
		return usage("--wait is negative")
	case r.ttl <= 0:
		return usage("--ttl is %v, and it has to be more than 0", r.ttl)
	case r.grace < r.killMargin() || r.grace > r.ttl/2:
		return usage("--grace is %v, and it has to be between %v and half of --ttl", r.grace, r.killMargin())
	}
	r.try = r.try || waits && r.wait == 0 // as when no time is left to wait
	if r.label == "" {
		host, _ := os.Hostname()
		r.label = fmt.Sprintf("%s/%d %s", host, os.Getpid(), filepath.Base(r.command[0]))
		r.label = strings.ToValidUTF8(r.label[:min(len(r.label), 128)], "")
	}
	if !utf8.ValidString(r.label) {
		return usage("--label is not UTF-8")
	}
	return nil
}

func (r *run) do(ctx context.Context, args []string) (int, error) {
	if err := r.check(args); err != nil {
		return 0, err
	}
	owner, err := ownerFor(r.name, r.store.quorum(), r.p.Getenv)
	if err != nil {
		return 0, err
	}
	path, status, err := lookUp(r.command[0])
	if err != nil {
		fmt.Fprintf(r.p.Stderr, "dlock run: %v\n", err)
		return status, nil
	}
	defer func() { r.interrupt.pass() }()
	signals := catchSignals()
	defer signals.stop()
	guard, err := startGuard(r.p.Self) // it gets ready while the lock is waited for
	if err != nil {
		fmt.Fprintf(r.p.Stderr, "dlock run: no guard: %v\n", err)
	}
	defer guard.dismiss()
	watched, unwatch := signals.watch(dlock.WithOwner(ctx, owner))
	client, end, err := r.store.client(watched, &dlock.Options{
		TTL: r.ttl, Label: r.label,
		Logger: slog.New(slog.NewTextHandler(r.p.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	var hold *dlock.Hold
	if err == nil {
		defer end()
		hold, status, err = r.take(watched, client)
	}
	unwatch()
	if by, ok := errors.AsType[interrupted](context.Cause(watched)); ok {
		if hold != nil {
			hold.Unlock() // the logger tells of an error
		}
		if by.Signal == os.Interrupt {
			r.interrupt = interruptedItself
		}
		return exitSignal + int(by.number()), nil
	}
	if hold == nil {
		return status, err
	}
	return r.under(hold, guard, path, signals)
}

// take takes the lock in the time that --wait allows. Without a hold the result is the exit
// status, or an error.
func (r *run) take(ctx context.Context, client *dlock.Client) (*dlock.Hold, int, error) {
	defer r.noteWaiting(ctx, client)()
	if r.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.wait)
		defer cancel()
	}
	hold, err := r.lock(ctx, client)
	switch {
	case err == nil:
		return hold, 0, nil
	case errors.Is(err, dlock.ErrUnavailable):
		return nil, 0, err
	case errors.Is(err, dlock.ErrHeld), errors.Is(err, context.DeadlineExceeded), errors.Is(err, dlock.ErrUpgrade):
		fmt.Fprintf(r.p.Stderr, "dlock run: not run: %v\n", err)
		return nil, exitBusy, nil
	}
	return nil, 0, err
}

func (r *run) lock(ctx context.Context, client *dlock.Client) (*dlock.Hold, error) {
	lock := client.RWMutex(r.name)
	switch {
	case r.shared && r.try:
		return lock.TryRLockContext(ctx)
	case r.shared:
		return lock.RLockContext(ctx)
	case r.try:
		return lock.TryLockContext(ctx)
	}
	return lock.LockContext(ctx)
}

// noteWaiting prints after two seconds which holder the call waits for.
func (r *run) noteWaiting(ctx context.Context, client *dlock.Client) (stop func()) {
	if r.quiet || r.try {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	timer := time.AfterFunc(2*time.Second, func() {
		defer close(done)
		state, err := client.Inspect(ctx, r.name)
		if ctx.Err() != nil || err != nil || len(state.Holders) == 0 {
			return
		}
		fmt.Fprintf(r.p.Stderr, "dlock run: waiting for lock %s, held by %s\n", show(r.name), show(state.Holders[0].Label))
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-done
		}
	}
}

// under runs the command under the hold and gives the lock back.
func (r *run) under(hold *dlock.Hold, guard *guard, path string, signals *signals) (int, error) {
	signals.keepRenewing()
	if err := hold.Err(); err != nil { // this process was stopped for longer than the lease
		hold.Unlock()
		return 0, err
	}
	guard.mayRun(hold.Deadline()) // supervise tells it more
	child, err := startChild(r.p, guard, path, r.command, environment(r.p.Environ(), hold))
	if err != nil {
		hold.Unlock()
		fmt.Fprintf(r.p.Stderr, "dlock run: %v\n", err)
		return exitNotRun, nil
	}
	lost := supervise(hold, child, signals, r.grace, r.killMargin())
	child.end(lost != nil)
	if err := hold.Unlock(); lost == nil && errors.Is(err, dlock.ErrLost) {
		lost = err
	} else if err != nil && lost == nil {
		fmt.Fprintf(r.p.Stderr, "dlock run: the lock is not given back and lasts until its lease ends: %v\n", err)
	}
	if lost != nil {
		fmt.Fprintf(r.p.Stderr, "dlock run: lock %s is lost: %v\n", show(r.name), lost)
		return exitLost, nil
	}
	r.interrupt = child.interrupted()
	return child.status(), nil
}

// interrupt says how Ctrl-C, or another SIGINT, has ended a run.
type interrupt int

const (
	notInterrupted     interrupt = iota
	interruptedItself            // dlock run has got the signal, or a program has sent it to the command
	interruptedCommand           // the terminal has sent it to the command alone
)
