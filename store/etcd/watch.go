package etcd

import (
	"context"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dlock-go/dlock/store"
)

const (
	// linger is how much longer than its last waiter a watch is kept: one that has to be
	// opened costs its waiter two requests.
	linger = time.Second
	// The pauses before a watch that ended is opened again.
	firstRewatch = 10 * time.Millisecond
	lastRewatch  = time.Second
)

// watches are those of a handle, one for each name that its requests wait for.
type watches struct {
	s  *Store
	mu sync.Mutex
	m  map[string]*nameWatch // by dir

	stream int // how many streams of watches have been given up
}

// nameWatch tells the waiters of one name when keys are deleted that were in their way.
// What it tells is a hint: a waiter that hears of it asks.
type nameWatch struct {
	ws  *watches
	dir string

	// Guarded by watches.mu.
	waiting map[string]*waiter // by id
	idle    time.Time          // since when nobody waits
	told    int64              // the last revision that the watch told of; 0: it is not open
	restart func()             // ends the present watch, so that another is opened
}

// has reports whether requests of this handle wait for a name, or did lately.
func (ws *watches) has(dir string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.m[dir] != nil
}

// enter makes a record's request wait for its grant, as of a view that has its place.
func (ws *watches) enter(r *record, e *entry, v *view) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if k, _ := ws.s.records.reads(r); k.state == holding || !ws.s.records.is(r) {
		return // it was granted or released meanwhile
	}
	n := ws.m[r.keys.dir]
	if n == nil {
		n = &nameWatch{ws: ws, dir: r.keys.dir, waiting: make(map[string]*waiter)}
		ws.m[r.keys.dir] = n
		ws.s.tasks.Go(n.run)
	}
	w := n.waiting[r.req.ID]
	if w == nil || w.r != r {
		w = &waiter{n: n, r: r}
		n.waiting[r.req.ID] = w
	}
	w.create, w.ahead = e.create, v.ahead(e)
	if n.told > v.rev {
		w.wake()
	}
}

// leave ends a record's waiting.
func (ws *watches) leave(r *record) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.m[r.keys.dir]; n != nil {
		n.remove(r)
	}
}

func (n *nameWatch) remove(r *record) bool {
	if w := n.waiting[r.req.ID]; w == nil || w.r != r {
		return false
	}
	delete(n.waiting, r.req.ID)
	if len(n.waiting) == 0 {
		n.idle = time.Now()
	}
	return true
}

// gone wakes the waiters in whose way the key was last.
func (ws *watches) gone(dir string, keys ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if n := ws.m[dir]; n != nil {
		for _, key := range keys {
			n.gone(key)
		}
	}
}

func (n *nameWatch) gone(key string) {
	for _, w := range n.waiting {
		if w.ahead[key] {
			if delete(w.ahead, key); len(w.ahead) == 0 {
				w.wake()
			}
		}
	}
}

// moved notes that this handle has made a hold of a place: who waited for the place to go
// waits for the hold, unless both are readers.
func (n *nameWatch) moved(r *record) {
	for _, w := range n.waiting {
		if w.ahead[r.keys.place] && (w.r.req.Mode == store.Exclusive || r.req.Mode == store.Exclusive) {
			delete(w.ahead, r.keys.place)
			w.ahead[r.keys.hold] = true
		}
	}
	n.gone(r.keys.place)
}

// granted ends the waiting of a record that has a hold, and wakes its owner's other
// requests. It reports whether the record waited.
func (ws *watches) granted(r *record, revision int64) (waited bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.m[r.keys.dir]
	if n == nil {
		return false
	}
	waited = n.remove(r)
	n.moved(r)
	if n.told > 0 {
		n.told = max(n.told, revision)
	}
	n.wakeOwner(r.keys.tag)
	return waited
}

// wakeOwner has the waiting requests of an owner ask. Those that are asking find out by
// what the watch has told since.
func (n *nameWatch) wakeOwner(tag string) {
	for _, w := range n.waiting {
		if w.r.keys.tag == tag && !w.busy {
			w.wake()
		}
	}
}

