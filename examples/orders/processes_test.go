package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zookeepertest"
)

// isProcess makes the test binary the program.
const isProcess = "ORDERS_IS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(isProcess) != "" {
		main()
	}
	os.Exit(m.Run())
}

// runProcesses runs the program in n processes at once.
func runProcesses(t *testing.T, n int, args ...string) []outcome {
	t.Helper()
	outcomes := make([]outcome, n)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() {
			var stdout, stderr bytes.Buffer
			p := exec.CommandContext(t.Context(), os.Args[0], args...)
			p.Env = append(os.Environ(), isProcess+"=1")
			p.Stdout, p.Stderr = &stdout, &stderr
			if err := p.Run(); p.ProcessState == nil {
				t.Errorf("process %d: %v", i, err)
				return
			}
			outcomes[i] = outcome{p.ProcessState.ExitCode(), stdout.String(), stderr.String()}
		})
	}
	wg.Wait()
	return outcomes
}

// TestProcesses: four processes sell from one stock, with their locks in one
// store, and never more than there is.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for store, url := range map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return redistest.Start(t).URL() },
		"etcd":     func(t *testing.T) string { return etcdtest.Start(t, 1).URL() },
		"postgres": func(t *testing.T) string { return postgrestest.Start(t).URL() },
		"zk":       func(t *testing.T) string { return zookeepertest.Start(t, 1).URL() },
	} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			testProcesses(t, url(t))
		})
	}
}

func testProcesses(t *testing.T, url string) {
	const n = 4
	orders := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(orders, []byte(first(500)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-store", url, "-file", orders, "-stock", "60", "-stock-dir"}

	for _, o := range runProcesses(t, n, append(args, t.TempDir())...) {
		o.want(t, 0, "orders 500", "failed 0", "oversold 0")
	}

	oversold := false
	for _, o := range runProcesses(t, n, append(args, t.TempDir(), "-unsafe")...) {
		oversold = oversold || o.figure(t, "oversold") != "0"
	}
	if !oversold {
		t.Error("nothing oversold without the lock")
	}
}

// TestDeadServer: a store that is not there is an error at once, which does not
// repeat the URL.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	o := runOrders("", "-store", fmt.Sprintf("redis://user:secret@%s", server.Addr))
	o.want(t, statusUsage)
	o.wantMessage(t, "orders: redis: connect to "+server.Addr)
	if bytes.Contains([]byte(o.stderr), []byte("secret")) {
		t.Errorf("the password is in %q", o.stderr)
	}
}
