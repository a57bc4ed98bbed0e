package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/store"
)

// model is a second, small implementation of the contract, written for this
// test only: one mutex, no shards, nothing ever swept. With bug set it has
// exactly one fault. Faults are planted here and not in the memory store, so
// that what users run stays free of switches.
type model struct {
	bug     string
	moved   *atomic.Int64 // how far the clock is ahead of the real one
	mu      sync.Mutex
	last    uint64 // token
	op      string // the call that is under way
	locks   map[string]*modelLock
	names   []string // in the order of their first use
	foreign map[string]bool
	handles []*modelHandle
	out     []modelEvent
	gate    chan struct{} // nil, or closed when the data can be reached again
	stale   time.Time     // the present that a call read before it waited
}

type modelHandle struct {
	*model
	sinks  []*func(store.Event)
	closed bool
}

type modelLock struct {
	holds, queue []*modelEntry
	buried       map[string]time.Time
	fresh        bool          // this is the first call for the name
	kept         bool          // a fault: a name that was only asked about stays
	dead         []*modelEntry // that were found dead
}

type modelEntry struct {
	store.Request
	via      *modelHandle
	token    uint64
	short    int
	end      time.Time
	since    time.Time // when it was granted, or queued
	promoted bool
}

type modelEvent struct {
	to    *modelHandle
	event store.Event
}

var (
	_ store.Breaker = (*modelHandle)(nil)
	_ store.Lister  = (*modelHandle)(nil)
)

func newModel(bug string) *modelHandle {
	m := &model{bug: bug, moved: new(atomic.Int64), locks: make(map[string]*modelLock), foreign: make(map[string]bool)}
	return m.handle()
}

func (m *model) handle() *modelHandle {
	h := &modelHandle{model: m}
	m.handles = append(m.handles, h)
	return h
}

func (h *modelHandle) Peer() *modelHandle {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.handle()
}

// now is the store's present, which a test may move.
func (m *model) now() time.Time {
	if !m.stale.IsZero() {
		return m.stale
	}
	return time.Now().Add(time.Duration(m.moved.Load()))
}

func (m *model) isForeign(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.foreign[name]
}

func (m *model) is(bug string) bool { return m.bug == bug }

func (m *model) key(name string) string {
	switch m.bug {
	case "names fold case":
		return strings.ToLower(name)
	case "names are trimmed":
		return strings.TrimSpace(name)
	case "names end at NUL":
		name, _, _ = strings.Cut(name, "\x00")
	case "names are made valid UTF-8":
		return strings.ToValidUTF8(name, "\ufffd")
	case "names are cut at 1023 bytes":
		return name[:min(len(name), 1023)]
	case "names lose empty path elements":
		return strings.ReplaceAll(name, "//", "/")
	case "all one-byte names are one":
		if len(name) == 1 {
			return "?"
		}
	}
	return name
}

func (m *model) sameOwner(a, b string) bool {
	switch m.bug {
	case "owners compared by prefix":
		return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
	case "owners fold case":
		return strings.EqualFold(a, b)
	case "owners are cut at 63 bytes":
		return a[:min(len(a), 63)] == b[:min(len(b), 63)]
	case "owners with quotes never match":
		return a == b && !strings.Contains(a, `"`)
	}
	return a == b
}

func (m *model) sameID(a, b string) bool {
	if m.is("ids compared in part") {
		return a[:31] == b[:31]
	}
	return a == b
}

func (m *model) find(list []*modelEntry, id string) *modelEntry {
	for _, e := range list {
		if m.sameID(e.ID, id) {
			return e
		}
	}
	return nil
}

func (m *model) without(list []*modelEntry, drop func(*modelEntry) bool) []*modelEntry {
	return slices.DeleteFunc(slices.Clone(list), drop)
}

func (m *model) dead(end time.Time) bool {
	if m.is("leases end early") {
		end = end.Add(-5 * time.Millisecond)
	}
	return !end.After(m.now())
}

