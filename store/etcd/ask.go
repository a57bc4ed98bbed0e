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

// ask is one call of Acquire.
type ask struct {
	s     *Store
	req   store.Request
	dir   string
	key   string
	began time.Time
	claim *claim
	fresh bool   // the handle had no note of the id before
	lease *lease // for the hold
	place *lease // for the place, if one was asked for
	own   *lease // that was granted for this fixed hold, by this call
}

func (a *ask) run(ctx context.Context) (store.Grant, error) {
	s := a.s
	if err := a.takeLease(ctx); err != nil {
		return store.Grant{}, err
	}
	a.claim, a.fresh = s.claims.track(a.req, a.dir, a.key)
	e := newEntry(a.key, a.req)
	put, otherwise := clientv3.OpPut(a.key, e.asHold(newToken(0)), clientv3.WithLease(a.lease.id)), a.otherwise(e)
	leaving, over := s.departures.join(a.dir)
	if leaving != nil {
		otherwise = leaving.instead(a.dir, put, otherwise)
	}
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(a.dir).WithPrefix(), "=", 0)).
		Then(put).
		Else(otherwise).
		Commit()
	if err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			over(false, nil) // so nothing was done
		} else {
			over(false, err)
		}
		return store.Grant{}, a.failed(err)
	}
	instead := leaving != nil && !answer.Succeeded && answer.Responses[0].GetResponseTxn().Succeeded
	over(instead, nil)
	if answer.Succeeded || instead {
		return a.held(answer.Header.Revision, tokenAt(answer.Header.Revision), 1)
	}
	v, err := viewOf(a.dir, answer)
	there := false
	for err == nil {
		var g store.Grant
		var done bool
		there = find(v.queue, a.req.ID) != nil || find(v.holds, a.req.ID) != nil
		if g, v, done, err = a.decide(ctx, v); done {
			return g, err
		}
	}
	err = a.failed(err)
	if there && errors.Is(s.outcome(err), store.ErrRefused) {
		err = fmt.Errorf("refused amid the call: %v", err) // which has changed something by then
	}
	return store.Grant{}, err
}

// undo sees to it that an ask which ends with a refusal has left nothing: not a place
// that it took before it came upon what is foreign, and not what etcd has written and
// says that it has no space for. What the id had before is its caller's to release.
func (a *ask) undo(ctx context.Context, refusal error) error {
	if !a.fresh {
		return refusal
	}
	a.s.rooms.leave(a.claim)
	if errors.Is(refusal, rpctypes.ErrNoSpace) || errors.Is(refusal, store.ErrForeignKey) {
		if there, _, err := a.s.claims.delete(ctx, a.claim); there || err != nil {
			a.s.claims.endNow(a.claim)
			return fmt.Errorf("%v, and what it may have left is not deleted yet: %v", refusal, err)
		}
	}
	a.s.claims.forget(a.claim)
	return refusal
}

// otherwise is what happens if the name is not free: a look. A writer who may
// wait takes a place at once, if there is a lease for it, since most of the time
// that is what comes of it.
func (a *ask) otherwise(e *entry) clientv3.Op {
	get := clientv3.OpGet(a.dir, clientv3.WithPrefix())
	l := a.s.leases.of(placesFor(a.req)).current()
	if !a.req.Queue || a.req.Mode != store.Exclusive || l == nil || l.remains(a.began) < a.req.WaitTTL/3 || !a.s.claims.alone(a.claim) {
		return get
	}
	a.place = l
	return clientv3.OpTxn(a.notThere(), []clientv3.Op{clientv3.OpPut(a.key, e.asWaiter(), clientv3.WithLease(l.id)), get}, []clientv3.Op{get})
}

// notThere is that the id has neither a key nor a tombstone.
func (a *ask) notThere() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(a.key), "=", 0),
		clientv3.Compare(clientv3.CreateRevision(tombstone(a.key)), "=", 0),
	}
}

// takeLease finds the lease that the hold will hang on: for a fixed one its own.
func (a *ask) takeLease(ctx context.Context) (err error) {
	kind := holdsFor(a.req.TTL)
	if c := a.s.claims.find(a.req.ID); c != nil && a.req.Fixed {
		if a.lease, _, _, _ = a.s.claims.known(c); a.lease != nil {
			return nil
		}
	}
	if a.req.Fixed {
		if a.own, err = a.s.grantLease(ctx, kind.seconds); err != nil {
			return err
		}
		a.own.own = true
		a.lease = a.own
		return nil
	}
	a.lease, err = a.s.leases.get(ctx, kind, a.req.TTL*2/3)
	return err
}

// failed sees to a lease that has died unexpectedly. The error does not say
// which it was.
func (a *ask) failed(err error) error {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		a.s.leases.of(holdsFor(a.req.TTL)).drop(a.lease)
		a.s.leases.of(placesFor(a.req)).drop(a.place)
	}
	return err
}

