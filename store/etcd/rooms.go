package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

const (
	// linger is how much longer than its last waiter a watch is kept.
	linger = time.Second
	// The pauses before a watch that ended is opened again.
	firstRewatch = 10 * time.Millisecond
	lastRewatch  = time.Second
)

// rooms are where the requests of a handle wait, one for each name.
type rooms struct {
	s  *Store
	mu sync.Mutex
	m  map[string]*room // by dir
}

// room watches the keys of one name while requests of this handle wait for it.
// It knows when the way of one is free, and grants it: the server does not do
// that by itself.
//
// What the watch says is never believed by itself. A grant is a transaction
// that compares the revision of all it was decided on.
type room struct {
	rs  *rooms
	dir string

	// Guarded by rooms.mu.
	waiting map[string]*claim // by id
	busy    bool              // grants are under way
	empty   time.Time         // since when nobody waits
	view    *view             // the latest known; nil while the watch is not open
	behind  int64             // the view is older than this revision, which is known of already
	watched int               // how many watches have ended
	rewatch func()            // ends the present one
}

// enter makes a claim wait for its grant.
func (rs *rooms) enter(c *claim) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.m[c.dir]
	if r == nil {
		r = &room{rs: rs, dir: c.dir, waiting: make(map[string]*claim)}
		rs.m[c.dir] = r
		rs.s.tasks.Go(r.watch)
	}
	r.waiting[c.req.ID] = c
	r.look()
}

// leave ends a claim's waiting.
func (rs *rooms) leave(c *claim) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.m[c.dir]; r != nil && r.waiting[c.req.ID] == c {
		r.remove(c.req.ID)
	}
}

func (r *room) remove(id string) bool {
	if _, ok := r.waiting[id]; !ok {
		return false
	}
	delete(r.waiting, id)
	if len(r.waiting) == 0 {
		r.empty = time.Now()
	}
	return true
}

// close takes a room in which nobody has waited for a while off the list.
func (r *room) close() bool {
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	if len(r.waiting) > 0 || time.Since(r.empty) < linger {
		return false
	}
	delete(r.rs.m, r.dir)
	return true
}

// watch follows the name until nobody has waited for a while.
func (r *room) watch() {
	s := r.rs.s
	pause := firstRewatch
	for {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(s.ctx))
		r.rs.mu.Lock()
		r.rewatch = cancel
		r.rs.mu.Unlock()
		opened := r.follow(ctx)
		cancel()
		r.forget()
		if s.ctx.Err() != nil || r.close() {
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

// forget ends what a watch has told, for the next one may be of other data.
func (r *room) forget() {
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	r.view, r.behind, r.watched = nil, 0, r.watched+1
}

// follow opens a watch and follows it until it ends: by the server, which may
// have compacted, lost its leader or gone away, or because nobody waits.
func (r *room) follow(ctx context.Context) (opened bool) {
	s := r.rs.s
	events := s.watcher.Watch(ctx, r.dir, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	tick := time.NewTicker(linger)
	defer tick.Stop()
	for {
		select {
		case e, ok := <-events:
			switch {
			case !ok || e.Err() != nil:
				return opened
			case e.Created:
				// What happened before the watch began is in a read after it.
				if err := r.read(ctx); err != nil {
					return opened
				}
				opened = true
			case !s.mortal:
				for len(events) > 0 {
					if e := <-events; e.Err() != nil {
						return opened
					}
				}
				if err := r.read(ctx); err != nil {
					return opened
				}
			default:
				if err := r.apply(e); err != nil {
					return opened
				}
			}
		case <-tick.C:
			r.rs.mu.Lock()
			over := len(r.waiting) == 0 && time.Since(r.empty) >= linger
			r.rs.mu.Unlock()
			if over {
				return opened
			}
		}
	}
}

func (r *room) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s := r.rs.s
	r.rs.mu.Lock()
	placed := slices.Collect(maps.Keys(r.waiting))
	r.rs.mu.Unlock()
	answer, err := s.client.Get(ctx, r.dir, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	v, err := parseView(r.dir, answer.Header.Revision, answer.Kvs)
	if err != nil {
		return err
	}
	v.sure = s.mortal // else it may outlive the data that it is of
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	r.view = v
	r.look()
	for _, id := range placed {
		if r.waiting[id] != nil && find(v.queue, id) == nil { // it was lost with the data, perhaps
			s.sinks.Push(store.Event{ID: id})
		}
	}
	return nil
}

// errOtherData ends a watch that is being ended.
var errOtherData = errors.New("etcd: the data is not that of the watch")

func (r *room) apply(e clientv3.WatchResponse) error {
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	if r.view == nil {
		return errOtherData
	}
	rev, kvs := r.view.rev, maps.Clone(r.view.kvs)
	for _, change := range e.Events {
		if change.Kv.ModRevision <= r.view.rev {
			continue
		}
		rev = max(rev, change.Kv.ModRevision)
		if change.Type == clientv3.EventTypeDelete {
			delete(kvs, string(change.Kv.Key))
		} else {
			kvs[string(change.Kv.Key)] = change.Kv
		}
	}
	if rev == r.view.rev {
		return nil
	}
	v, err := parseView(r.dir, rev, slices.Collect(maps.Values(kvs)))
	if err != nil {
		return err
	}
	r.view = v
	r.look()
	return nil
}

// look grants those whose way is free, and passes grants on. While a grant of
// this room is under way its answer does both, and says more than the watch.
// Callers have rooms.mu.
func (r *room) look() {
	if r.view == nil || r.busy {
		return
	}
	view := r.view
	for _, t := range r.pass(view) {
		r.rs.s.tasks.Go(func() { r.rs.s.confirm(t.c, t.h, view.sure) })
	}
	if view.rev < r.behind || !r.grants(view) {
		return
	}
	r.busy = true
	at := knowledge{r, r.watched}
	r.rs.s.tasks.Go(func() { r.grant(view, at) })
}

// knowledge is what a room knows by one watch.
type knowledge struct {
	r       *room
	watched int
}

// news is that a claim has become a hold.
type news struct {
	c *claim
	h *entry
}

// pass returns the news of those who wait and have a hold in v, and ends their
// waiting. Callers have rooms.mu.
func (r *room) pass(v *view) (all []news) {
	for _, h := range v.holds {
		if c := r.waiting[h.id]; c != nil {
			r.remove(h.id)
			all = append(all, news{c, h})
		}
	}
	return all
}
