package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	tortureVar   = "DLOCK_CONFORMANCE_TORTURE" // the folder in which a child writes what it does
	tortureLocks = 3
	torturers    = 4
	tortureKills = 24
	tortureTTL   = 400 * time.Millisecond

	tortureRounds = 5
	fewUses       = 10 // of a lock
)

// Torture runs processes that take and release the same few locks, kills them
// with SIGKILL at random moments and starts others, for some seconds. It fails t
// if two holds that exclude each other overlapped, if a token was not greater
// than those before it, or if a lock is not free soon after the last process has
// died.
//
// It executes the test program again, with a -test.run for t alone, so t must
// call nothing before Torture that may not run in every process. open returns a
// handle on the store. It is called in every process, and first in the one that
// runs the test; where the store is, such as the address of a server that open
// started, reaches the other processes in environment variables that open sets.
func Torture(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	if dir := os.Getenv(tortureVar); dir != "" {
		torturer(t, open(t), dir)
		return
	}
	s := open(t)
	defer s.Close()
	dir := t.TempDir()
	run := randomHex(4)
	names := make([]string, tortureLocks)
	for i := range names {
		names[i] = fmt.Sprintf("dlock-torture:%s:%d", run, i)
	}
	var uses map[string][]use
	for round := range tortureRounds { // a slow machine needs more of them, and longer lives
		kill(t, dir, names, round)
		if uses = readUses(t, dir); enough(uses, names) {
			break
		}
	}
	if !enough(uses, names) {
		t.Errorf("Torture: some of the %d locks were taken less than %d times: the processes are too slow to show anything", len(names), fewUses)
	}
	for _, name := range names {
		judge(t, name, uses[name])
		wantFree(t, s, name)
	}
}

// enough says whether each lock was taken often enough to show something.
func enough(uses map[string][]use, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return len(uses[name]) < fewUses })
}

// kill runs the processes, a new one for each that it kills.
func kill(t *testing.T, dir string, names []string, round int) {
	t.Helper()
	children := make([]*exec.Cmd, torturers)
	start := func(i, n int) {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), tortureVar+"="+dir, fmt.Sprintf("%s_FILE=%d-%d", tortureVar, round, n), tortureVar+"_NAMES="+strings.Join(names, ","))
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatalf("Torture cannot start a process: %v", err)
		}
		children[i] = cmd
	}
	for i := range children {
		start(i, i)
	}
	for n := range tortureKills {
		// Long enough for a process to start and to take some locks.
		time.Sleep(time.Duration(round+1) * (150*time.Millisecond + rand.N(150*time.Millisecond)))
		i := n % len(children)
		children[i].Process.Kill()
		children[i].Wait()
		if n < tortureKills-torturers {
			start(i, n+torturers)
		}
	}
}

// use is what a process did with a lock.
type use struct {
	token    uint64
	shared   bool
	from, to time.Time // it certainly held the lock in between, unless the store was wrong
}

// torturer takes and releases the locks until the process is killed.
func torturer(t *testing.T, s store.Store, dir string) {
	file, err := os.Create(filepath.Join(dir, os.Getenv(tortureVar+"_FILE")))
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(os.Getenv(tortureVar+"_NAMES"), ",")
	events := make(chan store.Event, 100)
	s.Listen(func(e store.Event) { offer(events, e) })
	for i := 0; ; i++ {
		req := store.Request{
			Name: names[rand.IntN(len(names))], Owner: "torture-" + randomHex(8), ID: randomHex(16),
			TTL: tortureTTL, WaitTTL: tortureTTL, Tokens: 1, Queue: true, Label: "torture",
		}
		if rand.IntN(4) == 0 {
			req.Mode = store.Shared
		}
		tortureOnce(s, req, events, file)
	}
}

