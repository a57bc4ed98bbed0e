package fenced

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/process"
)

// crew are the workers of a test and all that they have told. It is safe for
// concurrent use.
type crew struct {
	t     testing.TB
	began time.Time

	mu      sync.Mutex
	reports []report
	counts  map[outcome]int
	errors  map[string]int
}

func newCrew(t testing.TB) *crew {
	return &crew{t: t, began: time.Now(), counts: map[outcome]int{}, errors: map[string]int{}}
}

func (c *crew) hear(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, r)
	c.counts[r.Outcome]++
	if r.Error != "" {
		c.errors[r.Error]++
	}
}

func (c *crew) told(o outcome) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[o]
}

// done reports whether so many changes are acknowledged and the faults have
// bitten, and fails the test if that takes too long.
func (c *crew) done(s size, bitten bool) bool {
	c.t.Helper()
	n := c.told(written)
	if n >= s.changes && bitten {
		return true
	}
	if time.Since(c.began) > s.limit {
		c.log("too slow")
		c.t.Fatalf("%d changes in %v, want %d; faults have bitten: %t", n, s.limit, s.changes, bitten)
	}
	return false
}

// log tells what the run was like.
func (c *crew) log(what string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("in %v: %v, "+what, append([]any{time.Since(c.began).Round(time.Millisecond), c.counts}, args...)...)
	for text, n := range c.errors {
		c.t.Logf("%d times: %s", n, text)
	}
}

// hand is a worker process.
type hand struct {
	*process.Process
	t      testing.TB
	stdin  io.Closer
	heard  chan struct{} // closed when all that it told was heard
	stderr bytes.Buffer
}

// hire starts a worker. It ends with the test at the latest.
func (c *crew) hire(o order) *hand {
	c.t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	h := &hand{t: c.t, heard: make(chan struct{})}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), orderEnv+"="+string(text))
	cmd.Stderr = &h.stderr
	if h.stdin, err = cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	// Not a StdoutPipe, which is closed when the process ends, read or not.
	stdout, told, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stdout = told
	h.Process, err = process.Start(cmd)
	told.Close()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(h.kill)
	go func() {
		defer close(h.heard)
		defer stdout.Close()
		for reports := json.NewDecoder(stdout); ; {
			var r report
			if err := reports.Decode(&r); err != nil {
				// A worker that is killed may break off in the middle of a line.
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					c.t.Errorf("worker %d: %v", o.Worker, err)
				}
				return
			}
			c.hear(r)
		}
	}()
	return h
}

// kill ends the worker with SIGKILL.
func (h *hand) kill() {
	h.Kill()
	<-h.heard
	h.stdin.Close()
	if h.stderr.Len() > 0 {
		h.t.Errorf("a worker wrote to stderr: %s", h.stderr.String())
	}
}

// dismiss has the workers finish what they do, and waits until they have.
func dismiss(hands []*hand) {
	for _, h := range hands {
		h.stdin.Close()
	}
	for _, h := range hands {
		select {
		case <-h.Done:
		case <-time.After(locktest.Patience):
			h.t.Error("a worker does not finish")
		}
		h.kill() // and hears the rest
	}
}
