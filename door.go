package dlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// door is one mode of a lock as its user meets it: a Mutex has one, an RWMutex
// two. It turns the forms of the call (Locker, context, Do) into acquisitions,
// and remembers the handles that the Locker forms, which return none, hold.
type door struct {
	client *Client
	terms  *terms
	mode   store.Mode
	acts   bool // for owner, rather than for the one in the context
	owner  Owner

	mu   sync.Mutex
	held []*Hold // by Lock and TryLock, in their order
}

func (d *door) as(o Owner) door {
	return door{client: d.client, terms: d.terms, mode: d.mode, acts: true, owner: o}
}

// op is the name that errors show for this door's form of an operation.
func (d *door) op(verb string) string {
	if d.mode == store.Exclusive {
		return verb
	}
	return map[string]string{"lock": "rlock", "trylock": "tryrlock", "unlock": "runlock", "do": "rdo"}[verb]
}

func (d *door) fail(verb string, err error) error {
	return &Error{Op: d.op(verb), Name: d.terms.name, Err: err}
}

// ownerFor says for whom a call with ctx acts.
func (d *door) ownerFor(ctx context.Context) (Owner, error) {
	o, ok := d.owner, d.acts
	if !ok {
		o, ok = OwnerFrom(ctx)
	}
	switch {
	case !ok:
		return newPrivateOwner(), nil
	case !o.valid():
		return o, ErrInvalidOwner
	}
	return o, nil
}

func (d *door) acquire(ctx context.Context, wait bool) (*Hold, error) {
	if d.terms.err != nil {
		return nil, d.terms.err
	}
	owner, err := d.ownerFor(ctx)
	if err != nil {
		return nil, err
	}
	return d.client.acquire(ctx, d.terms, owner, d.mode, wait)
}

func (d *door) lockContext(ctx context.Context) (*Hold, error) {
	h, err := d.acquire(ctx, true)
	if err != nil {
		return nil, d.fail("lock", err)
	}
	return h, nil
}

func (d *door) tryLockContext(ctx context.Context) (*Hold, error) {
	h, err := d.acquire(ctx, false)
	if err != nil {
		return nil, d.fail("trylock", err)
	}
	return h, nil
}

// hopeless: no later call of a Locker form would end otherwise.
func hopeless(err error) bool {
	for _, cause := range []error{
		ErrClosed, ErrForeignKey, ErrInvalidName, ErrInvalidTTL, ErrInvalidOwner,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

func (d *door) lock() {
	pause := backoff{limit: time.Second}
	for {
		h, err := d.acquire(context.Background(), true)
		if err == nil {
			d.keep(h)
			return
		}
		if hopeless(err) || errors.Is(err, ErrUpgrade) || errors.Is(err, errNested) || errors.Is(err, ErrTooManyHolds) {
			panic(d.fail("lock", err))
		}
		d.client.log.Warn("dlock: Lock goes on trying", "name", d.terms.name, "error", err)
		pause.sleep(d.client.closing)
	}
}

func (d *door) tryLock() bool {
	h, err := d.acquire(context.Background(), false)
	switch {
	case err == nil:
		d.keep(h)
		return true
	case hopeless(err):
		panic(d.fail("trylock", err))
	case !errors.Is(err, ErrHeld):
		d.client.log.Warn("dlock: TryLock could not tell", "name", d.terms.name, "error", err)
	}
	return false
}

func (d *door) keep(h *Hold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = append(d.held, h)
}

func (d *door) unlock() {
	h := d.takeHeld()
	if h == nil {
		panic(d.fail("unlock", ErrNotHeld))
	}
	_ = h.Unlock() // what went wrong is logged there and, if lost, told to OnLost
}

// takeHeld picks the handle that an Unlock without one means. The last, unless
// one has been lost: its critical section is void, and whoever unlocks next
// must not release the lock under somebody else who holds it by now. At worst
// a live hold is released one Unlock later than its own.
func (d *door) takeHeld() *Hold {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.held) == 0 {
		return nil
	}
	i := slices.IndexFunc(d.held, func(h *Hold) bool { return !h.live() })
	if i < 0 {
		i = len(d.held) - 1
	}
	h := d.held[i]
	d.held = slices.Delete(d.held, i, i+1)
	return h
}

func (d *door) do(ctx context.Context, fn func(context.Context) error) (err error) {
	h, err := d.acquire(ctx, true)
	if err != nil {
		return d.fail("do", err)
	}
	defer func() {
		unlocked := h.unlock()
		if (errors.Is(unlocked, ErrLost) || errors.Is(unlocked, ErrNotHeld)) && !d.tells(err, unlocked) {
			err = errors.Join(err, d.fail("do", unlocked))
		}
	}()
	return fn(h.doContext(ctx))
}

// tells reports that err says of this lock what end says: an inner Do has
// joined it already, and once is enough.
func (d *door) tells(err, end error) bool {
	var inner *Error
	return errors.As(err, &inner) && inner.Name == d.terms.name &&
		(errors.Is(inner, ErrLost) && errors.Is(end, ErrLost) || errors.Is(inner, ErrClosed) && errors.Is(end, ErrClosed))
}
