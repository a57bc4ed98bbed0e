package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// run does the visits of a task.
func (w *world) run(t Task) {
	for _, v := range t.Visits {
		w.visit(t.Client, v)
		if w.ctx.Err() != nil {
			return
		}
	}
}

// visit takes a lock, and perhaps again inside, and gives it back.
func (w *world) visit(client int, v Visit) {
	time.Sleep(v.Think)
	var opts []dlock.LockOption
	if v.TTL > 0 {
		opts = append(opts, dlock.WithTTL(v.TTL))
	}
	if v.Fixed {
		opts = append(opts, dlock.WithoutRenewal())
	}
	if v.MaxHold > 0 {
		opts = append(opts, dlock.WithMaxHold(v.MaxHold))
	}
	ctx := w.ctx
	if v.Owner >= 0 {
		ctx = dlock.WithOwner(ctx, w.owners[v.Owner])
	}
	b := &bout{world: w, client: client, visit: v, lock: w.slots[client].now().RWMutex(lockName(v.Name), opts...)}
	outer := b.take(ctx, v.Shared, v.Try, nil)
	if outer == nil {
		return
	}
	b.stay(v.Hold, outer)
	if v.Nest == NoNest {
		b.give(outer)
		return
	}
	shared := v.Shared && v.Nest == NestSame || v.Nest == NestRead
	inside := outer.hold.Context(ctx)
	if outer.hold.Err() != nil { // that context has ended; with another, too, nobody builds on what is lost
		inside = dlock.WithOwner(ctx, outer.hold.Owner())
	}
	inner := b.take(inside, shared, v.NestTry, outer)
	if inner == nil {
		b.give(outer)
		return
	}
	b.stay(v.NestHold, inner)
	if v.OuterFirst {
		outer, inner = inner, outer
	}
	b.give(inner)
	b.stay(v.NestHold, outer)
	b.give(outer)
}

// bout is one visit as it happens.
type bout struct {
	world  *world
	client int
	visit  Visit
	lock   *dlock.RWMutex
}

// held is a hold and what was written down of it.
type held struct {
	hold  *dlock.Hold
	claim *Claim
	done  <-chan struct{}
}

// take takes the lock, under outer if that is not nil.
func (b *bout) take(ctx context.Context, shared, try bool, outer *held) *held {
	lock := b.lock.LockContext
	switch {
	case shared && try:
		lock = b.lock.TryRLockContext
	case shared:
		lock = b.lock.RLockContext
	case try:
		lock = b.lock.TryLockContext
	}
	ctx, end := b.bounded(ctx)
	defer end()
	lost := outer != nil && errors.Is(outer.hold.Err(), dlock.ErrLost)
	called, began := b.world.history.begin(), time.Now()
	hold, err := lock(ctx)
	if err != nil {
		b.judge(ctx, err, shared, try, outer, time.Since(began))
		return nil
	}
	if lost {
		b.world.history.complain(fmt.Sprintf("%q: token %d is nested in a lost hold", hold.Name(), hold.Token()))
	}
	h := &held{hold: hold, claim: &Claim{
		Name: hold.Name(), Client: b.client, Private: b.visit.Owner < 0, Shared: shared, Nested: outer != nil,
		Token: hold.Token(), Called: called,
	}}
	b.world.history.claimed(h)
	if outer != nil && h.claim.Private && outer.claim.Shared == shared && hold.Token() != outer.claim.Token {
		b.world.history.complain(fmt.Sprintf("%q: a nested hold has token %d, its outer one %d", hold.Name(), hold.Token(), outer.claim.Token))
	}
	return h
}

