package dlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlock-go/dlock/internal/core"
	"github.com/dlock-go/dlock/internal/request"
	"github.com/dlock-go/dlock/store"
)

// The errors that callers test for with [errors.Is]. Calls return them inside an
// [*Error], which says what was tried on which lock. Hold.Err, and [context.Cause] of a
// hold's context, return them without one.
var (
	// ErrHeld: the lock is busy, or others wait for it. Only the Try forms return it.
	// Error.HeldBy names a holder.
	ErrHeld = store.ErrHeld
	// ErrLost: the hold was lost before it was released. The error text says why. Its
	// deadline passed without a confirmed renewal, or its lease ran out and is not
	// renewed. Or MaxHold was reached, or the store says that the hold is gone. A grant
	// that arrived after its lease had run out, and re-entry into a lost hold, match
	// ErrLost too.
	ErrLost = store.ErrLost
	// ErrEnding: the hold ends soon unless it is renewed. Only the cause of a hold's
	// context is it, by [WithGrace]. The lock is still held.
	ErrEnding = core.ErrEnding
	// ErrNotHeld: this handle, or this *Mutex, holds nothing. It was unlocked before.
	ErrNotHeld = core.ErrNotHeld
	// ErrUpgrade: the owner has the reader's lock and asks for the writer's, and
	// other owners read too. Waiting could deadlock, so the call fails at once.
	ErrUpgrade = store.ErrUpgrade
	// ErrClosed: the client, or its store, was closed.
	ErrClosed = store.ErrClosed
	// ErrInvalidName: a name is empty or longer than [MaxNameLen] bytes.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidOwner: an owner is the zero Owner, or its text is malformed.
	ErrInvalidOwner = errors.New("invalid owner")
	// ErrInvalidTTL: a duration is negative, under the store's minimum or 10 ms, or over
	// [MaxTTL], or a grace is longer than a third of the TTL.
	ErrInvalidTTL = errors.New("invalid duration")
	// ErrInvalidOption: another option is out of range or nil, or there is no store.
	ErrInvalidOption = errors.New("invalid option")
	// ErrTooManyWaiters: too many calls of this client wait, or ask the store; see
	// Options.MaxWaiters.
	ErrTooManyWaiters = core.ErrTooManyWaiters
	// ErrTooManyHolds: one owner holds one lock 2^31-1 times.
	ErrTooManyHolds = core.ErrTooManyHolds
	// ErrForeignKey: the store has something under the lock's name that dlock did not
	// write. Waiting does not help; an operator has to look.
	ErrForeignKey = store.ErrForeignKey
	// ErrRefused: the store refused the request, and asking again at once does not
	// help: no permission, memory full.
	ErrRefused = store.ErrRefused
	// ErrUnavailable: the store gave no usable answer for as long as the call could
	// wait for one. The last error of the store is wrapped beside it.
	ErrUnavailable = request.ErrUnavailable
	// ErrUnsupported: the store does not have the ability that the call needs, such as
	// to list names. It matches errors.ErrUnsupported too.
	ErrUnsupported = store.ErrUnsupported
)

var (
	// errZero is what a lock that no Client has made panics with.
	errZero = fmt.Errorf("%w: the zero Mutex and RWMutex cannot be used, "+
		"client.Mutex(name) and client.RWMutex(name) make one", ErrInvalidOption)
	// errNotLocked is what Unlock of a value that holds nothing panics with.
	errNotLocked = fmt.Errorf("%w by Lock or TryLock of this value: Unlock belongs to the value that was locked, "+
		"so keep one, or use LockContext and Do", ErrNotHeld)
)

// Error is the error that dlock's functions return: the operation, the name of the
// lock and the cause. [errors.Is] and [errors.As] find the cause.
type Error struct {
	Op   string // "lock", "rlock", "unlock", ...
	Name string // of the lock; empty where there is none

	// HeldBy is the label of one holder that blocked the call: a Try form found the lock
	// busy, an upgrade was refused, or the context ended the wait. It is as recent as the
	// store's last answer. It is empty if the store named no holder: Client.Inspect can.
	HeldBy string

	// HeldFor is for how long that holder has had the lock, 0 if the store did not say
	// so. Hand-overs among the goroutines of one process are one hold of the store.
	HeldFor time.Duration

	Err error
}

// Error returns the operation, the quoted name cut to 64 bytes, the cause and the holder.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dlock: %s", e.Op)
	if len(e.Name) > 64 {
		fmt.Fprintf(&b, " %q... (%d bytes)", e.Name[:64], len(e.Name))
	} else if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.HeldBy != "" {
		fmt.Fprintf(&b, ": held by %s", printable(e.HeldBy))
		if d := readable(e.HeldFor); d > 0 {
			fmt.Fprintf(&b, " for %v", d)
		}
	}
	return b.String()
}

// readable drops the digits that no reader needs.
func readable(d time.Duration) time.Duration {
	if d >= 10*time.Second {
		return d / time.Second * time.Second
	}
	return d / time.Millisecond * time.Millisecond
}

// printable quotes a label that would not print as one word of a line.
func printable(label string) string {
	if strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(label)
	}
	return label
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
