package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The workers are this test program.
func TestMain(m *testing.M) {
	beWorker()
	os.Exit(m.Run())
}

const document = "before\n<!-- peers -->\n<!-- /peers -->\nafter\n"

// TestEverything measures, for a moment each, everything with dlock and every
// library once, on real servers, and writes the report. No figure is expected of
// it, but nothing may be lost, fail or be left.
func TestEverything(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	z := sizes{
		time: 50 * time.Millisecond, reps: 1, lease: 3 * time.Second, patient: 4 * time.Second,
		distinct: []int{8}, waiters: 20, held: []int{100}, crowds: []int{3},
	}
	wanted := func(s scenario, library string) bool {
		return library == "dlock" || s.id == "one-name" || s.id == "hands" && library == "pg-notify" || s.id == "distinct-8" && (strings.HasSuffix(library, "pair") || library == "pglock" || library == "advisory" || strings.HasPrefix(library, "zk-") || strings.HasPrefix(library, "redsync-"))
	}
	var b *bench
	if err := measure(t.Context(), z, "", wanted, file, func(started *bench) { b = started }); err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{}
	for _, r := range b.rows {
		what := r.scenario.id + ", " + r.library.id
		if r.missing != "" || r.errors > 0 && !r.library.peer {
			t.Errorf("%s: %s%s", what, r.missing, r.first)
			continue
		}
		if r.stuck > 0 && !r.library.peer {
			t.Errorf("%s: %d are stuck", what, r.stuck)
		}
		if lost := r.values["lost"]; lost.greatest() != 0 {
			t.Errorf("%s: lost %v", what, lost)
		}
		done[r.scenario.id], done[r.library.id] = true, true
	}
	for _, s := range z.scenarios() {
		if !done[s.id] {
			t.Errorf("%s was not measured", s.id)
		}
	}
	for _, l := range libraries {
		if !done[l.id] {
			t.Errorf("%s was not measured", l.id)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"before\n", "after\n", "### Targets", "| **dlock on etcd** |", "benchmarks.svg", "### Readers beside others", "benchmarks-growth.svg"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the report has no %q:\n%s", part, text)
		}
	}
	for _, end := range []string{".svg", "-growth.svg"} {
		if _, err := os.Stat(strings.TrimSuffix(file, ".md") + end); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

// Whoever interrupts it is left with no server and no worker.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	z := sizes{time: time.Minute, reps: 1, lease: 3 * time.Second, distinct: []int{1}}
	var b *bench
	wanted := func(s scenario, library string) bool { return library == "dlock" }
	var interrupted time.Time
	keep := func(started *bench) {
		b = started
		time.AfterFunc(300*time.Millisecond, func() {
			interrupted = time.Now()
			cancel()
		})
	}
	if err := measure(ctx, z, "", wanted, "", keep); err != context.Canceled {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(interrupted); took > 30*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if b.servers.redis.Running() || b.servers.etcd.Members[0].Running() {
		t.Error("a server is left")
	}
}