// decide takes one step on what v says: done with an answer, or the next view.
func (a *ask) decide(ctx context.Context, v *view) (g store.Grant, next *view, done bool, err error) {
	s, id := a.s, a.req.ID
	if v.buried[id] {
		s.rooms.leave(a.claim)
		s.claims.forget(a.claim)
		return g, nil, true, store.ErrLost
	}
	// Rule 1: the id is a hold.
	if h := find(v.holds, id); h != nil {
		if next, err = a.extend(ctx, h); err != nil || next != nil {
			return g, next, false, err
		}
		g, err = a.held(h.mod, h.token, v.count(h.owner))
		return g, nil, true, err
	}
	if next, err = s.settle(ctx, a.dir, v); err != nil || next != v {
		return g, next, false, err
	}
	w := find(v.queue, id)
	e := w
	if e == nil {
		e = newEntry(a.key, a.req)
	}
	d := v.verdict(e)
	switch {
	case d.granted: // rules 2 and 3
		token := newToken(0)
		if !d.fresh {
			token = fixedToken(d.on.token)
		}
		next, _, err := s.commit(ctx, a.dir, v, []promotion{{waiter: e, on: d.on, token: token}}, a.lease.id)
		return g, next, false, err // where it is found as a hold, if it is one now
	case d.upgrade:
		if w != nil {
			if next, err := a.giveUp(ctx, w); err != nil || next != nil {
				return g, next, false, err
			}
		}
		s.rooms.leave(a.claim)
		s.claims.forget(a.claim)
		return g, nil, true, store.ErrUpgrade
	case !a.req.Queue:
		if w == nil {
			s.rooms.leave(a.claim)
			s.claims.forget(a.claim)
		}
		return store.Grant{Retry: v.retry(e.owner, v.position(id)), HeldBy: v.heldBy(e.owner)}, nil, true, store.ErrHeld
	case w == nil:
		next, err := a.enqueue(ctx, e)
		return g, next, false, err
	}
	return a.wait(ctx, v, w)
}

// extend hangs a hold that is there already on the lease for its TTL, unless it
// hangs on one that lives longer.
func (a *ask) extend(ctx context.Context, h *entry) (*view, error) {
	s := a.s
	if l, _, _, _ := s.claims.known(a.claim); l != nil && l.id == h.lease && l.seconds >= a.lease.seconds {
		a.lease = l
		return nil, s.keepAlive(ctx, l)
	}
	if h.lease != a.lease.id {
		answer, err := s.client.TimeToLive(ctx, h.lease)
		if err != nil {
			return nil, err
		}
		if time.Duration(answer.TTL)*time.Second > a.req.TTL {
			a.lease = &lease{id: h.lease, seconds: answer.GrantedTTL, until: a.began.Add(time.Duration(answer.TTL) * time.Second)}
			return nil, nil
		}
	}
	return s.rehang(ctx, a.dir, h, a.lease)
}

// enqueue takes a place, and returns what there is after that.
func (a *ask) enqueue(ctx context.Context, e *entry) (*view, error) {
	l, err := a.placeLease(ctx)
	if err != nil {
		return nil, err
	}
	get := clientv3.OpGet(a.dir, clientv3.WithPrefix())
	answer, err := a.s.client.Txn(ctx).
		If(a.notThere()...).
		Then(clientv3.OpPut(a.key, e.asWaiter(), clientv3.WithLease(l.id)), get).
		Else(get).
		Commit()
	if err != nil {
		return nil, err
	}
	return viewOf(a.dir, answer)
}

// giveUp deletes a place. If it is not what it was, there may be a hold by now, and the
// view of that is returned.
func (a *ask) giveUp(ctx context.Context, w *entry) (*view, error) {
	answer, err := a.s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(a.key), "=", w.mod)).
		Then(clientv3.OpDelete(a.key)).
		Else(clientv3.OpGet(a.dir, clientv3.WithPrefix())).
		Commit()
	if err != nil || answer.Succeeded {
		return nil, err
	}
	return viewOf(a.dir, answer)
}

// wait keeps a place whose way is not free.
func (a *ask) wait(ctx context.Context, v *view, w *entry) (store.Grant, *view, bool, error) {
	if !a.s.claims.waits(a.claim, w.mod) {
		// Its time was up before this answer came, and its key is being deleted,
		// unless it is written anew before.
		a.s.claims.forget(a.claim)
		a.claim, _ = a.s.claims.track(a.req, a.dir, a.key)
		w.lease = clientv3.NoLease
	}
	a.s.rooms.enter(a.claim)
	if a.s.claims.find(a.req.ID) != a.claim {
		a.s.rooms.leave(a.claim) // it was released meanwhile
	}
	l, err := a.placeLease(ctx)
	if err != nil {
		return store.Grant{}, nil, false, err
	}
	next, err := a.s.rehang(ctx, a.dir, w, l)
	if err != nil || next != nil {
		return store.Grant{}, next, false, err
	}
	a.s.claims.waits(a.claim, w.mod)
	position := v.position(w.id)
	return store.Grant{
		Token: tokenAt(v.rev) | (maxTokens - 1), Position: position, Retry: v.retry(w.owner, position),
		HeldBy: v.heldBy(w.owner),
	}, nil, true, nil
}

// placeLease is one that lives for WaitTTL after this ask began.
func (a *ask) placeLease(ctx context.Context) (l *lease, err error) {
	a.place, err = a.s.leases.get(ctx, placesFor(a.req), time.Until(a.began.Add(a.req.WaitTTL)))
	return a.place, err
}

func (a *ask) held(mod int64, token uint64, holds int) (store.Grant, error) {
	s := a.s
	s.rooms.leave(a.claim)
	if !s.claims.held(a.claim, a.lease, mod, token, a.req.TTL) {
		// What there is may be deleted yet. Who asks again when it is known has it; until
		// then there is a note of it, so that it ends if nobody does.
		c, fresh := s.claims.track(a.req, a.dir, a.key)
		if time.Since(a.began) >= a.req.TTL { // with this answer the hold itself is over
			if fresh || c == a.claim { // else it is that of another ask
				s.claims.endNow(c)
			}
			return store.Grant{}, store.ErrLost
		}
		return store.Grant{}, errors.New("the time of its place was up before this answer came")
	}
	return store.Grant{Held: true, Token: token, TTL: min(a.req.TTL, a.lease.remains(a.began)), Holds: holds}, nil
}
