// Package store is the contract between dlock and the systems that keep its
// locks. Read it to write a store of your own; users of dlock need only a
// store's constructor. The conformance package judges whether a store keeps
// the contract, in one line of a test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t testing.TB) store.Store { return mystore.New() })
//	}
//
// # The model
//
// For each name a store keeps its live holds, each with an acquisition id, an
// owner, a [Mode], a deadline and a token, and a first-in-first-out queue of
// live waiters, each with an acquisition id, an owner, a mode, a TTL and a
// deadline. Tokens come from a counter that only grows; one counter may serve
// many names. Time is the store's own: no moment ever travels, only durations
// do. An entry whose deadline is not after the store's present is dead, and
// every operation treats it as absent.
//
// Two modes are compatible when both are Shared. An entry is compatible with
// holds when it is compatible with each of them that belongs to another owner.
//
// Acquire decides in this order and never blocks:
//
//  1. The id is a live hold. Same answer, same token: repeating a request is
//     harmless. The deadline becomes now+TTL if that is later.
//  2. The owner has a live hold (re-entry).
//     If one of them is exclusive, the request is granted in either mode, with the
//     token of that hold. If all are shared and it asks for Shared, it is
//     granted with their token (the greatest, should they differ), even past
//     waiting writers. If all are shared and it asks for Exclusive, that is
//     an upgrade: granted with a new token if no other owner has a hold,
//     otherwise refused with [ErrUpgrade] at once, and a place that the id has
//     is given up. An upgrade never waits.
//  3. Otherwise it is granted, with a new token, if it is compatible with all
//     live holds and no live waiter is ahead of it; live waiters directly
//     ahead that are granted with it (all of them Shared, as it is) do not
//     count. A new token is greater than every token of that name before it.
//  4. Otherwise, with Queue, the request gets a place at the end or keeps the
//     one it has, and the place's deadline becomes now+WaitTTL. Without Queue
//     the answer is [ErrHeld].
//
// Every removal promotes: a release, a place given up, an expiry noticed by
// whatever operation comes next, a downgrade (an exclusive hold released while
// its owner keeps shared ones). Promotion goes from the head of the queue as
// far as rule 3 allows: one exclusive waiter, or all leading shared ones
// together, and never beside a hold they are not compatible with. A promoted
// waiter becomes a hold with deadline now+WaitTTL, and an [Event] with its id
// and token is pushed to the handle that it was queued through; the hold
// reaches its full TTL with its first renewal, or when its id asks again. A
// waiter that died so costs the others at most its WaitTTL. When an owner is
// granted, by whichever way, those of its waiting requests that rule 2 now
// allows are granted with it, before promotion goes on, and get their events.
//
// # Three outcomes
//
// An operation is done, or certainly not done, or its outcome is unknown.
// Certain refusals are errors that match one of this package's sentinels.
// Every other error, a timeout or a broken connection above all, means
// unknown: the operation may have been applied, may still be applied later,
// or may never be. A store never answers "certainly not" on a guess.
//
// # What the caller guarantees
//
// The core of dlock keeps these promises, so stores hold no policy and need
// not check them:
//
//   - Names have 1 to 1024 bytes, and those bytes are arbitrary: NUL, newline,
//     braces and invalid UTF-8 occur. Ids are 32 lower-case hexadecimal digits
//     of 128 random bits. An owner is 1 to 64 bytes of printable ASCII without
//     spaces. A label has at most 128 bytes of UTF-8.
//   - An id belongs to one acquisition for ever: all requests with it have the
//     same fields (Queue excepted, which may turn from true to false), and no
//     other acquisition uses it.
//   - Each TTL and WaitTTL is at least MinTTL and at most 366 days. Tokens is
//     at least 1.
//   - An id that was queued, or whose outcome was unknown, is released by the
//     caller in the end, with Bury if an outcome is still unknown.
//   - No call comes after Close.
//
// # What every store guarantees
//
//   - All methods are safe for concurrent use.
//   - Each Acquire, each Release, and each hold within a Renew is atomic:
//     others see all of it or nothing.
//   - Every operation is idempotent by id. A request that arrives twice, or
//     late, changes nothing that the first arrival would not have changed,
//     except that after a Release with Bury it cannot be granted at all.
//   - A method returns soon after its ctx ends. What it asked for may then
//     still happen; the error says unknown.
//   - Errors, logs and [State] carry at most the first six characters of an
//     id or owner, and no secret.
//   - A name that is free and has no waiters costs nothing that lasts.
package store

import (
	"context"
	"errors"
	"time"
)

