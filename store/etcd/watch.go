package etcd

import (
	"context"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

const (
	// linger is how much longer than its last waiter a watch is kept: one that has to be opened costs its
	// waiter two requests.
	linger = time.Second
	// rewatchPause is the pause before a watch that ended is opened again.
	rewatchPause = 100 * time.Millisecond
)

// watches are those of a handle, one for each name that its requests wait for.
type watches struct {
	s      *Store
	mu     sync.Mutex
	m      map[string]*nameWatch // by dir
	stream int                   // how many streams of watches have been given up
}

// nameWatch tells the waiters of one name when keys are deleted that were in their way. What it tells is a
// hint: a waiter that hears of it asks.
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
	if k := ws.s.records.read(r); k.state == holding || k.over {
		return // it was granted or released meanwhile
	}
	n := ws.m[r.dir]
	if n == nil {
		n = &nameWatch{ws: ws, dir: r.dir, waiting: make(map[string]*waiter)}
		ws.m[r.dir] = n
		ws.s.spawn(n.run)
	}
	w := n.waiting[e.id]
	if w == nil || w.r != r {
		w = &waiter{nameWatch: n, r: r}
		n.waiting[e.id] = w
	}
	if w.ahead = v.ahead(e); n.told > v.rev {
		w.wake()
	}
}

// leave ends a record's waiting, and reports whether it waited.
func (ws *watches) leave(r *record) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.m[r.dir]
	if n == nil || n.waiting[r.id] == nil || n.waiting[r.id].r != r {
		return false
	}
	delete(n.waiting, r.id)
	n.idle = time.Now()
	return true
}

// run follows the name until nobody has waited for a while.
func (n *nameWatch) run() {
	for n.follow() && sleep(n.ws.s.ctx, rewatchPause) {
	}
}

// follow opens a watch and follows it until it ends: by the server, which may have compacted, lost its leader
// or gone away, or because nobody waits. It reports whether another watch is needed.
func (n *nameWatch) follow() bool {
	ws := n.ws
	ws.mu.Lock()
	defer ws.mu.Unlock()
	stream := ws.stream
	// Watches share a stream, unless their contexts carry different metadata. One that the server refuses, for
	// the token that the stream was opened with has expired, needs another stream, whose token is new.
	ctx := metadata.AppendToOutgoingContext(ws.s.ctx, "dlock-stream", strconv.Itoa(stream))
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	n.told, n.restart = 0, cancel
	ws.mu.Unlock()
	// What is put is in the way of no request that waits already.
	events := ws.s.client.Watch(ctx, n.dir,
		clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	tick := time.NewTicker(linger)
	defer tick.Stop()
	ws.mu.Lock()
	for ok := true; ok; {
		var e clientv3.WatchResponse
		ws.mu.Unlock()
		select {
		case e, ok = <-events:
		case <-tick.C:
		}
		ws.mu.Lock()
		switch {
		case len(n.waiting) == 0 && time.Since(n.idle) >= linger:
			delete(ws.m, n.dir)
			return false
		case !ok || e.Err() != nil:
			if n.told == 0 && ws.stream == stream && ctx.Err() == nil {
				ws.stream++
			}
			ok = false
		default:
			n.hear(e)
		}
	}
	n.told = 0
	return true
}

// hear wakes the waiters in whose way the last key is deleted, and all of them when the watch is new, for what
// happened before. Callers have watches.mu.
func (n *nameWatch) hear(e clientv3.WatchResponse) {
	if e.Created {
		for _, w := range n.waiting {
			w.wake()
		}
		n.told = e.Header.Revision
	}
	for _, change := range e.Events {
		key := string(change.Kv.Key)
		k, kind, ok := parse(n.dir, key)
		if change.Type != clientv3.EventTypeDelete || !ok || kind == kindRefused {
			continue
		}
		n.told = max(n.told, change.Kv.ModRevision)
		for id, w := range n.waiting {
			last := w.ahead[key] && len(w.ahead) == 1
			delete(w.ahead, key)
			// A place that is gone may be a hold by now, upon which its owner may re-enter.
			if last || waits(kind) && (id == k.id || w.r.tag == k.tag) {
				w.wake()
			}
		}
	}
}
