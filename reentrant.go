package dlock

import (
	"context"
)

// Mutex is a lock that one owner holds at a time, over all processes that use
// the same store. It is a [sync.Locker] and safe for concurrent use.
//
// Reentrancy goes by owner. LockContext and Do act for the owner that their ctx
// carries, so a function that takes the lock can call another that takes it
// too, as long as it passes on the context that Do gave it (or Hold.Context).
// Without an owner in ctx, and with Lock, each call is an owner of its own:
// goroutines that share a *Mutex exclude each other, and a nested Lock
// deadlocks as it does with sync.Mutex. As gives a Locker that nests.
type Mutex struct{ l locker }

// Lock locks m and blocks until it has. It goes on through outages of the store
// and tries again with growing pauses. It panics with an *Error where it could
// never succeed: closed client, invalid name or option, foreign key, re-entry
// into a lost hold, a refused upgrade, too many nested holds. That a hold was lost later, Options.OnLost and the log tell;
// use LockContext or Do to be told at the place of work.
func (m *Mutex) Lock() { m.l.lock() }

// Unlock unlocks m and returns when the store has confirmed it or StoreTimeout
// has passed (then it goes on in the background). It panics with an *Error if
// this *Mutex is not locked by Lock or TryLock. If the lock was lost, it does
// not panic: the loss went to Options.OnLost and the log. Of several locks that
// are held through this value, a lost one is unlocked first.
func (m *Mutex) Unlock() { m.l.unlock() }

// TryLock reports whether it locked m without waiting for another holder. False
// also means that the store refused or could not say within StoreTimeout, or that the
// owner's hold is lost, has too many nested ones, or would need an upgrade that is
// refused; then the log says which. It panics where no later call could succeed:
// closed client, invalid name, option or owner, foreign key.
func (m *Mutex) TryLock() bool { return m.l.tryLock() }

// LockContext waits until m is held and returns a handle of its own for this
// call. If ctx's owner holds m already through this Client, it returns at once,
// without a call of the store.
//
// ctx bounds only the wait: when it ends, LockContext returns its error at
// once, and what the store may still grant is given back in the background.
// Once it has returned, the hold does not depend on ctx. Errors, inside an
// *Error: ctx's; ErrClosed; ErrLost if ctx's owner has lost a hold of m that is
// not unlocked yet, or if the grant came too late to be used; ErrUpgrade if it holds
// only the reader's lock of that name and others read too; ErrTooManyWaiters;
// ErrTooManyHolds; ErrForeignKey; ErrRefused; ErrInvalidName, ErrInvalidTTL, ErrInvalidOwner; and
// ErrUnavailable when the store has confirmed nothing for a whole TTL.
func (m *Mutex) LockContext(ctx context.Context) (*Hold, error) { return m.l.lockContext(ctx) }

// TryLockContext is LockContext without the wait: ErrHeld when the lock is busy
// or others wait for it. If the store gives no usable answer it asks again, for
// StoreTimeout in all, and then fails with ErrUnavailable.
func (m *Mutex) TryLockContext(ctx context.Context) (*Hold, error) { return m.l.tryLockContext(ctx) }

// Do locks m as LockContext does, calls fn, and unlocks, also when fn panics.
// fn's context carries the owner, so that fn may take m again, and is cancelled
// with a cause when the hold is lost; fn should return then. Do returns fn's
// error, joined with an *Error of ErrLost (or ErrClosed) if the hold did not
// last until fn returned. A release that the store did not confirm is logged,
// not returned, for fn's work was done under the lock.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) error {
	return m.l.do(ctx, fn)
}

// As returns the same lock acting for o, whatever owner a context carries. Its
// Lock nests: each Lock after the first is a re-entry, and as many Unlocks give
// the lock back. A zero o makes every call fail with ErrInvalidOwner.
func (m *Mutex) As(o Owner) *Mutex { return &Mutex{m.l.as(o)} }

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.l.config.Name }
