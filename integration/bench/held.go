package main

import (
	"runtime"
	"sync"
	"time"
)

// waitIdly has the first process hold the lock, and all goroutines of the others
// wait for it, until they are killed.
func waitIdly(j job, say func(message), await func()) error {
	c, err := j.open()
	if err != nil {
		return err
	}
	waiters := j.Goroutines
	if j.Process == 0 {
		waiters = 0
		l, err := c.locker(j.name(0), use{})
		if err == nil {
			err = l.lock(false)
		}
		if err != nil {
			return err
		}
		if k, ok := l.(keeper); ok {
			k.keep(j.Lease)
		}
	}
	for i := range waiters {
		l, err := c.locker(j.name(i), use{})
		if err != nil {
			return err
		}
		go func() {
			err := l.lock(false)
			// Nobody gives it up, so this is no end that was hoped for.
			say(message{Failed: "a waiter does not wait: " + text(err)})
		}()
	}
	time.Sleep(j.Warm)
	say(message{Ready: true})
	for {
		await()
		cpu := processorTime()
		time.Sleep(j.Time)
		say(message{Over: true, Result: result{Elapsed: j.Time, CPU: processorTime() - cpu, Running: runtime.NumGoroutine()}})
	}
}

func text(err error) string {
	if err == nil {
		return "it has the lock"
	}
	return err.Error()
}

// takers is how many goroutines take the locks that holdMany holds.
const takers = 64

// holdMany takes many locks, keeps them, and says each time it is told to go on
// what that takes in the time of the job.
func holdMany(j job, say func(message), await func()) error {
	c, err := j.open()
	if err != nil {
		return err
	}
	before := memory()
	keepers := make([]keeper, j.Locks)
	failed := make(chan error, takers)
	var group sync.WaitGroup
	var opening sync.Mutex // a client makes its lockers one after the other
	for taker := range takers {
		group.Go(func() {
			for i := taker; i < j.Locks; i += takers {
				opening.Lock()
				l, err := c.locker(j.name(i), use{})
				opening.Unlock()
				if err == nil {
					err = l.lock(false)
				}
				if err != nil {
					failed <- err
					return
				}
				keepers[i] = l.(keeper)
				keepers[i].keep(j.Lease)
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	time.Sleep(j.Warm)
	used := memory() - before
	say(message{Ready: true})
	for {
		await()
		cpu := processorTime()
		time.Sleep(j.Time)
		r := result{Elapsed: j.Time, CPU: processorTime() - cpu, Memory: used, Running: runtime.NumGoroutine(), Locks: j.Locks}
		for _, k := range keepers {
			if k.lost() {
				r.Lost++
			}
		}
		say(message{Over: true, Result: r})
	}
}

// memory in use: on the heap, and by stacks.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