// bounded ends ctx when the visit's patience does.
func (b *bout) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if !b.visit.Cancel {
		return context.WithTimeout(ctx, b.visit.Patience)
	}
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(b.visit.Patience, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// patient: a wait that the store's silence ends lasts for about a TTL. Half of one
// leaves room for the pauses between asks.
func (b *bout) patient(waited time.Duration) bool { return waited >= b.ttl()/2 }

// hasty: a node of a quorum that misbehaves may cost its timeout, of which there are
// two at most in an ask, each at most a tenth of the TTL. Who leaves sooner may have
// waited for that.
func (b *bout) hasty(ctx context.Context, waited time.Duration) bool {
	return b.world.plan.Nodes > 0 && ctx.Err() != nil && waited < b.ttl()/5
}

func (b *bout) ttl() time.Duration {
	if b.visit.TTL != 0 {
		return b.visit.TTL
	}
	return b.world.plan.Clients[b.client].TTL
}

// judge complains of an error that nothing explains.
func (b *bout) judge(ctx context.Context, err error, shared, try bool, outer *held, waited time.Duration) {
	p := b.world.plan
	faulty, deeds := len(p.Faults) > 0, len(p.Deeds) > 0
	broken := slices.ContainsFunc(p.Deeds, func(d Deed) bool { return d.Break == b.visit.Name })
	within := outer != nil && !outer.claim.Shared && outer.hold.Err() == nil
	// With a node silent, and another a waiter's, who holds already may get no majority in two timeouts of a twentieth
	// of the TTL.
	holds := outer != nil || b.visit.Owner >= 0
	silent := holds && try && p.Nodes > 0 && errors.Is(err, dlock.ErrUnavailable) && waited >= b.ttl()/10
	switch {
	case silent:
	case within && !faulty && !deeds && !b.hasty(ctx, waited): // who holds for writing waits for nobody
		b.world.history.complain(fmt.Sprintf("%q, within its own lock: %v", b.lock.Name(), err))
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, dlock.ErrHeld) && try:
	case errors.Is(err, dlock.ErrUpgrade) && !shared:
	case errors.Is(err, dlock.ErrClosed) && deeds:
	case errors.Is(err, dlock.ErrLost) && (faulty || broken || outer != nil || b.visit.Owner >= 0):
	case errors.Is(err, dlock.ErrUnavailable) && faulty && (try || b.patient(waited)):
	case errors.Is(err, dlock.ErrRefused) && p.has(Refusal):
	default:
		b.world.history.complain(fmt.Sprintf("%q: %v", b.lock.Name(), err))
	}
}

// stay holds h for d, or until it is lost.
func (b *bout) stay(d time.Duration, h *held) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.hold.Done():
	}
}

// give unlocks h.
func (b *bout) give(h *held) {
	b.world.history.given(h)
	err := h.hold.Unlock()
	p := b.world.plan
	switch {
	case err == nil:
	case errors.Is(err, dlock.ErrLost):
		if !errors.Is(h.hold.Err(), dlock.ErrLost) {
			b.world.history.disowned(h)
		}
		if p.groundless(b.client, b.visit) {
			b.world.history.complain(fmt.Sprintf("%q: token %d is lost, and nothing has happened: %v", b.lock.Name(), h.hold.Token(), err))
		}
	case errors.Is(err, dlock.ErrClosed) && len(p.Deeds) > 0:
	case (errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, store.ErrRefused)) && len(p.Faults) > 0:
	default:
		b.world.history.complain(fmt.Sprintf("%q: Unlock: %v", b.lock.Name(), err))
	}
}

// claimed writes down that a claim begins. Claims whose Done is closed by then
// have ended before it; the order within the nanosecond is that of this mutex. If Close
// has ended the hold before its call returned, there is no claim: nobody can act by it.
func (h *History) claimed(x *held) {
	x.done = x.hold.Done()
	h.mu.Lock()
	h.endLost()
	select {
	case <-x.done:
		if errors.Is(x.hold.Err(), dlock.ErrClosed) {
			h.mu.Unlock()
			return
		}
	default:
	}
	c := x.claim
	c.Owner = h.number(x.hold.Owner().String())
	c.From, c.Until = h.moment(), never
	h.Claims = append(h.Claims, c)
	h.live = append(h.live, x)
	h.mu.Unlock()
	go func() {
		<-x.done
		h.mu.Lock()
		defer h.mu.Unlock()
		h.endLost()
	}()
}

// endLost ends the claims whose Done is closed. h.mu is held.
func (h *History) endLost() {
	now := h.moment()
	h.live = slices.DeleteFunc(h.live, func(x *held) bool {
		select {
		case <-x.done:
			x.claim.Until, x.claim.Lost = now, true
			return true
		default:
			return false
		}
	})
}

// given writes down that a claim's holder is about to unlock.
func (h *History) given(x *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLost()
	now := h.count()
	if i := slices.Index(h.live, x); i >= 0 {
		x.claim.Until = now
		h.live = slices.Delete(h.live, i, i+1)
	}
}

// disowned writes down that Unlock called a hold lost that it had ended itself.
func (h *History) disowned(x *held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.claim.Disowned = true
}
