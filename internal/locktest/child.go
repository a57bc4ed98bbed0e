package locktest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/process"
	"github.com/dlock-go/dlock/store"
)

// Open is the function Open of a store's package.
type Open func(url string) (store.Store, error)

// childEnv is the environment variable that marks a child process.
const childEnv = "DLOCK_TEST_CHILD"

// runChild runs the job of a child and does not return, if this process is a child. After its job a
// child stays until it is killed.
func runChild(open Open) {
	if os.Getenv(childEnv) == "" {
		return
	}
	go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // the parent process has ended
	if err := jobs[os.Args[1]](open, os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	select {}
}

// jobs are the jobs of a child. Each gets the URL of a store, the name of a lock and a TTL. Each
// line that a child prints begins with another word.
var jobs = map[string]func(open Open, url, name, ttl string) error{
	"hold":  childHolds,
	"read":  childReads,
	"hoard": childHoards,
	"woken": childIsWoken,
	"storm": childStorms,
	"churn": childChurns,
}

func childClient(open Open, url, ttl string) (*dlock.Client, error) {
	s, err := open(url)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return nil, err
	}
	return dlock.New(s, &dlock.Options{TTL: d})
}

// childHolds takes the lock, prints "held <token>", and keeps it. When it loses the lock, it prints
// "lost <nanoseconds since 1970>".
func childHolds(open Open, url, name, ttl string) error {
	c, err := childClient(open, url, ttl)
	if err != nil {
		return err
	}
	h, err := c.Mutex(name).LockContext(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held", h.Token())
	<-h.Done()
	fmt.Println("lost", time.Now().UnixNano())
	return nil
}

// childReads takes the reader's lock, prints "held <token>", and keeps it.
func childReads(open Open, url, name, ttl string) error {
	c, err := childClient(open, url, ttl)
	if err != nil {
		return err
	}
	h, err := c.RWMutex(name).RLockContext(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held", h.Token())
	return nil
}

// Hoard is how many locks the job "hoard" takes.
const Hoard = 5

// childHoards takes the locks "name 0", "name 1" and so on, prints "held <token>" for each, and
// keeps them.
func childHoards(open Open, url, name, ttl string) error {
	c, err := childClient(open, url, ttl)
	if err != nil {
		return err
	}
	for i := range Hoard {
		h, err := c.Mutex(name + " " + strconv.Itoa(i)).LockContext(context.Background())
		if err != nil {
			return err
		}
		fmt.Println("held", h.Token())
	}
	return nil
}

// childIsWoken takes a place in the queue and prints "queued". When the event of its grant arrives,
// it prints "woken" and kills itself before it can use the grant.
func childIsWoken(open Open, url, name, ttl string) error {
	s, err := open(url)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	const id = "0000000000000000000000000000beef"
	s.Listen(func(e store.Event) {
		if e.ID == id {
			fmt.Println("woken")
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			select {}
		}
	})
	g, err := s.Acquire(context.Background(), store.Request{
		Name: name, Owner: "child", ID: id, TTL: d, WaitTTL: d, Queue: true, Tokens: 1,
	})
	if err == nil && !g.Held {
		fmt.Println("queued")
	}
	return err
}

// Stormers is how many goroutines the job "storm" starts.
const Stormers = 66

// childStorms prints "begun", starts goroutines that take the lock once each, and prints "done".
func childStorms(open Open, url, name, ttl string) error {
	c, err := childClient(open, url, ttl)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	if err := Storm(c, name, Stormers); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

// childChurns prints "begun". It waits for locks, takes them and gives them back until it is killed.
func childChurns(open Open, url, _, ttl string) error {
	c, err := childClient(open, url, ttl)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	for range 8 {
		go func() {
			for {
				Churn(c)
			}
		}()
	}
	return nil
}

// Child is a process that runs a job.
type Child struct {
	t    testing.TB
	proc *process.Process
	said chan string // the lines that it prints; closed when it has ended
	kill func()
}

// StartChild starts this test program again, for one job: "hold", "read", "hoard", "woken", "storm"
// or "churn". The child ends with the test at the latest.
func StartChild(t testing.TB, job, url, name string, ttl time.Duration) *Child {
	t.Helper()
	c := &Child{t: t, said: make(chan string, 16)}
	cmd := exec.Command(os.Args[0], job, url, name, ttl.String())
	cmd.Env = append(os.Environ(), childEnv+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // it is closed when this process ends
	if err != nil {
		t.Fatal(err)
	}
	// Not StdoutPipe, whose last lines are lost when the process is waited for before they are read.
	stdout, written, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = written
	c.proc, err = process.Start(cmd)
	written.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(c.said)
		defer stdout.Close()
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.said <- lines.Text()
		}
	}()
	c.kill = sync.OnceFunc(func() {
		c.proc.Kill()
		<-ended
		stdin.Close()
		if stderr.Len() > 0 {
			t.Errorf("a child wrote to stderr: %s", stderr.String())
		}
	})
	t.Cleanup(c.kill)
	return c
}

// Kill ends the child with SIGKILL, also one that is paused, and blocks until it
// has ended.
func (c *Child) Kill() { c.kill() }

// Pause stops the child with SIGSTOP, and Resume lets it go on.
func (c *Child) Pause()  { c.signal(c.proc.Pause) }
func (c *Child) Resume() { c.signal(c.proc.Resume) }

func (c *Child) signal(send func() error) {
	c.t.Helper()
	if err := send(); err != nil {
		c.t.Fatalf("cannot pause or resume a child: %v", err)
	}
}

// Says waits for the next line of the child, which has to begin with word, and
// returns the rest.
func (c *Child) Says(word string) string {
	c.t.Helper()
	select {
	case line, ok := <-c.said:
		rest, found := strings.CutPrefix(line, word)
		if !ok || !found {
			c.t.Fatalf("the child says %q, want %q", line, word)
		}
		return strings.TrimSpace(rest)
	case <-time.After(Patience):
		c.t.Fatalf("the child says nothing, want %q", word)
	}
	return ""
}

// ChurnAmongDeaths has the clients churn until they have made so many calls. As many processes as
// deaths churn beside them, one after the other, and are killed at a random moment.
func ChurnAmongDeaths(t testing.TB, clients []*dlock.Client, calls int, url string, ttl time.Duration, deaths int) {
	t.Helper()
	const goroutines = 24
	var churning sync.WaitGroup
	for i := range goroutines {
		churning.Go(func() {
			for range calls/goroutines + 1 {
				Churn(clients[i%len(clients)])
			}
		})
	}
	for range deaths {
		c := StartChild(t, "churn", url, "", ttl)
		c.Says("begun")
		<-time.After(rand.N(100 * time.Millisecond)) // the moment of its death
		c.Kill()
	}
	churning.Wait()
}