// run follows the name until nobody has waited for a while.
func (n *nameWatch) run() {
	s, pause := n.ws.s, firstRewatch
	for {
		opened := n.follow()
		n.ws.mu.Lock()
		n.told = 0
		over := s.ctx.Err() != nil || n.over()
		if over {
			delete(n.ws.m, n.dir)
		}
		n.ws.mu.Unlock()
		if over {
			return
		}
		if opened {
			pause = firstRewatch
		}
		if !sleep(s.ctx, pause) {
			return
		}
		pause = min(2*pause, lastRewatch)
	}
}

func (n *nameWatch) over() bool { return len(n.waiting) == 0 && time.Since(n.idle) >= linger }

// context is that of a watch. Watches share a stream, unless their contexts carry
// different metadata. One that the server refuses for its token, which has expired since
// the stream was opened, needs another stream, whose token is new.
func (n *nameWatch) context() (context.Context, func()) {
	n.ws.mu.Lock()
	defer n.ws.mu.Unlock()
	ctx := metadata.AppendToOutgoingContext(n.ws.s.ctx, "dlock-stream", strconv.Itoa(n.ws.stream))
	ctx, n.restart = context.WithCancel(clientv3.WithRequireLeader(ctx))
	return ctx, n.restart
}

// follow opens a watch and follows it until it ends: by the server, which may have
// compacted, lost its leader or gone away, or because nobody waits.
func (n *nameWatch) follow() (opened bool) {
	s := n.ws.s
	stream := n.ws.streams()
	ctx, cancel := n.context()
	defer cancel()
	// What is put is in nobody's way that waits already.
	events := s.watcher.Watch(ctx, n.dir, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok || e.Err() != nil {
				if !opened && ctx.Err() == nil {
					n.ws.nextStream(stream)
				}
				return opened
			}
			if !n.hear(e) {
				return opened
			}
			if e.Created && !opened {
				opened = true
				n.lookAgain(ctx) // for what happened before
			}
		case <-tick.C:
			n.ws.mu.Lock()
			over := n.over()
			n.ws.mu.Unlock()
			if over {
				return opened
			}
		}
	}
}

func (ws *watches) streams() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.stream
}

// nextStream has the next watches be opened on another stream than the one that refused.
func (ws *watches) nextStream(refused int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.stream == refused {
		ws.stream++
	}
}

// hear passes on what was deleted.
func (n *nameWatch) hear(e clientv3.WatchResponse) bool {
	n.ws.mu.Lock()
	defer n.ws.mu.Unlock()
	if e.Created {
		n.told = e.Header.Revision
	}
	for _, change := range e.Events {
		n.told = max(n.told, change.Kv.ModRevision)
		if change.Type != clientv3.EventTypeDelete {
			continue
		}
		key := string(change.Kv.Key)
		kind, tag, id, ok := split(n.dir, key)
		if !ok || kind == kindRefused {
			continue
		}
		if kind == kindReadWaiter || kind == kindWriteWaiter {
			w := n.waiting[id]
			if w != nil && w.busy { // this handle makes it a hold
				n.moved(w.r)
				continue
			}
			if w != nil {
				w.wake()
			}
			n.wakeOwner(tag) // it may have become a hold
		}
		n.gone(key)
	}
	return true
}

// lookAgain has all waiters judge by what there is now.
func (n *nameWatch) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	n.ws.mu.Lock()
	var placed []*waiter
	for _, w := range n.waiting {
		placed = append(placed, w)
	}
	n.ws.mu.Unlock()
	v, err := n.ws.s.look(ctx, n.dir)
	if err != nil {
		n.ws.mu.Lock()
		n.restart()
		n.ws.mu.Unlock()
		return
	}
	due, _ := v.settled()
	n.ws.mu.Lock()
	defer n.ws.mu.Unlock()
	for _, w := range placed {
		if n.waiting[w.r.req.ID] != w {
			continue
		}
		e := find(v.queue, w.r.req.ID)
		switch {
		case find(due, w.r.req.ID) != nil, find(v.holds, w.r.req.ID) != nil:
			w.wake()
		case e == nil: // its place was lost with the data, perhaps
			n.ws.s.sinks.Push(store.Event{ID: w.r.req.ID})
		default:
			w.create, w.ahead = e.create, v.ahead(e)
		}
	}
}
