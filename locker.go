package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// locker is one mode of a lock: a Mutex has one, an RWMutex two. It turns the forms
// of a call (Locker, context, Do) into calls of the core. It keeps the holds of the
// Locker forms, because those return none.
type locker struct {
	client *Client
	config *lockConfig
	mode   store.Mode
	acts   bool // for owner, rather than for the one in the context
	owner  Owner
	held   *heldLists // by Lock and TryLock, also of the values that As made
}

func (l *locker) as(o Owner) locker {
	l.mustBeMade()
	return locker{client: l.client, config: l.config, mode: l.mode, acts: true, owner: o, held: l.held}
}

// mustBeMade panics for a lock that no Client has made.
func (l *locker) mustBeMade() {
	if l.client == nil {
		panic(&Error{Op: l.op("lock"), Err: errZero})
	}
}

func (l *locker) name() string {
	l.mustBeMade()
	return l.config.Name
}

// op is the name that errors show for this mode's form of an operation.
func (l *locker) op(verb string) string {
	if l.mode == store.Exclusive {
		return verb
	}
	return map[string]string{"lock": "rlock", "trylock": "tryrlock", "unlock": "runlock", "do": "rdo"}[verb]
}

func (l *locker) fail(verb string, err error) error {
	e := &Error{Op: l.op(verb), Name: l.config.Name, Err: err}
	if n, ok := err.(*core.NotGranted); ok {
		e.HeldBy, e.Err = n.HeldBy, n.Err
		if !n.HeldSince.IsZero() {
			e.HeldFor = time.Since(n.HeldSince)
		}
	}
	return e
}

// holdAndCall is the memory of a hold and of the call that takes it.
type holdAndCall struct {
	hold Hold
	call core.Call
}

// acquire takes the lock for the owner that l acts for, or that ctx carries, or for
// one of its own. Its errors are bare.
func (l *locker) acquire(ctx context.Context, wait bool) (*Hold, error) {
	l.mustBeMade()
	if l.config.err != nil {
		return nil, l.config.err
	}
	if l.client.opts.Observer != nil {
		return l.observedAcquire(ctx, wait)
	}
	return l.take(ctx, wait)
}

func (l *locker) take(ctx context.Context, wait bool) (*Hold, error) {
	owner, known := l.owner, l.acts
	if !known {
		owner, known = OwnerFrom(ctx)
	}
	c := l.client.core
	if known {
		if !owner.valid() {
			return nil, ErrInvalidOwner
		}
		h := new(Hold)
		h.core.Value = h
		if done, err := c.Reenter(ctx, &l.config.LockConfig, owner.core, l.mode, &h.core); done {
			l.warn(h)
			return h, nil
		} else if err != nil {
			return nil, err
		}
	} else {
		owner.core = core.NewPrivateOwner()
	}
	b := new(holdAndCall)
	h := &b.hold
	h.core.Value = h
	a := &b.call
	a.Client, a.Config, a.Owner, a.Mode, a.Handle = c, &l.config.LockConfig, owner.core, l.mode, &h.core
	a.Try, a.Known = !wait, known
	if err := a.Lock(ctx); err != nil {
		return nil, err
	}
	l.warn(h)
	return h, nil
}

// lockContext is LockContext, and TryLockContext without wait.
func (l *locker) lockContext(ctx context.Context, wait bool) (*Hold, error) {
	h, err := l.acquire(ctx, wait)
	switch {
	case err == nil:
		return h, nil
	case wait:
		return nil, l.fail("lock", err)
	default:
		return nil, l.fail("trylock", err)
	}
}

// warn has the holder told before the hold can end, if it wants that.
func (l *locker) warn(h *Hold) {
	if l.config.grace > 0 {
		h.core.WarnBefore(l.config.grace)
	}
}

// hopeless reports that no later call of a Locker form would end otherwise.
func hopeless(err error) bool {
	return slices.ContainsFunc([]error{
		ErrClosed, ErrForeignKey, ErrInvalidName, ErrInvalidTTL, ErrInvalidOption, ErrInvalidOwner,
	}, func(cause error) bool { return errors.Is(err, cause) })
}

func (l *locker) lock() {
	pause := request.Backoff{Limit: time.Second}
	for tries := 1; ; tries++ {
		h, err := l.acquire(context.Background(), true)
		if err == nil {
			l.held.add(l.owner, h)
			return
		}
		if hopeless(err) || errors.Is(err, ErrUpgrade) || errors.Is(err, core.ErrLostOuter) ||
			errors.Is(err, ErrTooManyHolds) {
			panic(l.fail("lock", err))
		}
		if tries&(tries-1) == 0 { // 1, 2, 4, 8, ...: more and more seldom
			l.client.log.Warn("dlock: Lock goes on trying", "name", l.config.Name, "error", err, "tries", tries)
		}
		pause.Sleep(l.client.core.Closing())
	}
}

func (l *locker) tryLock() bool {
	h, err := l.acquire(context.Background(), false)
	switch {
	case err == nil:
		l.held.add(l.owner, h)
		return true
	case hopeless(err):
		panic(l.fail("trylock", err))
	case !errors.Is(err, ErrHeld):
		l.client.log.Warn("dlock: TryLock could not tell", "name", l.config.Name, "error", err)
	}
	return false
}

func (l *locker) unlock() {
	l.mustBeMade()
	var h *Hold
	var live bool
	if !l.acts || l.owner.valid() { // the zero Owner stands for the value itself
		h, live = l.held.take(l.owner)
	}
	if h == nil {
		panic(l.fail("unlock", errNotLocked))
	}
	_ = h.Unlock() // it logs errors, and OnLost gets losses
	if live {
		l.client.log.Warn("dlock: Unlock ended a lost hold while a later one is held; "+
			"if the goroutine that lost its hold never calls Unlock, the later hold stays: use LockContext or Do",
			"name", l.config.Name)
	}
}

func (l *locker) do(ctx context.Context, fn func(context.Context) error) (err error) {
	h, err := l.acquire(ctx, true)
	if err != nil {
		return l.fail("do", err)
	}
	defer func() {
		unlocked := h.core.Unlock()
		if (errors.Is(unlocked, ErrLost) || errors.Is(unlocked, ErrNotHeld)) && !l.tells(err, unlocked) {
			err = l.joined(err, unlocked)
		}
	}()
	if err := h.core.Err(); err != nil { // MaxHold can be over at once
		return l.fail("do", err)
	}
	return fn(h.context(ctx, true))
}

// joined is fn's error with the loss of the hold, on one line.
func (l *locker) joined(err, end error) error {
	loss := l.fail("do", end)
	switch {
	case err == nil:
		return loss
	case errors.Is(err, end): // fn has returned the cause of its context
		return l.fail("do", err)
	}
	return fmt.Errorf("%w; and %w", err, loss)
}

// tells reports that err says of this lock what end says, because an inner Do has
// joined it already.
func (l *locker) tells(err, end error) bool {
	var inner *Error
	return errors.As(err, &inner) && inner.Name == l.config.Name &&
		(errors.Is(inner, ErrLost) && errors.Is(end, ErrLost) || errors.Is(inner, ErrClosed) && errors.Is(end, ErrClosed))
}