// tortureOnce takes a lock, writes down what it has, and releases it.
func tortureOnce(s store.Store, req store.Request, events <-chan store.Event, file *os.File) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*tortureTTL)
	defer cancel()
	ref := store.Ref{Name: req.Name, Owner: req.Owner, ID: req.ID, Mode: req.Mode, TTL: tortureTTL, Bury: true}
	defer s.Release(ctx, ref)
	for {
		sent := time.Now()
		g, err := s.Acquire(ctx, req)
		answered := time.Now()
		switch {
		case err == nil && g.Held:
			until := sent.Add(g.TTL)
			if !answered.Before(until) {
				return // it was over when the answer came, and is nobody's
			}
			// A line is one write, so a kill leaves whole lines. The time of the
			// release is not known yet: the lease ends the use if the process dies.
			fmt.Fprintf(file, "%s %d %d %d %d\n", req.Name, req.Mode, g.Token, answered.UnixNano(), until.UnixNano())
			time.Sleep(rand.N(20 * time.Millisecond))
			if leaving := time.Now(); leaving.Before(until) {
				fmt.Fprintf(file, "%s %d %d %d %d\n", req.Name, req.Mode, g.Token, answered.UnixNano(), leaving.UnixNano())
			}
			return
		case err == nil:
			select {
			case <-events:
			case <-time.After(min(g.Retry, tortureTTL/4)):
			}
		case ctx.Err() != nil || errors.Is(err, store.ErrLost):
			return
		}
	}
}

// readUses reads what all processes wrote, by lock. The last line about a token
// counts.
func readUses(t *testing.T, dir string) map[string][]use {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	byToken := make(map[string]map[string]use)
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var name string
			var mode, token uint64
			var from, to int64
			if n, _ := fmt.Sscan(lines.Text(), &name, &mode, &token, &from, &to); n < 5 {
				continue // the process was killed in the middle of it
			}
			if byToken[name] == nil {
				byToken[name] = make(map[string]use)
			}
			byToken[name][fmt.Sprint(path, " ", token)] = use{token, store.Mode(mode) == store.Shared, time.Unix(0, from), time.Unix(0, to)}
		}
		file.Close()
	}
	uses := make(map[string][]use)
	for name, all := range byToken {
		for _, u := range all {
			uses[name] = append(uses[name], u)
		}
		slices.SortFunc(uses[name], func(a, b use) int { return a.from.Compare(b.from) })
	}
	return uses
}

// judge looks for uses of a lock that overlap, and for tokens out of order.
func judge(t *testing.T, name string, uses []use) {
	t.Helper()
	if all := overlaps(uses); len(all) > 0 {
		t.Errorf("%s, %d holds: %s (%d in all)\ncontract: Exclusive excludes every other owner. %s", name, len(uses), all[0], len(all), saysToken)
	}
}

// overlaps says what is wrong with the uses of one lock, in the order in which
// they began.
func overlaps(uses []use) (all []string) {
	for i, u := range uses {
		for _, earlier := range uses[:i] {
			switch {
			case u.shared && earlier.shared:
				if u.token == earlier.token {
					all = append(all, fmt.Sprintf("token %d was given twice", u.token))
				}
			case u.from.Before(earlier.to):
				all = append(all, fmt.Sprintf("the hold with token %d began %v before the one with token %d had ended", u.token, earlier.to.Sub(u.from), earlier.token))
			case u.token <= earlier.token:
				all = append(all, fmt.Sprintf("token %d was given after token %d", u.token, earlier.token))
			}
		}
	}
	return all
}

// wantFree wants that a lock can be taken when the leases of the dead have ended.
func wantFree(t *testing.T, s store.Store, name string) {
	t.Helper()
	deadline := time.Now().Add(20 * tortureTTL)
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(20*tortureTTL)) // for the last calls
	defer cancel()
	req := store.Request{Name: name, Owner: "torture-" + randomHex(8), ID: randomHex(16), TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1}
	for {
		g, err := s.Acquire(ctx, req)
		if err == nil && g.Held {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: not free %v after the last process died: %s", name, 20*tortureTTL, describeGrant(g, err))
			break
		}
		time.Sleep(tortureTTL / 10)
	}
	s.Release(ctx, store.Ref{Name: name, Owner: req.Owner, ID: req.ID, TTL: time.Minute, Bury: true})
}
