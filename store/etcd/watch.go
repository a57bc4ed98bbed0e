package etcd

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	// linger is how much longer than its last waiter a watch is kept: one that has to be opened costs its
	// waiter two requests.
	linger = time.Second
	// The pauses before a watch that ended is opened again.
	firstRewatch = 10 * time.Millisecond
	lastRewatch  = time.Second
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
	if ws.s.records.reads(r).state == holding || !ws.s.records.is(r) {
		return // it was granted or released meanwhile
	}
	n := ws.m[r.dir]
	if n == nil {
		n = &nameWatch{ws: ws, dir: r.dir, waiting: make(map[string]*waiter)}
		ws.m[r.dir] = n
		ws.s.tasks.Go(n.run)
	}
	w := n.waiting[e.id]
	if w == nil || w.r != r {
		w = &waiter{nameWatch: n, r: r}
		n.waiting[e.id] = w
	}
	w.create, w.ahead = e.create, v.ahead(e)
	if n.told > v.rev {
		w.wake(false)
	}
}

// leave ends a record's waiting, and reports whether it waited.
func (ws *watches) leave(r *record) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n := ws.m[r.dir]
	if n == nil || n.waiting[r.req.ID] == nil || n.waiting[r.req.ID].r != r {
		return false
	}
	delete(n.waiting, r.req.ID)
	n.idle = time.Now()
	return true
}

// over reports whether nobody has waited for a while. Callers have watches.mu.
func (n *nameWatch) over() bool { return len(n.waiting) == 0 && time.Since(n.idle) >= linger }

// run follows the name until nobody has waited for a while.
func (n *nameWatch) run() {
	ws, pause := n.ws, firstRewatch
	for {
		if n.follow() {
			pause = firstRewatch
		}
		ws.mu.Lock()
		n.told = 0
		over := n.over()
		if over {
			delete(ws.m, n.dir)
		}
		ws.mu.Unlock()
		if over || !sleep(ws.s.ctx, pause) {
			return
		}
		pause = min(2*pause, lastRewatch)
	}
}

// follow opens a watch and follows it until it ends: by the server, which may have compacted, lost its leader
// or gone away, or because nobody waits.
func (n *nameWatch) follow() (opened bool) {
	ws := n.ws
	ws.mu.Lock()
	stream := ws.stream
	// Watches share a stream, unless their contexts carry different metadata. One that the server refuses, for
	// the token that the stream was opened with has expired, needs another stream, whose token is new.
	ctx := metadata.AppendToOutgoingContext(ws.s.ctx, "dlock-stream", strconv.Itoa(stream))
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	n.restart = cancel
	ws.mu.Unlock()
	defer cancel()
	// What is put is in the way of no request that waits already.
	events := ws.s.watcher.Watch(ctx, n.dir, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-events:
			ws.mu.Lock()
			if !ok || e.Err() != nil {
				if !opened && ws.stream == stream && ctx.Err() == nil {
					ws.stream++
				}
				ws.mu.Unlock()
				return opened
			}
			opened = true
			n.hear(e)
			ws.mu.Unlock()
		case <-tick.C:
			ws.mu.Lock()
			over := n.over()
			ws.mu.Unlock()
			if over {
				return opened
			}
		}
	}
}

// hear wakes the waiters in whose way the last key is deleted, and all of them when the watch is new, for what
// happened before. Callers have watches.mu.
func (n *nameWatch) hear(e clientv3.WatchResponse) {
	if e.Created {
		n.told = e.Header.Revision
		for _, w := range n.waiting {
			w.wake(true)
		}
	}
	for _, change := range e.Events {
		p, ok := parse(n.dir, string(change.Kv.Key))
		if change.Type != clientv3.EventTypeDelete || !ok || p.kind == kindRefused {
			continue
		}
		n.told = max(n.told, change.Kv.ModRevision)
		for id, w := range n.waiting {
			last := w.ahead[string(change.Kv.Key)] && len(w.ahead) == 1
			delete(w.ahead, string(change.Kv.Key))
			// A place that is gone may be a hold by now, upon which its owner may re-enter.
			if last || p.waits() && (id == p.id || w.r.tag == p.tag) {
				w.wake(id == p.id)
			}
		}
	}
}

// A watch of etcd's client outlives its connection: it goes on behind the last revision that it has seen, and tells
// nothing of the break. After a restart without the data, or with those of a snapshot, revisions begin lower, and such
// a watch is silent until they have come to where they had been; its waiters would ask when their retry time is over.
// So the watches here end with their connection, and when the next one is open, the waiters look.

// watcherOf returns the watcher to use with a client, and whether its watches end with their connection. They do not
// where the program has put another watcher in the place of the client's, such as one for a namespace.
func watcherOf(c *clientv3.Client) (w clientv3.Watcher, ends bool) {
	if reflect.TypeOf(c.Watcher) != reflect.TypeOf(clientv3.NewWatchFromWatchClient(nil, nil)) {
		return c.Watcher, false
	}
	return clientv3.NewWatchFromWatchClient(endingWatches{pb.NewWatchClient(c.ActiveConnection())}, c), true
}

// endingWatches opens streams of watches that end with their connection.
type endingWatches struct{ pb.WatchClient }

func (w endingWatches) Watch(ctx context.Context, opts ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return endingStream{stream}, nil
}

type endingStream struct{ pb.Watch_WatchClient }

// errStreamEnded carries no code of gRPC's, by which etcd's client sees what it can do again.
var errStreamEnded = errors.New("etcd: the connection of a watch has ended")

func (s endingStream) Recv() (*pb.WatchResponse, error) {
	answer, err := s.Watch_WatchClient.Recv()
	if err != nil {
		return nil, errStreamEnded
	}
	return answer, nil
}
