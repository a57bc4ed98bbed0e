package dlock

import (
	"context"
)

// Mutex is a lock that one owner holds at a time, over all processes that use
// the same store. It is a [sync.Locker] and safe for concurrent use. A client
// makes it; the zero Mutex panics.
//
// Prefer Do, or LockContext with the Unlock of its Hold. Lock and Unlock are for
// places where a [sync.Mutex] was: they return no error, and Unlock cannot know
// which of several holds its caller means.
//
// A Mutex is reentrant by owner. LockContext and Do act for the owner that ctx
// carries. So a function that holds the lock can call another one that takes it
// too: it passes on the context of Do or of Hold.Context. Without an owner in
// ctx, each call is an owner of its own, and so is each Lock. Goroutines that share
// a *Mutex then exclude each other, and a nested Lock deadlocks as it does with
// sync.Mutex. As returns a Mutex with a Lock that nests.
type Mutex struct{ l locker }

// Lock blocks until m is locked. It has no error to return, so it goes on through
// outages of the store, with growing pauses. It panics with an *Error where no
// later try can succeed:
//
//   - the client is closed, or a name, option or owner is invalid;
//   - the store has a foreign key under the lock's name (ErrForeignKey);
//   - the owner has a lost hold that is not unlocked yet, or too many nested holds;
//   - an upgrade is refused.
//
// Options.OnLost and the log report a hold that is lost later. This form does not report
// it to the goroutine that holds. Hold.Done and the context of Do do.
func (m *Mutex) Lock() { m.l.lock() }

// Unlock unlocks m. It returns when the store has confirmed that, or after
// StoreTimeout; the release then goes on in the background. It panics with an
// *Error if this *Mutex is not locked by Lock or TryLock. Unlock belongs to the
// value that was locked, or to an As value of the same Mutex and owner.
//
// If the hold was lost, Unlock does not panic. If several holds were taken through
// this value, Unlock ends a lost one before a live one. So the goroutine that lost
// its hold never unlocks the hold of the next goroutine. The price: if the first
// goroutine hangs and never calls Unlock, the next one's Unlock ends the lost hold.
// The live hold then stays, and is renewed until the client is closed. The log says
// when an Unlock ends a lost hold while a live one exists. LockContext and Do do not
// have this fault, because each of their holds is unlocked by itself.
func (m *Mutex) Unlock() { m.l.unlock() }

// TryLock locks m without waiting for another holder and reports whether it did.
// False usually means that the lock is busy. It also means that the store refused,
// or gave no usable answer within StoreTimeout. Or the owner has a lost hold, too many
// nested holds, or an upgrade that is refused. The log says which. TryLock panics with
// an *Error where no later try can succeed: closed client, invalid name, option or
// owner, foreign key. Unlock undoes it, as it undoes Lock.
func (m *Mutex) TryLock() bool { return m.l.tryLock() }

// LockContext waits until m is locked and returns a new Hold. If the owner in ctx
// holds m already through this Client, it returns at once, without a call of the
// store.
//
// ctx bounds the wait only. When ctx ends, LockContext returns its error at once.
// What the store may still grant is given back in the background. The Hold does not
// depend on ctx.
//
// The errors are in an *Error:
//
//   - the error of ctx, during an outage together with ErrUnavailable;
//   - ErrClosed;
//   - ErrLost if the owner has a lost hold of m that is not unlocked yet, or if the
//     grant came too late to be used;
//   - ErrUpgrade if the owner holds only the reader's lock of the name and others read;
//   - ErrUnavailable if the store has confirmed nothing for a whole TTL;
//   - ErrTooManyWaiters, ErrTooManyHolds, ErrForeignKey, ErrRefused;
//   - ErrInvalidName, ErrInvalidTTL, ErrInvalidOption, ErrInvalidOwner.
func (m *Mutex) LockContext(ctx context.Context) (*Hold, error) { return m.l.lockContext(ctx, true) }

// TryLockContext is LockContext without the wait for other holders. It returns
// ErrHeld if the lock is busy or others wait for it. If the store gives no usable
// answer it asks again, for StoreTimeout in all, and then returns ErrUnavailable.
func (m *Mutex) TryLockContext(ctx context.Context) (*Hold, error) {
	return m.l.lockContext(ctx, false)
}

// Do locks m as LockContext does, calls fn, and unlocks m, also if fn panics. The
// context of fn carries the owner, so fn may take m again. It is cancelled with a
// cause when the hold is lost, and fn should return then.
//
// Do returns the error of fn. If the hold did not last until fn returned, an *Error
// with ErrLost or ErrClosed is joined to it. If it did not last until fn could be
// called, Do returns that *Error alone, without a call of fn. A release that the store did not confirm
// is logged and not returned, because the work of fn was done under the lock.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) error {
	return m.l.do(ctx, fn)
}

// As returns the same lock acting for o, whatever owner a context carries. Its Lock
// nests: each further Lock is a re-entry, and the last of as many Unlocks gives the
// lock back. Lock and Unlock through two As values of one Mutex and one owner belong
// together, so m.As(o).Lock() and m.As(o).Unlock() are a pair. With a zero o
// LockContext, TryLockContext and Do return ErrInvalidOwner, and Lock and TryLock
// panic.
func (m *Mutex) As(o Owner) *Mutex { return &Mutex{m.l.as(o)} }

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.l.name() }
