package core

import (
	"sync"
	"time"
)

// notices runs callbacks of the user, which may block, on goroutines of its own. A
// hundred thousand losses at once so cost a few goroutines, and each is told. Its
// zero value is ready to use.
type notices struct {
	mu      sync.Mutex
	list    []func()
	workers int // goroutines that are not stuck in a callback
}

const (
	// maxNotices is how many callbacks run at once while they return soon.
	maxNotices = 64
	// stuckAfter is how long a callback may run until another goroutine takes the
	// place of its own. Else callbacks that never return would keep all later ones from
	// being told.
	stuckAfter = 100 * time.Millisecond
)

// add has f run soon. It does not block.
func (n *notices) add(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, f)
	n.start()
}

// start starts one more goroutine if there is work for it. n.mu is locked.
func (n *notices) start() {
	if len(n.list) > 0 && n.workers < maxNotices {
		n.workers++
		go n.work()
	}
}

// work runs callbacks until none waits, or one was stuck.
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
		stuck := time.AfterFunc(stuckAfter, n.replace)
		f()
		if !stuck.Stop() {
			return // another goroutine has its place
		}
	}
}

// replace takes a goroutine out of the count whose callback is stuck.
func (n *notices) replace() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.workers--
	n.start()
}
