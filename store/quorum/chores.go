package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	// maxChores bounds what is remembered for a node that is down. What does not fit ends with its lease.
	maxChores = 10_000
	// firstChorePause and maxChorePause are the pauses after a release that the node did not confirm.
	firstChorePause = 5 * time.Millisecond
	maxChorePause   = 200 * time.Millisecond
)

// chores are the releases that a node has not confirmed. One goroutine works on them as long as there are any.
type chores struct {
	mu      sync.Mutex
	jobs    map[string]chore // by the ids at the node
	working bool
}

type chore struct {
	ref   store.Ref
	entry *entry
	try   *try
	until time.Time // nothing of it is alive after that, if it is not renewed
}

// add notes a release, in the place of one that the map picks if there are too many.
func (c *chores) add(s *Store, n *node, job chore) {
	job.until = time.Now().Add(lifetime(job.ref.TTL, job.ref.TTL) + 2*s.timeout(job.ref.TTL))
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, job.ref.ID)
	for id := range c.jobs {
		if len(c.jobs) < maxChores {
			break
		}
		c.jobs[id].entry.dismiss(n.index, c.jobs[id].try, false)
		delete(c.jobs, id)
	}
	if c.jobs == nil {
		c.jobs = make(map[string]chore)
	}
	c.jobs[job.ref.ID] = job
	if !c.working {
		c.working = true
		s.work.also(func() { c.work(s, n) })
	}
}

// work does chores until none is left or the handle is closed and they had their time.
func (c *chores) work(s *Store, n *node) {
	for pause := firstChorePause; ; {
		job, ok := c.next()
		if !ok {
			return
		}
		if done, gone := c.try(s, n, job); done {
			c.mu.Lock()
			delete(c.jobs, job.ref.ID)
			c.mu.Unlock()
			job.entry.dismiss(n.index, job.try, gone)
			pause = firstChorePause
			continue
		}
		if !s.work.sleep(s.work.base, pause) {
			return
		}
		pause = min(2*pause, maxChorePause)
	}
}

// next returns any of the chores.
func (c *chores) next() (job chore, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, job := range c.jobs {
		return job, true
	}
	c.jobs, c.working = nil, false
	return job, false
}

// try reports whether the chore is done with, and whether the node has confirmed it.
func (c *chores) try(s *Store, n *node, job chore) (done, gone bool) {
	if time.Now().After(job.until) {
		return true, false
	}
	ctx, end := s.work.detach(s.work.base, s.timeout(job.ref.TTL))
	defer end()
	err := n.store.Release(ctx, job.ref)
	return settled(err), confirmed(err)
}

// settled: a release with that answer need not be repeated.
func settled(err error) bool {
	return confirmed(err) || errors.Is(err, store.ErrForeignKey) || errors.Is(err, store.ErrClosed)
}

// confirmed: nothing of what was released is left.
func confirmed(err error) bool { return err == nil || errors.Is(err, store.ErrLost) }
