package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"
)

// page is memory that all processes of a measurement share. The lock that is
// measured guards what is not atomic: it is written as one would write to plain
// memory in one process, so an update is lost if two hold the lock at once. That
// costs nanoseconds, where a counter in the server would cost round trips.
type page struct {
	first, second uint64 // updates so far, counted twice
	owner         uint64 // who had it last
	released      int64  // when it was given up, on the clock of now

	waits  [8]atomic.Int64 // by process: since when it waits, 0 if it does not
	holder atomic.Uint64   // the last to hold, for those who do not
}

const pageSize = 4096

// newPage makes the file of a page.
func newPage() (path string, remove func(), err error) {
	f, err := os.CreateTemp("", "dlock-bench-*.page")
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	remove = func() { os.Remove(f.Name()) }
	if err := f.Truncate(pageSize); err != nil {
		remove()
		return "", nil, err
	}
	return f.Name(), remove, nil
}

func openPage(path string) (*page, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := mapped(f, pageSize)
	if err != nil {
		return nil, fmt.Errorf("no shared memory: %w", err)
	}
	return (*page)(unsafe.Pointer(&memory[0])), nil
}

// begin is the first half of an update by an owner, end the second. It reports
// whether somebody else had the lock before.
func (p *page) begin(owner uint64) (n uint64, changed bool) {
	changed = p.owner != owner
	p.owner = owner
	return p.first, changed
}

func (p *page) end(n uint64) {
	p.first = n + 1
	p.second++
}

// whole reports whether a reader who began at n has seen no update in part.
func (p *page) whole(n uint64) bool { return p.first == n && p.second == n }

// lost is how many of the updates are not there.
func (p *page) lost(writes int) int {
	return max(abs(writes-int(p.first)), abs(writes-int(p.second)))
}

func abs(n int) int { return max(n, -n) }

func (p *page) close() { unmapped(unsafe.Slice((*byte)(unsafe.Pointer(p)), pageSize)) }
