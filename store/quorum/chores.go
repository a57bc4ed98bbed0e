package quorum

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

const (
	// maxChores bounds what is remembered for a node that is down. What does not fit ends with its lease.
	maxChores = 10_000
	// maxChorePause is the longest pause between two tries.
	maxChorePause = 200 * time.Millisecond
)

// chores are the releases that a node has not confirmed. One goroutine works on them as long as there are any.
type chores struct {
	mu      sync.Mutex
	list    []chore
	working bool
}

type chore struct {
	ref   store.Ref
	until time.Time // nothing of it is alive after that
}

func (c *chores) add(s *Store, n *node, job chore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) >= maxChores {
		c.list = c.list[1:]
	}
	c.list = append(c.list, job)
	if !c.working {
		c.working = true
		s.work.also(func() { c.work(s, n) })
	}
}

// work does chores until none is left or the handle is closed and they had their time.
func (c *chores) work(s *Store, n *node) {
	const first = 5 * time.Millisecond
	for pause := first; ; {
		job, ok := c.take()
		if !ok {
			return
		}
		if c.try(s, n, job) {
			pause = first
			continue
		}
		c.put(job)
		if !s.sleep(pause) {
			return
		}
		pause = min(2*pause, maxChorePause)
	}
}

// try reports whether the chore is done with.
func (c *chores) try(s *Store, n *node, job chore) bool {
	if time.Now().After(job.until) {
		return true
	}
	ctx, cancel := context.WithTimeout(s.work.base, s.timeout(job.ref.TTL))
	defer cancel()
	err := n.store.Release(ctx, job.ref)
	return err == nil || errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrForeignKey) || errors.Is(err, store.ErrClosed)
}

func (c *chores) take() (job chore, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) == 0 {
		c.list, c.working = nil, false
		return job, false
	}
	job, c.list = c.list[0], c.list[1:]
	return job, true
}

func (c *chores) put(job chore) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.list) < maxChores { // otherwise others came meanwhile, which last longer
		c.list = append(c.list, job)
	}
}