// enter waits until the data can be reached, for at most as long as ctx lasts,
// and locks the model.
func (h *modelHandle) enter(ctx context.Context) error {
	m := h.model
	m.mu.Lock()
	if h.closed && !m.is("calls after Close work") {
		m.mu.Unlock()
		return store.ErrClosed
	}
	gate, before := m.gate, m.now()
	if gate == nil {
		return nil
	}
	m.mu.Unlock()
	if m.is("ctx is ignored") {
		ctx = context.Background()
	}
	select {
	case <-gate:
	case <-ctx.Done():
		switch m.bug {
		case "every failure is a loss":
			return store.ErrLost
		case "every failure is a refusal":
			return fmt.Errorf("%w: %w", store.ErrRefused, ctx.Err())
		}
		return ctx.Err()
	}
	m.mu.Lock()
	if m.is("the present is read before the wait") {
		m.stale = before
	}
	return nil
}

// stall makes all data out of reach.
func (m *model) stall() (resume func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gate := make(chan struct{})
	m.gate = gate
	return func() {
		m.mu.Lock()
		m.gate = nil
		m.mu.Unlock()
		close(gate)
	}
}

// footprint counts the names of which anything is kept.
func (m *model) footprint() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.locks {
		if len(l.holds)+len(l.queue)+len(l.buried) > 0 || l.kept || m.is("free names are kept") {
			n++
		}
	}
	return n
}

// sweep removes what is left of other names in which nothing is alive.
func (m *model) sweep(used string) {
	if m.is("the dead are never swept") {
		return
	}
	alive := func(e *modelEntry) bool { return !m.dead(e.end) }
	for name, l := range m.locks {
		if name == used || slices.ContainsFunc(l.holds, alive) || slices.ContainsFunc(l.queue, alive) {
			continue
		}
		l.holds = nil
		if !m.is("dead places are never swept") {
			l.queue = nil
		}
		maps.DeleteFunc(l.buried, func(_ string, end time.Time) bool { return m.dead(end) && !m.is("buried for ever") })
	}
}

// on runs f on a lock from which the dead are gone, and sends the events.
func (h *modelHandle) on(ctx context.Context, op, name string, f func(l *modelLock)) error {
	m := h.model
	if err := h.enter(ctx); err != nil {
		return err
	}
	m.sweep(m.key(name))
	if m.is("each handle has locks of its own") && h != m.handles[0] {
		name += "/other handle"
	}
	l := m.locks[m.key(name)]
	if l != nil {
		l.fresh = false
	} else {
		l = &modelLock{buried: make(map[string]time.Time), fresh: true, kept: op != "Acquire" && m.is("names that are asked about are kept")}
		m.locks[m.key(name)] = l
		m.names = append(m.names, m.key(name))
		if m.is("names are evicted while in use") && len(m.names) > 7 {
			delete(m.locks, m.names[0])
			m.names = m.names[1:]
		}
	}
	if m.op = op; !m.is("expiry unnoticed by " + op) {
		m.expire(l)
	}
	f(l)
	if m.is("tokens start again for a free name") && len(l.holds)+len(l.queue) == 0 {
		m.last = 0
	}
	out := m.out
	m.out, m.stale = nil, time.Time{}
	if m.is("sinks are called under a mutex") {
		defer m.mu.Unlock()
		for _, e := range out {
			for _, sink := range e.to.sinks {
				(*sink)(e.event)
			}
		}
		return nil
	}
	m.mu.Unlock()
	for _, e := range out {
		m.send(e)
	}
	return nil
}

func (m *model) send(e modelEvent) {
	m.mu.Lock()
	var sinks []*func(store.Event)
	for _, h := range m.handles {
		if h == e.to || m.is("events go to every handle") {
			sinks = append(sinks, h.sinks...)
		}
	}
	m.mu.Unlock()
	if m.is("events go to one sink") && len(sinks) > 0 {
		sinks = sinks[:1]
	}
	for _, sink := range sinks {
		(*sink)(e.event)
	}
}
