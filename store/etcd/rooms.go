package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
	view    *view             // as of the last event; nil while the watch is not open
	kvs     map[string]*mvccpb.KeyValue
	behind  int64 // the view is older than this revision, which is known of already
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
	if r := rs.m[c.dir]; r != nil {
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
		opened := r.follow(ctx)
		cancel()
		r.rs.mu.Lock()
		r.view = nil
		r.rs.mu.Unlock()
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

// follow opens a watch and follows it until it ends: by the server, which may
// have compacted, lost its leader or gone away, or because nobody waits.
func (r *room) follow(ctx context.Context) (opened bool) {
	s := r.rs.s
	events := s.client.Watch(ctx, r.dir, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
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
	answer, err := r.rs.s.client.Get(ctx, r.dir, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	kvs := make(map[string]*mvccpb.KeyValue, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		kvs[string(kv.Key)] = kv
	}
	return r.see(answer.Header.Revision, kvs)
}

func (r *room) apply(e clientv3.WatchResponse) error {
	r.rs.mu.Lock()
	view, kvs := r.view, r.kvs
	r.rs.mu.Unlock()
	rev := view.rev
	for _, change := range e.Events {
		if change.Kv.ModRevision <= view.rev {
			continue
		}
		rev = max(rev, change.Kv.ModRevision)
		if change.Type == clientv3.EventTypeDelete {
			delete(kvs, string(change.Kv.Key))
		} else {
			kvs[string(change.Kv.Key)] = change.Kv
		}
	}
	return r.see(rev, kvs)
}

func (r *room) see(rev int64, kvs map[string]*mvccpb.KeyValue) error {
	list := make([]*mvccpb.KeyValue, 0, len(kvs))
	for _, kv := range kvs {
		list = append(list, kv)
	}
	v, err := parseView(r.dir, rev, list)
	if err != nil {
		return err
	}
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	r.kvs, r.view = kvs, v
	r.look()
	return nil
}

// look grants those whose way is free, and passes grants on. Callers have
// rooms.mu.
func (r *room) look() {
	if r.view == nil {
		return
	}
	for _, t := range r.pass(r.view) {
		r.rs.s.tasks.Go(func() { r.rs.s.confirm(t.c, t.h) })
	}
	if r.busy || r.view.rev < r.behind ||
		!slices.ContainsFunc(r.view.promotions(), func(p promotion) bool { return r.waiting[p.waiter.id] != nil }) {
		return
	}
	r.busy = true
	view := r.view
	r.rs.s.tasks.Go(func() { r.grant(view) })
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
func (r *room) grant(v *view) {
	s := r.rs.s
	pause := firstRegrant
	for {
		ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
		kept := s.keepPlaces(ctx, r.owners(v))
		next, err := s.settle(ctx, r.dir, v)
		if err == nil {
			r.rs.mu.Lock()
			r.busy = false
			r.behind = max(r.behind, next.written())
			told := r.pass(next)
			r.look()
			r.rs.mu.Unlock()
			if isTrue(ctx, kept) {
				for _, t := range told {
					s.tell(t.c, t.h)
				}
			}
			cancel()
			return
		}
		cancel()
		if !sleep(s.ctx, pause) {
			return
		}
		pause = min(2*pause, lastRegrant)
	}
}

// owners are the claims that v grants something, with their leases.
func (r *room) owners(v *view) map[clientv3.LeaseID]*claim {
	r.rs.mu.Lock()
	defer r.rs.mu.Unlock()
	m := make(map[clientv3.LeaseID]*claim)
	for _, p := range v.promotions() {
		if c := r.waiting[p.waiter.id]; c != nil {
			m[p.waiter.lease] = c
		}
	}
	return m
}

// keepPlaces renews the leases of places; the channel says whether all live.
func (s *Store) keepPlaces(ctx context.Context, m map[clientv3.LeaseID]*claim) <-chan bool {
	kept := make(chan bool, 1)
	s.tasks.Go(func() {
		for id, c := range m {
			if s.keepPlace(ctx, c, id) != nil {
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
// passes the grant on. If that fails, who waits asks again and is told then.
func (s *Store) confirm(c *claim, h *entry) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(s.ctx), callTimeout)
	defer cancel()
	kept := s.keepPlaces(ctx, map[clientv3.LeaseID]*claim{h.lease: c})
	answer, err := s.client.Get(ctx, h.key)
	if err == nil && len(answer.Kvs) > 0 && answer.Kvs[0].ModRevision >= h.mod && isTrue(ctx, kept) {
		s.tell(c, h)
	}
}

// tell passes a confirmed grant on.
func (s *Store) tell(c *claim, h *entry) {
	if s.claims.held(c, nil, h.mod, h.token, c.req.WaitTTL) {
		s.sinks.Push(store.Event{ID: h.id, Token: h.token})
	}
}

// keepPlace renews the lease of a place.
func (s *Store) keepPlace(ctx context.Context, c *claim, id clientv3.LeaseID) error {
	l := s.leases.of(leaseKind{seconds: seconds(c.req.WaitTTL), places: true}).current()
	if l == nil || l.id != id {
		l = &lease{id: id}
	}
	return s.keepAlive(ctx, l)
}
