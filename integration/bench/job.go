package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// job is what a worker process does. The processes of one measurement have jobs
// that differ in Process alone.
type job struct {
	Kind       string // a key of jobs
	Library    string // its id
	Addr       string // of the server
	Page       string // path
	Process    int
	Processes  int
	Goroutines int // in each process
	Locks      int // that a process holds
	Readers    int // who hold the name meanwhile, owners of their own
	Distinct   bool
	Apart      bool
	Reads      float64 // part of the locks that are shared
	Lease      time.Duration
	Warm, Time time.Duration
	Profiles   string // what the names of their files begin with; "": none
}

// jobs. Each tells what it has got ready for and what it has done by say, and is
// told to go on by await.
var jobs = map[string]func(j job, say func(message), await func()) error{
	"turns": takeTurns,
	"hands": handOver,
	"idle":  waitIdly,
	"held":  holdMany,
}

// message is a line that a worker says.
type message struct {
	Failed string `json:",omitempty"`
	Ready  bool   `json:",omitempty"` // it is at work; it counts when told to go on
	Over   bool   `json:",omitempty"` // it counts no more; it goes on until told to stop
	Result result
}

// result is what one process has done, or all of a measurement.
type result struct {
	Locks, Changes int           // counted: locks taken, and those by another owner than the last
	Elapsed        time.Duration // while it counted
	Times          histogram     // of Lock and Unlock on names of one's own, otherwise of Lock
	Turns          []int         // by goroutine
	Writes, Torn   int           // counted or not: updates, and reads of half an update
	Errors         int
	FirstError     string
	CPU            time.Duration // used while it counted
	Memory         int           // bytes that holding takes
	Running        int           // goroutines
	Lost           int           // holds, of which the library says so, or updates
	Stuck          int           // goroutines that wait for a lock that nobody holds
}

// add makes one result of those of several processes.
func (r *result) add(o result) {
	r.Locks += o.Locks
	r.Changes += o.Changes
	r.Elapsed = max(r.Elapsed, o.Elapsed)
	if r.Times == nil {
		r.Times = histogram{}
	}
	r.Times.add(o.Times)
	r.Turns = append(r.Turns, o.Turns...)
	r.Writes += o.Writes
	r.Torn += o.Torn
	r.Errors += o.Errors
	if r.FirstError == "" {
		r.FirstError = o.FirstError
	}
	r.CPU += o.CPU
	r.Memory += o.Memory
	r.Running += o.Running
	r.Lost += o.Lost
	r.Stuck += o.Stuck
}

// jobEnv has the job of a process that is a worker.
const jobEnv = "DLOCK_BENCH_JOB"

// beWorker does the job of this process, if it is a worker, and does not return
// then. It ends when the parent closes its input, at the latest.
func beWorker() {
	text := os.Getenv(jobEnv)
	if text == "" {
		return
	}
	told := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			told <- struct{}{}
		}
		os.Exit(0)
	}()
	out := json.NewEncoder(os.Stdout)
	say := func(m message) {
		if out.Encode(m) != nil {
			os.Exit(1)
		}
	}
	if err := work(text, say, func() { <-told }); err != nil {
		say(message{Failed: err.Error()})
	}
	select {}
}

// work does a job. Profiles are taken from when it is first told to go on until it
// next says something.
func work(text string, say func(message), await func()) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	var failed error
	p := profiles{base: j.Profiles}
	err := jobs[j.Kind](j, func(m message) {
		failed = errors.Join(failed, p.stop())
		say(m)
	}, func() {
		await()
		failed = errors.Join(failed, p.start())
	})
	return errors.Join(err, failed)
}

func (j job) open() (client, error) { return libraryOf(j.Library).open(j.Addr, j.Lease) }

// name of the lock of a goroutine.
func (j job) name(goroutine int) string {
	if j.Distinct {
		return fmt.Sprintf("bench-%d-%d", j.Process, goroutine)
	}
	return "bench"
}

var errEnded = errors.New("the worker has ended, or was killed as it said nothing for too long")

// next is the next message of a worker.
func next(lines *json.Decoder) (m message, err error) {
	if err := lines.Decode(&m); errors.Is(err, io.EOF) {
		return m, errEnded
	} else if err != nil {
		return m, err
	}
	if m.Failed != "" {
		return m, errors.New(m.Failed)
	}
	return m, nil
}
