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
	// The pauses before grants that failed are tried again.
	firstRegrant = 20 * time.Millisecond
	lastRegrant  = 500 * time.Millisecond
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

// grant carries out what v says is to be granted, if that is still so. A hold
// lasts WaitTTL from its grant, so the leases are renewed at the same time.
func (r *room) grant(v *view, at knowledge) {
	s := r.rs.s
	pause := firstRegrant
	for {
		ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
		kept := s.keepPlaces(ctx, s.rooms.owners(r.dir, v.promotions()))
		next, err := s.settle(ctx, r.dir, v)
		if err == nil {
			r.rs.mu.Lock()
			r.busy = false
			if next.rev < v.rev && at == (knowledge{r, r.watched}) {
				r.view = nil // the data is another, though the watch has not heard of it
				r.rewatch()
			}
			r.rs.mu.Unlock()
			r.rs.granted(ctx, r.dir, at, next, kept)
			cancel()
			return
		}
		cancel()
		if !sleep(s.ctx, pause) || !r.wanted(v) {
			return
		}
		pause = min(2*pause, lastRegrant)
	}
}

// wanted reports whether anyone of those whom v grants something waits here still. If
// not, its grants are not under way any more.
func (r *room) wanted(v *view) bool {
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	if r.grants(v) {
		return true
	}
	r.busy = false
	r.look()
	return false
}

// grants reports whether v grants something to anyone who waits here. Callers have
// rooms.mu.
func (r *room) grants(v *view) bool {
	return slices.ContainsFunc(v.promotions(), func(p promotion) bool { return r.waiting[p.waiter.id] != nil })
}

// granted takes over what there is after a transaction of this handle, if it was
// decided on by the watch that there is now, and tells who has got something by it.
func (rs *rooms) granted(ctx context.Context, dir string, at knowledge, v *view, kept <-chan bool) {
	rs.mu.Lock()
	r := rs.m[dir]
	if r == nil {
		rs.mu.Unlock()
		return
	}
	if at == (knowledge{r, r.watched}) {
		r.behind = max(r.behind, v.written())
		if r.view != nil && r.view.rev < v.rev {
			r.view = v
		}
	}
	told := r.pass(v)
	r.look()
	rs.mu.Unlock()
	if isTrue(ctx, kept) {
		for _, t := range told {
			rs.s.tell(t.c, t.h)
		}
	}
}

// owners are the claims of those who are to be granted something and wait here,
// with the leases of their places.
func (rs *rooms) owners(dir string, all []promotion) map[clientv3.LeaseID]*claim {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	m := make(map[clientv3.LeaseID]*claim)
	for _, p := range all {
		if r := rs.m[dir]; r != nil && r.waiting[p.waiter.id] != nil {
			m[p.waiter.lease] = r.waiting[p.waiter.id]
		}
	}
	return m
}

// keepPlaces renews the leases of places that may end within WaitTTL; the channel
// says whether all live.
func (s *Store) keepPlaces(ctx context.Context, m map[clientv3.LeaseID]*claim) <-chan bool {
	kept := make(chan bool, 1)
	s.tasks.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		for id, c := range m {
			l := s.leases.of(placesFor(c.req)).current()
			if l == nil || l.id != id {
				l = &lease{id: id}
			}
			if l.remains(time.Now()) < c.req.WaitTTL && s.keepAlive(ctx, l) != nil {
				kept <- false
				return
			}
		}
		kept <- true
	})
	return kept
}

// isTrue waits for an answer, or the end of ctx.
func isTrue(ctx context.Context, answer <-chan bool) bool {
	select {
	case ok := <-answer:
		return ok
	case <-ctx.Done():
		return false
	}
}

// confirm reads a hold that only the watch has told of, renews its lease, and
// passes the grant on. If that fails, who waits asks again and is told then. One
// that has been read is sure.
func (s *Store) confirm(c *claim, h *entry, sure bool) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(s.ctx), callTimeout)
	defer cancel()
	kept := s.keepPlaces(ctx, map[clientv3.LeaseID]*claim{h.lease: c})
	if !sure {
		answer, err := s.client.Get(ctx, h.key)
		sure = err == nil && len(answer.Kvs) > 0 && answer.Kvs[0].ModRevision >= h.mod
	}
	if sure && isTrue(ctx, kept) {
		s.tell(c, h)
	}
}

// tell passes a confirmed grant on.
func (s *Store) tell(c *claim, h *entry) {
	if s.claims.held(c, nil, h.mod, h.token, c.req.WaitTTL) {
		s.sinks.Push(store.Event{ID: h.id, Token: h.token})
	}
}
