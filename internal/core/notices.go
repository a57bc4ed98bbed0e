package core

import (
	"sync"
	"time"
)

// notices runs callbacks of the user, which may block, on goroutines of its own. A
// hundred thousand losses at once so cost a few goroutines, and each is told. Its
// zero value is ready to use.
type notices struct {
	mu       sync.Mutex
	list     []func()
	workers  int
	returned bool // a callback has, since the last look
	look     *time.Timer
}

const (
	// maxNotices is how many callbacks run at once while they return.
	maxNotices = 64
	// stuckAfter is how long all of them may be stuck until one more goroutine starts.
	stuckAfter = 100 * time.Millisecond
)

// add has f run soon. It does not block.
func (n *notices) add(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, f)
	switch {
	case n.workers < maxNotices:
		n.start()
	case n.look == nil:
		n.look = time.AfterFunc(stuckAfter, n.watch)
	}
}

// start starts one more goroutine. n.mu is locked.
func (n *notices) start() {
	n.workers++
	go n.work()
}

func (n *notices) work() {
	for {
		n.mu.Lock()
		if len(n.list) == 0 {
			n.workers--
			n.mu.Unlock()
			return
		}
		f := n.list[0]
		n.list[0] = nil
		n.list = n.list[1:]
		n.mu.Unlock()
		f()
		n.mu.Lock()
		n.returned = true
		n.mu.Unlock()
	}
}

// watch starts one more goroutine if callbacks wait and none has returned since it
// looked last.
func (n *notices) watch() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.list) == 0 {
		n.look = nil
		return
	}
	if !n.returned {
		n.start()
	}
	n.returned = false
	n.look.Reset(stuckAfter)
}
