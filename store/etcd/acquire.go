package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/store"
)

// Acquire implements [store.Store]. On a free name it takes one round trip, as does one that is refused, and a
// repeated one that waits. The first to wait for a name takes up to three. One more is for a lease: at the
// first request of a TTL, for each 256th hold, and when less than two thirds of the TTL are left of it. Requests of
// one moment share calls. It blocks until answered or ctx ends.
func (s *Store) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if err := s.ready(ctx); err != nil {
		return store.Grant{}, err
	}
	if req.Tokens > maxTokens {
		err := fmt.Errorf("etcd: %w: %d tokens at once, of %d that are possible", store.ErrRefused, req.Tokens, maxTokens)
		return store.Grant{}, err
	}
	a := &ask{s: s, req: req, idKeys: s.keys.keysOf(req.Name, req.Owner, req.ID, req.Mode)}
	a.kind, a.lasts, a.atLeast = holdsFor(req.TTL), req.TTL, req.TTL*2/3
	if req.Fixed { // nothing renews it
		a.atLeast = req.TTL
	}
	g, err := store.Grant{}, errOvertaken
	for err == errOvertaken {
		a.began = time.Now()
		if err = a.track(ctx); err == nil {
			g, err = a.acquire(ctx)
		}
		a.there = a.there || err == errOvertaken
	}
	a.checkLeases(ctx, err)
	out := s.outcome(err)
	if a.there && (errors.Is(out, store.ErrRefused) || errors.Is(out, store.ErrClosed)) {
		return g, fmt.Errorf("etcd: refused after the call had changed something: %v", err)
	}
	if a.fresh && (errors.Is(out, store.ErrRefused) || errors.Is(out, store.ErrForeignKey)) {
		out = a.undo(ctx, out)
	}
	return g, out
}

// track finds the record of the id, or makes one. Keys whose time is up go first, as if they had gone by themselves.
func (a *ask) track(ctx context.Context) error {
	for {
		a.r, a.fresh = a.s.records.track(a.req, a.idKeys)
		if a.since = a.s.records.read(a.r); !a.since.over {
			return nil
		}
		a.s.records.expire(a.r, time.Now())
		if err := a.s.records.end(ctx, a.r); err != nil {
			return err
		}
	}
}

// undo sees to it that a refused ask has left nothing: not a place that it took before it met a foreign key,
// and not what etcd has written and says that it has no space for. What the id had before is its caller's to
// release.
func (a *ask) undo(ctx context.Context, refusal error) error {
	if errors.Is(refusal, rpctypes.ErrNoSpace) || errors.Is(refusal, store.ErrForeignKey) {
		a.s.records.expire(a.r, time.Time{})
		if err := a.s.records.end(ctx, a.r); err != nil {
			return fmt.Errorf("%v, and what it may have left is not deleted yet: %v", refusal, err)
		}
	}
	a.s.forget(a.r)
	return refusal
}

// acquire asks until there is an answer.
func (a *ask) acquire(ctx context.Context) (g store.Grant, err error) {
	e := newEntry(a.idKeys, a.req)
	for h, v, err := a.begin(ctx, e); ; h = nil {
		if err == nil {
			a.there = a.there || find(v.queue, e.id) != nil || find(v.holds, e.id) != nil
			h, v, err = a.run(ctx, e, h, v)
		}
		switch {
		case err != nil:
			return g, err
		case h != nil:
			a.s.watches.leave(a.r)
			g = store.Grant{Held: true, Token: h.token, Short: h.short(a.req.Tokens), Holds: v.holdsOf(h)}
			g.TTL = min(a.req.TTL, a.s.leases.remains(a.lease, a.began))
			return g, nil
		}
		if g, v, err = a.waits(ctx, e, v); v == nil {
			return g, err
		}
	}
}

// begin sends the first transaction. A repeated request that waits only looks.
func (a *ask) begin(ctx context.Context, e *entry) (h *entry, v *view, err error) {
	s := a.s
	if a.since.state == waiting {
		v, err = s.look(ctx, a.dir)
		return nil, v, err
	}
	s.releases.wait(ctx, a.dir)
	l, err := a.leaseForHold(ctx)
	if err != nil {
		return nil, nil, err
	}
	// If the name is not free, it takes a place at once where requests of this handle wait or did so lately.
	otherwise := a.look()
	if a.req.Queue && s.watches.has(a.dir) {
		place, err := a.leaseForPlace(ctx)
		if err != nil {
			return nil, nil, err
		}
		otherwise = e.take(place.id)
	}
	revision, v, err := s.try(ctx, a.dir, e.enter(l.id, otherwise))
	if revision > 0 {
		h, v = e.becomes(e.first(), revision, 0, l.id), &view{}
	}
	return h, v, err
}

// leaseForPlace is one for the place, that lives for WaitTTL after this call began.
func (a *ask) leaseForPlace(ctx context.Context) (*lease, error) {
	return a.s.records.leaseFor(ctx, a.r, placesFor(a.req.WaitTTL), time.Until(a.began.Add(a.req.WaitTTL)))
}

// waits answers a request that is not granted, or returns the next view if what it sees changes.
func (a *ask) waits(ctx context.Context, e *entry, v *view) (g store.Grant, now *view, err error) {
	s, w := a.s, find(v.queue, a.id)
	_, upgrade := v.grants(e)
	switch g = v.answer(e); {
	case v.buried[a.id]:
		s.forget(a.r)
		return store.Grant{}, nil, store.ErrLost
	case upgrade:
		if w != nil { // it gives up its place, unless that is a hold by now
			_, now, err = s.try(ctx, a.dir, clientv3.OpTxn([]clientv3.Cmp{still(w.key, w.create)},
				[]clientv3.Op{clientv3.OpDelete(w.key)}, []clientv3.Op{a.look()}))
			if err != nil || now != nil {
				return g, now, err
			}
		}
		s.forget(a.r)
		return store.Grant{HeldBy: g.HeldBy}, nil, store.ErrUpgrade
	case !a.req.Queue:
		if w == nil {
			s.forget(a.r)
		}
		g.Position, g.Token = 0, 0
		return g, nil, store.ErrHeld
	}
	l, err := a.leaseForPlace(ctx)
	switch {
	case err != nil:
		return g, nil, err
	case w == nil:
		_, now, err = s.try(ctx, a.dir, e.take(l.id))
		return g, now, err
	case !s.records.note(a.r, a.since, w, nil, a.req.WaitTTL):
		return g, nil, errOvertaken
	case w.lease != l.id:
		now, err = s.rehang(ctx, w, l)
	}
	if err == nil && now == nil {
		s.watches.enter(a.r, w, v)
	}
	return g, now, err
}
