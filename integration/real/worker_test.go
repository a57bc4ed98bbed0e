package real

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/store"
)

// job is what a worker is told, in the variable jobEnv.
type job struct {
	Worker   int
	Seed     uint64
	URL      string
	Register string // its address
	Keys     string // what the keys of the register begin with
	Names    []string
	TTL      time.Duration
	WaitTTL  time.Duration
	Parties  int      // how many goroutines want locks
	Owners   []string // that act in all workers
	Hoard    int      // how many names of its own it holds all the time
}

const jobEnv = "DLOCK_REAL_JOB"

// worker is one process that uses locks.
type worker struct {
	job
	journal  *journal
	client   *dlock.Client
	register register
	owners   []dlock.Owner
	ctx      context.Context // of all waits; ends with the work

	slow atomic.Pointer[chan struct{}] // closed when it is to be quick again; nil while it is

	parties, handles, serials atomic.Int64
}

// beWorker does the job of a worker, if this process is one, and does not return
// then. It obeys the lines that it reads: slow, quick and stop, after which it ends
// in order. At the end of its input, which is the end of the driver, it ends at
// once.
func beWorker() {
	text := os.Getenv(jobEnv)
	if text == "" {
		return
	}
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.job); err != nil {
		panic(err)
	}
	for _, text := range w.Owners {
		owner, err := dlock.ParseOwner(text)
		if err != nil {
			panic(err)
		}
		w.owners = append(w.owners, owner)
	}
	w.journal = &journal{worker: w.Worker, w: os.Stdout}
	var stop context.CancelFunc
	w.ctx, stop = context.WithCancel(context.Background())
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			switch in.Text() {
			case "slow":
				quick := make(chan struct{})
				w.slow.Store(&quick)
			case "quick":
				close(*w.slow.Swap(nil))
			case "stop":
				stop()
			}
		}
		os.Exit(1)
	}()
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (w *worker) run() error {
	go w.heart()
	var err error
	w.register, err = openRegister(w.Register)
	for deadline := time.Now().Add(time.Minute); err != nil; w.register, err = openRegister(w.Register) {
		if time.Now().After(deadline) {
			return fmt.Errorf("the register: %w", err)
		}
	}
	on := w.open()
	if on == nil {
		return nil // told to stop before the store could be reached
	}
	if w.client, err = dlock.New(&recorder{on, w.journal}, &dlock.Options{TTL: w.TTL, WaitTTL: w.WaitTTL}); err != nil {
		return err
	}
	w.journal.add(record{Op: opReady, Call: now()})
	var working sync.WaitGroup
	for i := range w.Parties {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(w.Seed, uint64(w.Worker)<<32|uint64(i)))
			for w.ctx.Err() == nil {
				w.act(rng)
				time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Millisecond))))
			}
		})
	}
	for i := range w.Hoard {
		working.Go(func() { w.hoard(fmt.Sprint("hoard ", w.Worker, " ", i)) })
	}
	working.Wait()
	call := now()
	err = w.client.Close()
	w.journal.add(record{Op: opClose, Call: call, Return: now(), Error: message(err)})
	return on.Close()
}

// open tries until it can, for the servers may be meeting their fault.
func (w *worker) open() store.Store {
	for w.ctx.Err() == nil {
		if on, err := stores.Open(w.URL); err == nil {
			return on
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

const (
	beat = 2 * time.Millisecond
	// late is what a beat is late at most in a process that runs as it should.
	late = 2 * time.Millisecond
)

// heart records when the process, or its scheduler, stood still. No promise of
// exclusion survives that for longer than the margin, so a history has to show
// it before such an overlap is excused.
func (w *worker) heart() {
	for last := now(); ; {
		time.Sleep(beat)
		at := now()
		if at.since(last) > beat+late {
			w.journal.add(record{Op: opStall, Call: last, Return: at})
		}
		last = at
	}
}
