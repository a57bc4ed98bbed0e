package dlock

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// The errors that callers test for with [errors.Is]. Calls return them inside an
// [*Error], which says what was tried on which lock; Hold.Err and [context.Cause] of a
// hold's context give them bare.
var (
	// ErrHeld: the lock is busy, or others wait for it. Only the Try forms answer so.
	ErrHeld = store.ErrHeld
	// ErrLost: the hold was lost before it was released. The error says why: its
	// deadline passed without a confirmed renewal, MaxHold was reached, or the store says
	// that it is gone. Also for a grant that arrived after its lease had run out, and
	// for re-entry into a lost hold.
	ErrLost = store.ErrLost
	// ErrNotHeld: this handle, or this *Mutex, holds nothing: it was unlocked before.
	ErrNotHeld = core.ErrNotHeld
	// ErrUpgrade: a writer's lock was asked for under the owner's own reader's
	// lock while others read too. Waiting could deadlock, so it fails at once.
	ErrUpgrade = store.ErrUpgrade
	// ErrClosed: the client, or the store under it, was closed.
	ErrClosed = store.ErrClosed
	// ErrInvalidName: a name is empty or longer than [MaxNameLen] bytes.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidOwner: an owner is the zero Owner, or its text is malformed.
	ErrInvalidOwner = errors.New("invalid owner")
	// ErrInvalidTTL: a duration is out of range: negative, under the store's
	// minimum or over [MaxTTL].
	ErrInvalidTTL = errors.New("invalid duration")
	// ErrInvalidOption: another option is out of range, or there is no store.
	ErrInvalidOption = errors.New("invalid option")
	// ErrTooManyWaiters: Options.MaxWaiters calls of this client wait already.
	ErrTooManyWaiters = core.ErrTooManyWaiters
	// ErrTooManyHolds: one owner holds one lock 2^31-1 times over.
	ErrTooManyHolds = core.ErrTooManyHolds
	// ErrForeignKey: the store has something at the lock's place that dlock did
	// not write. Waiting does not help.
	ErrForeignKey = store.ErrForeignKey
	// ErrRefused: the store refused the request for good: no permission, memory full.
	ErrRefused = store.ErrRefused
	// ErrUnavailable: the store gave no usable answer for as long as the call
	// could wait for one. The cause is wrapped beside it.
	ErrUnavailable = request.ErrUnavailable
)

var (
	// errZero is what a lock that no Client has made panics with.
	errZero = fmt.Errorf("%w: the zero Mutex and RWMutex cannot be used, client.Mutex(name) and client.RWMutex(name) make one", ErrInvalidOption)
	// errNotLocked is what Unlock of a value that holds nothing panics with.
	errNotLocked = fmt.Errorf("%w by Lock or TryLock of this value: Unlock belongs to the value that was locked, "+
		"so keep one, or use LockContext and Do", ErrNotHeld)
)

// Error is what dlock's functions return: the operation, the name of the lock
// and the cause, for which [errors.Is] and [errors.As] look through it.
type Error struct {
	Op   string // "lock", "rlock", "unlock", ...
	Name string // of the lock; empty where there is none
	Err  error
}

// Error renders the operation, the quoted name, cut to 64 bytes, and the cause.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("dlock: %s: %v", e.Op, e.Err)
	}
	if len(e.Name) > 64 {
		return fmt.Sprintf("dlock: %s %q... (%d bytes): %v", e.Op, e.Name[:64], len(e.Name), e.Err)
	}
	return fmt.Sprintf("dlock: %s %q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