// Mode says whom a hold excludes. The zero Mode is Exclusive.
type Mode uint8

const (
	// Exclusive excludes every other owner.
	Exclusive Mode = iota
	// Shared excludes other owners' exclusive holds and admits their shared ones.
	Shared
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// The certain refusals. A store returns them bare or wrapped; callers test
// with [errors.Is]. They say that this call changed nothing (ErrUpgrade and
// ErrLost apart, as stated there).
var (
	// ErrHeld: not granted now, and no place was taken because none was asked for.
	ErrHeld = errors.New("lock is held by another owner")
	// ErrUpgrade: the owner has a shared hold, asks for an exclusive one, and
	// other owners hold too. Waiting could deadlock, so it is refused at once.
	// A place that the id had has been given up.
	ErrUpgrade = errors.New("shared hold cannot be upgraded while others hold")
	// ErrLost: the hold or place is not there (any more). From Acquire: the id
	// was buried and will not be granted.
	ErrLost = errors.New("lock is lost")
	// ErrForeignKey: what the store finds where the lock should be was not
	// written by dlock, or not in a format this version knows. Waiting does
	// not help; somebody has to look.
	ErrForeignKey = errors.New("key is not a lock of a known format")
	// ErrRefused: the server understood the call and refused to apply it, and
	// repeating it at once will not help: no permission, memory or disk full.
	// A refusal that passes by itself (loading, fail-over) is not reported so
	// but as unknown, which makes the caller ask again.
	ErrRefused = errors.New("store refused the request")
	// ErrClosed: the handle was closed.
	ErrClosed = errors.New("closed")
)

// Store keeps locks. A Store value is one handle on the locks, such as one
// process has; two handles on the same locks see each other's holds.
type Store interface {
	// Acquire tries once and does not wait; see the model for what is decided.
	//
	// Three outcomes. A nil error is a Grant, held or queued. An error that
	// matches a sentinel means certainly not; with ErrHeld the Grant's Retry
	// is set. Any other error means unknown: the request may have been
	// applied, and repeating it with the same ID is safe.
	//
	// "Certainly not" is said of this call only: if an earlier Acquire of the
	// same ID was queued or unknown, the caller still has to Release it.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew sets the deadline of each hold to its TTL from now. It returns one
	// result for each hold, in order: nil for renewed, ErrLost for certainly
	// gone, anything else for unknown. It finds holds by ID and never revives
	// one: an id that is dead, released, buried or merely queued is ErrLost.
	//
	// There may be thousands of holds of many names in one call, in any order;
	// one that fails does not affect the others. No holds: no results.
	Renew(ctx context.Context, holds []Ref) []error

	// Release gives up a hold, or a place in the queue, and promotes. It finds
	// it by ID and compares nothing weaker. ErrLost says that it was not
	// there, which is what a repeated Release meets.
	//
	// With Bury the id is also refused from now on, for ref.TTL, whether it
	// was there or not: an Acquire of it that arrives late gets ErrLost and
	// changes nothing. A buried id leaves no trace after that time, and the
	// possibility costs nothing for names where none is buried.
	Release(ctx context.Context, ref Ref) error

	// Listen registers a sink for wake-ups of requests queued through this
	// handle, until stop is called. Any number may be registered; each gets
	// every event. The sink does not block, may be called from several
	// goroutines at once, also before Acquire's answer of queued has reached
	// its caller, and may be called with an event of a request that is
	// no longer wanted. A call already on its way may still arrive after stop
	// has returned. The store calls no sink while it holds a lock of its own.
	//
	// Events are for speed. Losing one delays its waiter until it asks again,
	// which it does at the latest when Retry has passed.
	Listen(sink func(Event)) (stop func())

	// Inspect reports the live holders and the queue of one name, for people
	// and tests. A free name is an empty State, not an error.
	Inspect(ctx context.Context, name string) (State, error)

	// MinTTL is the shortest TTL this store keeps. The core refuses shorter ones.
	MinTTL() time.Duration

	// Close ends this handle: what it opened itself is closed, sinks are
	// dropped, holds are left to their leases. Closing twice is fine.
	Close() error
}

// Breaker is an optional ability: forced release, for operators. Nothing in
// dlock calls it on its own.
type Breaker interface {
	// Break removes all live holds of a name, promotes waiters and returns how
	// many holds it removed. The next grant has a greater token, so a resource
	// that checks tokens refuses the old holder as soon as it has seen the new
	// one; the old holder itself is told by its next renewal.
	Break(ctx context.Context, name string) (broken int, err error)
}

// Lister is an optional ability: the names in use, for operators.
type Lister interface {
	// List returns the names that have live holds or waiters, in no order.
	// Names that come or go during the call may or may not be among them.
	List(ctx context.Context) ([]string, error)
}

// TokenRaiser is an optional ability: a hold is given a token that was chosen
// outside the store. The quorum store needs it of its nodes, to agree on one.
type TokenRaiser interface {
	// RaiseToken makes token that of the live hold with ref.ID, reserves so many
	// consecutive tokens from it on, and returns the token that the hold has then.
	// Every later grant of the name has a greater one than that span. Repeating it
	// is harmless: a hold that has the token, or a greater one, keeps what it has.
	//
	// No two shared holds are given the same token: a shared hold gets token if
	// that is greater than every token issued so far, else a new one, greater than
	// both. So an answer other than token says that it was too low, and what to
	// exceed.
	//
	// ErrLost says that there is no such hold. Nothing else of the hold changes,
	// its lease least of all.
	RaiseToken(ctx context.Context, ref Ref, token uint64, tokens int) (uint64, error)
}

// Incarnator is an optional ability: to tell that holds may have been lost
// without being released. The quorum store asks nodes that have it, and takes
// the others for stores that lose nothing.
type Incarnator interface {
	// Incarnation names the present life of the store's data, the same for all
	// handles. A store that may have lost holds, because it restarted without them
	// or another server took over, has another one from then on and never an
	// earlier one again. age is for how long at least nothing has been lost; a
	// store that keeps no such account says 0, one that cannot lose anything the
	// longest duration.
	Incarnation(ctx context.Context) (id string, age time.Duration, err error)
}

// Request asks for a hold.
type Request struct {
	Name  string
	Owner string // who may re-enter
	ID    string // this acquisition, chosen before the first request is sent
	Mode  Mode

	TTL     time.Duration // lease of the hold, from its grant or renewal
	WaitTTL time.Duration // how long a place, or a promoted hold not yet renewed, lasts

	Queue  bool   // take a place if it cannot be granted now
	Fixed  bool   // the hold reaches its TTL once and is not renewed after that
	Tokens int    // how many consecutive tokens a new token reserves, Grant.Short apart; Grant.Token is the first
	Label  string // shown by Inspect: host and process, by default
}

// Ref names a hold or a place.
type Ref struct {
	Name  string
	Owner string
	ID    string
	Mode  Mode
	TTL   time.Duration // Renew: the lease from now. Release: the longer of the request's TTL and WaitTTL, the time for which Bury lasts
	Bury  bool          // Release only: some request of this id has an unknown outcome
}

// Grant is the answer to a request.
type Grant struct {
	Held  bool   // true: the request is a hold. false: it has a place in the queue
	Token uint64 // held: its fencing token. Queued: the last token issued for this name so far, by a counter that may serve other names too
	Short int    // held: how many of the Tokens asked for were not reserved with it, or may not have been; 0 to Tokens-1, most stores say 0

	// TTL is how much of a hold's lease certainly remains, counted from the
	// moment before the request was sent. It may be less than asked for.
	TTL      time.Duration
	Holds    int // live holds of this owner, this one included
	Position int // place in the queue: 1 is the head, 0 is none

	// Retry, when the request is not held, is how long at most until asking
	// again can help should no event come: when the holds in its way run out
	// unless renewed, a little more for each place further back, so that
	// waiters do not ask all at once. It is positive.
	Retry time.Duration

	// HeldBy is the label of one hold that is in the way of a request that is not
	// held, or "" if the store does not know it without a further call.
	HeldBy string
}

// Event is a wake-up. With an ID and a Token: that request was granted, with
// that token. With an ID alone: that request may be granted if it is asked
// again. The zero Event: anything may have changed, for the store reconnected or
// could not tell; everybody who waits asks again.
type Event struct {
	ID    string
	Token uint64
	Short int // of the Tokens that were asked for; see Grant
}

// State is what Inspect reports of one name.
type State struct {
	Name    string
	Holders []Entry // oldest grant first
	Queue   []Entry // head first
	Token   uint64  // last token issued, by a counter that may serve other names too
}

// Entry is one holder or waiter. ID and Owner are cut to their first six
// characters: whole, they are the right to release and to re-enter.
type Entry struct {
	ID        string
	Owner     string
	Mode      Mode
	Token     uint64        // of a holder; 0 for a waiter
	Remaining time.Duration // until its deadline
	Label     string
}

// Short cuts an id or owner to the six characters that may be shown.
func Short(id string) string {
	if len(id) > 6 {
		return id[:6]
	}
	return id
}
