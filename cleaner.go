package dlock

import (
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// maxCleaners bounds the goroutines of a cleaner. What they have to do waits in
// a list, which cannot grow for ever: each chore ends with its lease.
const maxCleaners = 8

// crowd is how many chores are too many to try those once more of which, by the lock
// model, nothing is left: a store that is silent would have the list grow.
const crowd = 1000

// cleaner releases what nobody holds or waits for any more: places and late
// grants of calls that gave up, lost holds, releases without a known outcome.
// It goes on until the store has confirmed, or until nothing can be left.
type cleaner struct {
	client *Client

	mu      sync.Mutex
	chores  []chore
	workers int
	pending int // chores not done, those in a worker's hands included
}

type chore struct {
	attempt *attempt
	ref     store.Ref // of the attempt
	until   time.Time // by the lock model nothing of ref is alive after this
}

// add has what an attempt has at the store released in the background.
func (k *cleaner) add(a *attempt) {
	ref, life := a.quit(), a.req.TTL
	if a.req.Queue {
		life = max(life, 2*a.req.WaitTTL) // a place may be granted at its end
	}
	// A request that is still on its way may be applied as late as its timeout.
	timeout := k.client.opts.timeout(ref.TTL)
	k.mu.Lock()
	k.chores = append(k.chores, chore{a, ref, time.Now().Add(timeout + life)})
	k.pending++
	start := k.workers < maxCleaners
	if start {
		k.workers++
	}
	k.mu.Unlock()
	if start && !k.client.calls.spawn(k.work) {
		k.mu.Lock()
		k.workers--
		k.mu.Unlock()
	}
}

// work does chores until none is left. After a failure the worker pauses, for
// it is the store that fails rather than the chore, and takes up the next.
func (k *cleaner) work() {
	pause := backoff{limit: 200 * time.Millisecond}
	for {
		job, ok := k.take()
		if !ok {
			return
		}
		c := k.client
		if time.Now().After(job.until) && k.crowded() {
			k.giveUp(job, errCrowded)
			continue
		}
		err := c.release(job.ref, c.opts.timeout(job.ref.TTL))
		switch {
		case errors.Is(err, ErrClosed):
			// No call can succeed any more. The chore stays counted as not done,
			// so that Close says so; the lease ends it.
		case settled(err):
			pause.reset()
			k.done(job)
		case time.Now().After(job.until):
			k.giveUp(job, err)
		default:
			k.put(job)
			if !pause.sleep(c.calls.base.Done()) {
				return
			}
		}
	}
}

func (k *cleaner) crowded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.chores) >= crowd
}

// errCrowded is why a chore is given up that came to its turn too late to be tried again.
var errCrowded = errors.New("too many others are to be released")

func (k *cleaner) giveUp(job chore, err error) {
	k.client.log.Warn("dlock: gave up releasing; the lease has run out by itself",
		"name", job.ref.Name, "id", store.Short(job.ref.ID), "error", err)
	k.done(job)
}

func (k *cleaner) take() (chore, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.chores) == 0 {
		k.workers--
		return chore{}, false
	}
	job := k.chores[0]
	k.chores[0] = chore{} // so that the list does not keep what is done
	if k.chores = k.chores[1:]; len(k.chores) == 0 {
		k.chores = nil
	}
	return job, true
}

func (k *cleaner) put(job chore) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.chores = append(k.chores, job)
}

func (k *cleaner) done(job chore) {
	k.mu.Lock()
	k.pending--
	k.mu.Unlock()
	job.attempt.forgotten()
}

// left returns how many chores are not done.
func (k *cleaner) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pending
}
