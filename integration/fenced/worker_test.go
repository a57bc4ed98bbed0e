package fenced

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
)

// orderEnv tells a process that it is a worker, and what to do.
const orderEnv = "DLOCK_TEST_ORDER"

// order is what a worker is to do. It does its job under each lock, over and
// over, until its standard input ends.
type order struct {
	Worker int
	Job    string
	Locks  int
	Store  string // URL of the locks
	Data   string // address of the server with the data
	TTL    time.Duration
	// WaitTTL is the client's; 0 means its default.
	WaitTTL time.Duration
}

// jobs do something under a lock once.
var jobs = map[string]func(*worker, int){
	"append": (*worker).append,
	"count":  (*worker).count,
	"wait":   (*worker).wait,
}

// report is what a worker tells, one a line.
type report struct {
	Worker  int
	Outcome outcome
	Lock    int
	Token   uint64 `json:",omitempty"`
	Element string `json:",omitempty"`
	// From the machine's monotonic clock, which is the same in all processes: when
	// an access began and when it had returned.
	Call, Return int64  `json:",omitempty"`
	Error        string `json:",omitempty"`
}

type outcome string

const (
	read    outcome = "read"    // an access that reads was admitted
	written outcome = "written" // an access that writes was admitted
	refused outcome = "refused" // an access was refused for its token
	unknown outcome = "unknown" // a write may have been applied
	late    outcome = "late"    // a write was applied, but took longer than the margin, and the hold is over
	failed  outcome = "failed"  // the lock was not had, or nothing was written
)

type worker struct {
	order  order
	over   context.Context
	client *dlock.Client
	data   rueidis.Client

	mu      sync.Mutex
	serials int
	reports *json.Encoder
}

// work is the life of a worker.
func work(text string) {
	w := &worker{reports: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(text), &w.order); err != nil {
		panic(err)
	}
	over, stop := context.WithCancel(context.Background())
	w.over = over
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	locks, err := stores.Open(w.order.Store)
	for tries := 1; err != nil && tries < 100; tries++ { // its connections are cut, too
		locks, err = stores.Open(w.order.Store)
	}
	if err != nil {
		panic(err)
	}
	w.client, err = dlock.New(locks, &dlock.Options{TTL: w.order.TTL, WaitTTL: w.order.WaitTTL, Label: strconv.Itoa(w.order.Worker)})
	if err != nil {
		panic(err)
	}
	w.data, err = rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{w.order.Data}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		panic(err)
	}
	var running sync.WaitGroup
	for lock := range w.order.Locks {
		running.Go(func() {
			for over.Err() == nil {
				jobs[w.order.Job](w, lock)
			}
		})
	}
	running.Wait()
}

// lock takes a lock, or returns false.
func (w *worker) lock(lock int) (*dlock.Hold, bool) {
	hold, err := w.client.Mutex(lockName(lock)).LockContext(w.over)
	if err != nil && w.over.Err() == nil {
		w.tell(report{Outcome: failed, Lock: lock, Error: errors.Unwrap(err).Error()}) // without the name
	}
	return hold, err == nil
}

func lockName(lock int) string { return "lock " + strconv.Itoa(lock) }

// wait is the job of those who get killed: whatever they do must not matter.
func (w *worker) wait(lock int) {
	if hold, ok := w.lock(lock); ok {
		hold.Unlock()
	}
}

func (w *worker) tell(r report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Worker = w.order.Worker
	w.reports.Encode(r)
}

// element is one that nobody else appends.
func (w *worker) element(token uint64) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serials++
	return fmt.Sprintf("%d/%d.%d", token, w.order.Worker, w.serials)
}

func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
