package etcd

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// The pauses before grants that failed are tried again.
const (
	firstRegrant = 20 * time.Millisecond
	lastRegrant  = 500 * time.Millisecond
)

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
	begun := s.tasks.Go(func() {
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
	if !begun {
		kept <- false
	}
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
