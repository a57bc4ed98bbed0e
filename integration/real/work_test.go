package real

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
)

// act does one random thing with one lock.
func (w *worker) act(rng *rand.Rand) {
	name := w.Names[rng.IntN(len(w.Names))]
	lock := w.client.RWMutex(name)
	p := &party{worker: w, number: int(w.parties.Add(1)), rng: rng, lock: lock}
	shared := rng.IntN(5) < 2
	// Longer than any hold, or so short that it ends at any point of the call.
	patience := time.Duration(rng.Int64N(int64(2*w.TTL))) + w.TTL
	if rng.IntN(6) == 0 {
		patience = time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	try := rng.IntN(6) == 0
	if n := len(w.owners); n > 0 && rng.IntN(3) == 0 {
		i := rng.IntN(n)
		p.number = -1 - i
		ctx = dlock.WithOwner(ctx, w.owners[i])
	}
	c := p.take(ctx, shared, try)
	if c == nil {
		return
	}
	switch rng.IntN(8) {
	case 0: // nested, in the same mode or for reading; either is given back first
		p.nest(c, shared || rng.IntN(2) == 0)
	case 1: // an upgrade, which may be refused, or nested writing
		p.nest(c, false)
	default:
		p.access(c)
		c.unlock()
	}
}

// hoard holds a name until the work is over, and takes it again when it is lost.
func (w *worker) hoard(name string) {
	p := &party{worker: w, number: int(w.parties.Add(1)), lock: w.client.RWMutex(name)}
	for w.ctx.Err() == nil {
		if c := p.take(w.ctx, false, false); c != nil {
			select {
			case <-c.hold.Done():
			case <-w.ctx.Done():
			}
			c.unlock()
		}
		select {
		case <-time.After(w.TTL / 4):
		case <-w.ctx.Done():
		}
	}
}

// party is one owner, with all its nested calls.
type party struct {
	worker *worker
	number int // negative: an explicit owner, which may act in several workers at once
	rng    *rand.Rand
	lock   *dlock.RWMutex
	token  uint64 // the greatest that it got: after an upgrade was given back, its own writing bars the older one
}

// claim is a hold that its party believes in.
type claim struct {
	party  *party
	hold   *dlock.Hold
	shared bool
	number int
	over   chan struct{} // closed when its end is recorded
}

// take returns nil if the lock was not got.
func (p *party) take(ctx context.Context, shared, try bool) *claim {
	f := p.lock.LockContext
	switch {
	case shared && try:
		f = p.lock.TryRLockContext
	case shared:
		f = p.lock.RLockContext
	case try:
		f = p.lock.TryLockContext
	}
	call := now()
	h, err := f(ctx)
	r := record{Op: opLock, Call: call, Return: now(), Name: p.lock.Name(), Shared: shared, Party: p.number}
	if err != nil {
		r.Outcome, r.Error = outcome(err), message(err)
		if ctx.Err() != nil {
			r.Outcome = stopped
		}
		p.worker.journal.add(r)
		return nil
	}
	c := &claim{party: p, hold: h, shared: shared, number: int(p.worker.handles.Add(1)), over: make(chan struct{})}
	r.Outcome, r.Token, r.Handle = held, h.Token(), c.number
	p.token = max(p.token, r.Token)
	p.worker.journal.add(r)
	go func() {
		defer close(c.over)
		<-h.Done()
		c.ends(now(), lost)
	}()
	return c
}

// ends records that the claim is over. There may be two such records, of which
// the earlier counts.
func (c *claim) ends(at moment, why string) {
	c.party.worker.journal.add(record{Op: opEnd, Call: at, Name: c.hold.Name(), Handle: c.number, Outcome: why})
}

func (c *claim) unlock() {
	call := now()
	c.ends(call, unlocked)
	err := c.hold.Unlock()
	<-c.over
	c.party.worker.journal.add(record{Op: opUnlock, Call: call, Return: now(), Name: c.hold.Name(), Handle: c.number,
		Outcome: outcome(err), Error: message(err)})
}

// nest takes the lock again within outer.
func (p *party) nest(outer *claim, shared bool) {
	p.access(outer)
	ctx, cancel := context.WithTimeout(p.worker.ctx, p.worker.TTL)
	defer cancel()
	inner := p.take(outer.hold.Context(ctx), shared, false)
	if inner == nil {
		outer.unlock()
		return
	}
	p.access(inner)
	if p.rng.IntN(3) == 0 { // a writer that reads on, among others
		outer.unlock()
		p.access(inner)
		inner.unlock()
		return
	}
	inner.unlock()
	p.access(outer)
	outer.unlock()
}

// access reads the register, works, and writes what follows from what it read.
// It is careless: that its hold may be lost meanwhile is the register's concern. An
// explicit owner only works: its holds in several places do not exclude each other.
func (p *party) access(c *claim) {
	if p.number < 0 {
		p.work(c)
		return
	}
	w := p.worker
	key, token := w.Keys+c.hold.Name(), p.token
	r := record{Op: opRead, Name: c.hold.Name(), Token: token, Handle: c.number, Call: now()}
	base, ok, err := w.register.read(key, token)
	r.Return, r.Version = now(), base
	r.Outcome, r.Error = verdict(ok, err), message(err)
	w.journal.add(r)
	if err != nil || !ok {
		return
	}
	p.work(c)
	if c.shared {
		return
	}
	r = record{Op: opWrite, Name: c.hold.Name(), Token: token, Handle: c.number, Base: base, Serial: int(w.serials.Add(1)), Call: now()}
	version, ok, err := w.register.write(key, token, base, writer(w.Worker, r.Serial))
	r.Return, r.Version = now(), version
	r.Outcome, r.Error = verdict(ok, err), message(err)
	w.journal.add(r)
}

// writer names a write in the log of the register.
func writer(worker, serial int) string { return fmt.Sprint(worker, ".", serial) }

func verdict(ok bool, err error) string {
	switch {
	case err != nil:
		return unknown
	case !ok:
		return refused
	}
	return done
}

// work is short, but now and then so long that the hold has to be renewed. While
// the worker is slow all of it is long: a fault that keeps a lease from being
// renewed makes a difference only to those who hold for so long. A loss does not
// stop it at once.
func (p *party) work(c *claim) {
	ttl := int64(p.worker.TTL)
	d := time.Duration(p.rng.Int64N(int64(6 * time.Millisecond)))
	switch n := p.rng.IntN(100); {
	case n < 3:
		d = time.Duration(ttl/2 + p.rng.Int64N(ttl/2))
	case n < 25:
		d = time.Duration(p.rng.Int64N(int64(40 * time.Millisecond)))
	}
	var quick chan struct{}
	if slow := p.worker.slow.Load(); slow != nil {
		quick, d = *slow, time.Duration(2*ttl+p.rng.Int64N(2*ttl))
	}
	select {
	case <-time.After(d):
	case <-quick:
	case <-p.worker.ctx.Done(): // what is left of it is done all the same
	case <-c.hold.Done():
		time.Sleep(time.Duration(p.rng.Int64N(int64(100 * time.Millisecond))))
	}
}
