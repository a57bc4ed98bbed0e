package redis_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

const childEnv = "DLOCK_REDIS_TEST_CHILD"

// TestMain is also where the children of tests begin, and it fails the run if
// goroutines of the library outlive the tests.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		go func() { io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // the parent has gone
		if err := childJobs[os.Args[1]](os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		select {}
	}
	// The tests wait for servers and clocks most of the time.
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["test.parallel"] {
		flag.Set("test.parallel", "8")
	}
	code := m.Run()
	var left []string
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if left = libraryGoroutines(); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	if code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines are left after all tests:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		code = 1
	}
	os.Exit(code)
}

// libraryGoroutines returns the stacks of goroutines that were started by code
// of this module or of rueidis.
func libraryGoroutines() (left []string) {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for i, stack := range strings.Split(string(stacks), "\n\n") {
		// The first is the one that asks.
		if i > 0 && (strings.Contains(stack, "dlock-go/dlock") || strings.Contains(stack, "redis/rueidis")) {
			left = append(left, stack)
		}
	}
	return left
}

// childJobs is what a child can do, with the URL of a store, the name of a lock
// and a TTL. A child that is done with its job stays until it is killed.
var childJobs = map[string]func(url, name, ttl string) error{
	"hold":  childHolds,
	"woken": childIsWoken,
	"storm": childStorm,
	"churn": childChurns,
}

func childClient(url, ttl string) (*dlock.Client, error) {
	s, err := redis.Open(url)
	if err != nil {
		return nil, err
	}
	d, err := time.ParseDuration(ttl)
	if err != nil {
		return nil, err
	}
	return dlock.New(s, &dlock.Options{TTL: d})
}

// childHolds takes the lock, says "held <token>", and keeps it.
func childHolds(url, name, ttl string) error {
	c, err := childClient(url, ttl)
	if err != nil {
		return err
	}
	h, err := c.Mutex(name).LockContext(context.Background())
	if err != nil {
		return err
	}
	fmt.Println("held", h.Token())
	return nil
}

// childIsWoken queues up, says "queued" when it listens, and when it is told that it has been granted it says
// "woken" and kills itself before it can do anything about it.
func childIsWoken(url, name, ttl string) error {
	s, err := redis.Open(url)
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

// stormers is how many goroutines of a child, or of a test, want one lock.
const stormers = 66

// childStorm has many goroutines take the lock once each, and then says "done".
func childStorm(url, name, ttl string) error {
	c, err := childClient(url, ttl)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	if err := storm(c, name, stormers); err != nil {
		return err
	}
	fmt.Println("done")
	return nil
}

func storm(c *dlock.Client, name string, goroutines int) error {
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			h, err := c.Mutex(name).LockContext(context.Background())
			if err == nil {
				err = h.Unlock()
			}
			errs <- err
		}()
	}
	var first error
	for range goroutines {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// childChurns says "begun" and takes locks, gives them up and loses patience
// until it is killed.
func childChurns(url, _, ttl string) error {
	c, err := childClient(url, ttl)
	if err != nil {
		return err
	}
	fmt.Println("begun")
	for range 8 {
		go func() {
			for {
				churn(c)
			}
		}()
	}
	return nil
}

// churn waits for one of a few locks for a short while, in either mode, and if
// it gets it holds it for a short while.
func churn(c *dlock.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), rand.N(20*time.Millisecond))
	defer cancel()
	lock := c.RWMutex("churn " + strconv.Itoa(rand.N(5)))
	take := lock.LockContext
	if rand.N(2) == 0 {
		take = lock.RLockContext
	}
	if h, err := take(ctx); err == nil {
		time.Sleep(rand.N(2 * time.Millisecond))
		h.Unlock()
	}
}

// child is a process that does a job.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	said chan string // its lines; closed when it has ended
	kill func()      // SIGKILL, and waits until it has ended
}

func startChild(t *testing.T, job, url, name string, ttl time.Duration) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0], job, url, name, ttl.String()), said: make(chan string, 16)}
	c.cmd.Env = append(os.Environ(), childEnv+"=1")
	var stderr bytes.Buffer
	c.cmd.Stderr = &stderr
	stdin, err := c.cmd.StdinPipe() // it ends when this does
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(c.said)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			c.said <- lines.Text()
		}
		c.cmd.Wait()
	}()
	c.kill = sync.OnceFunc(func() {
		c.cmd.Process.Kill()
		<-ended
		stdin.Close()
		if stderr.Len() > 0 {
			t.Errorf("a child wrote to stderr: %s", stderr.String())
		}
	})
	t.Cleanup(c.kill)
	return c
}

// says waits for the next line of the child, which has to begin with word, and
// returns the rest.
func (c *child) says(word string) string {
	c.t.Helper()
	select {
	case line, ok := <-c.said:
		rest, found := strings.CutPrefix(line, word)
		if !ok || !found {
			c.t.Fatalf("the child says %q, want %q", line, word)
		}
		return strings.TrimSpace(rest)
	case <-time.After(patience):
		c.t.Fatalf("the child says nothing, want %q", word)
	}
	return ""
}
