// Package store is the contract between dlock and the systems that keep its
// locks. Read it to write a store. Users of dlock need only a store's
// constructor. Package conformance checks whether a store keeps the contract,
// in one line of a test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t testing.TB) store.Store { return mystore.New() })
//	}
//
// A database with transactions needs none of this: package store/kv makes a
// store of it from three methods. Package store/model is the lock model as code.
//
// # The model
//
// For each name a store keeps its live holds and a first-in-first-out queue of
// live waiters. A hold has an acquisition id, an owner, a [Mode], a deadline and
// a token. A waiter has an acquisition id, an owner, a mode, a TTL and a
// deadline. Tokens come from a counter that only grows. One counter may serve
// many names.
//
// Time is the store's own: only durations travel, never moments. An entry whose
// deadline is not after the store's present is dead, and every operation treats
// it as absent. The store reads its present inside the atomic step of an
// operation, after every wait for a lock: with an older present a dead hold
// would look alive.
//
// Two modes are compatible when both are Shared. A request is compatible with
// the holds of a name when its mode is compatible with each hold that belongs to
// another owner.
//
// Acquire decides in this order and never waits:
//
//  1. The id is a live hold. The answer is the same, with the same token, so
//     repeating a request is harmless. The deadline becomes now+TTL if that is
//     later.
//  2. The owner has a live hold: this is a re-entry.
//     If a hold of the owner is exclusive, the request is granted in either mode,
//     with the token of that hold. If all are shared and the request asks for
//     Shared, it is granted with their greatest token, even past waiting writers.
//     If all are shared and the request asks for Exclusive, it is an upgrade.
//     An upgrade is granted with a new token if no other owner has a hold.
//     Otherwise it is refused with [ErrUpgrade] at once, and a place that the id
//     has is given up. An upgrade never waits.
//  3. Otherwise the request is granted, with a new token, if it is compatible
//     with all live holds and no live waiter is ahead of it. Since every removal
//     promotes, no waiter in the queue could be granted now: every request but
//     the head of the queue has a waiter ahead of it that blocks it. A new token
//     is greater than every token of that name before it.
//  4. Otherwise, with Queue, the request gets a place at the end of the queue or
//     keeps the place it has, and the place's deadline becomes now+WaitTTL.
//     Without Queue the answer is [ErrHeld].
//
// Every removal promotes. The removals are a release, a place given up, an
// expiry, and a downgrade: an exclusive hold is released while its owner keeps
// shared holds. Whatever operation comes next notices an expiry and promotes,
// Inspect too.
//
// Promotion goes from the head of the queue as far as rule 3 allows: one
// exclusive waiter, or all leading shared waiters together. It never grants a
// waiter beside a hold that it is not compatible with. A promoted waiter becomes
// a hold with deadline now+WaitTTL. The hold reaches its full TTL with its first
// renewal, or when its id asks again. So a waiter whose client has died costs
// the other owners at most its WaitTTL after its promotion. An [Event] with the id and the token is
// pushed to the handle through which the waiter last asked with Queue. A handle
// through which it asked before may hear it too.
//
// When an owner is granted, in whatever way, those of its waiting requests that
// rule 2 now allows are granted as well, before promotion goes on. Each of them
// becomes a hold with deadline now+WaitTTL and gets its event, as a promoted
// waiter does.
//
// # Three outcomes
//
// An operation is done, or certainly not done, or its outcome is unknown.
// Certain refusals are errors that match one of this package's sentinels.
// Every other error means unknown, a timeout or a broken connection above all:
// the operation may have been applied, may still be applied later, or may never
// be. A store never answers "certainly not" on a guess.
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
//   - An id belongs to one acquisition for ever. All requests with it have the
//     same fields, except Queue, which may turn from true to false. No other
//     acquisition uses it.
//   - Each TTL and WaitTTL is at least MinTTL and at most 366 days. Tokens is
//     at least 1.
//   - An id that was queued, or whose outcome was unknown, is released by the
//     caller in the end, with Bury if an outcome is still unknown.
//
// # What every store guarantees
//
//   - All methods are safe for concurrent use.
//   - Each Acquire, each Release, and each hold within a Renew is atomic:
//     other operations see all of it or nothing.
//   - Every operation is idempotent by id. A request that arrives twice, or
//     late, changes nothing that the first arrival would not have changed,
//     except that after a Release with Bury it cannot be granted at all.
//   - An event leaves after its grant is certain to last. A store that commits
//     sends it after the commit.
//   - A method returns soon after its ctx ends. What it asked for may then
//     still happen; the error says unknown.
//   - Errors, logs and [State] carry at most the first six characters of an
//     id or owner, and no secret.
//   - A name that is free and has no waiters costs nothing that lasts.
//   - Every call after Close gets [ErrClosed]. A Listen after Close hears nothing.
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Mode says which other holds a hold excludes. The zero Mode is Exclusive.
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
// with [errors.Is]. Each says that this call changed nothing, except ErrUpgrade
// and ErrLost, as stated there.
var (
	// ErrHeld: not granted now, and no place was taken because none was asked for.
	ErrHeld = errors.New("lock is held by another owner")
	// ErrUpgrade: the owner has a shared hold and asks for an exclusive one, and
	// another owner has a hold too. Waiting could deadlock, so the request is
	// refused at once. A place that the id had has been given up.
	ErrUpgrade = errors.New("shared hold cannot be upgraded while others hold")
	// ErrLost: the hold or place is not there, or not any more. From Acquire: the
	// id was buried and will not be granted. A store that cannot reach its data
	// does not know this, and says unknown.
	ErrLost = errors.New("lock is lost")
	// ErrForeignKey: what the store finds where the lock should be was not
	// written by dlock, or not in a format this version knows. Waiting does
	// not help; an operator has to look.
	ErrForeignKey = errors.New("key is not a lock of a known format")
	// ErrRefused: the server understood the call and refused to apply it, and
	// repeating it at once will not help: no permission, memory or disk full.
	// A refusal that passes by itself, such as during a fail-over, is reported
	// as unknown, so the caller asks again.
	ErrRefused = errors.New("store refused the request")
	// ErrClosed: the handle was closed.
	ErrClosed = errors.New("closed")
)

// ErrUnsupported: the store does not have this optional ability. A store that wraps
// another one returns it where the other one lacks the ability. It matches
// [errors.ErrUnsupported].
var ErrUnsupported = fmt.Errorf("%w by this store", errors.ErrUnsupported)

// Store keeps locks. A Store value is one handle on the locks, such as one
// process has. Two handles on the same locks see each other's holds.
type Store interface {
	// Acquire tries once and does not wait. The model says what it decides.
	//
	// It has three outcomes. A nil error is a Grant, held or queued. An error
	// that matches a sentinel means certainly not; with ErrHeld the Grant's Retry
	// is set. Any other error means unknown: the request may have been
	// applied, and repeating it with the same ID is safe.
	//
	// "Certainly not" is about this call only. If an earlier Acquire of the
	// same ID was queued or unknown, the caller still has to Release it.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Renew sets the deadline of each hold to its TTL from now. It returns one
	// result for each hold, in order: nil for renewed, ErrLost for certainly
	// gone, anything else for unknown. It finds holds by ID and never revives
	// one: an id that is dead, released, buried or merely queued is ErrLost.
	//
	// There may be thousands of holds of many names in one call, in any order.
	// One that fails does not affect the others. No holds: no results.
	Renew(ctx context.Context, holds []Ref) []error

	// Release gives up a hold, or a place in the queue, and promotes. It finds
	// the entry by ID and compares nothing weaker. ErrLost says that there was
	// none, which is what a repeated Release meets.
	//
	// With Bury the id is also refused from now on, for ref.TTL, whether it
	// was there or not: an Acquire of it that arrives late gets ErrLost and
	// changes nothing. Burying it again refuses it for at least ref.TTL from
	// then, whatever is left of an earlier burial. A buried id leaves no trace
	// after that time. Names where no id is buried pay nothing for this.
	Release(ctx context.Context, ref Ref) error

	// Listen registers a sink for wake-ups of requests queued through this
	// handle, until stop is called. Any number may be registered; each gets
	// every event. The sink does not block. The store may call it from several
	// goroutines at once, before Acquire's answer of queued has reached its
	// caller, and with an event of a request that is no longer wanted. A call
	// already on its way may still arrive after stop has returned. The store
	// calls no sink while it holds a lock of its own.
	//
	// Events are for speed. Losing one delays its waiter until it asks again,
	// which it does at the latest when Retry has passed.
	Listen(sink func(Event)) (stop func())

	// Inspect reports the live holders and the queue of one name, for people
	// and tests. A free name is an empty State, not an error. Inspect notices
	// an expiry and promotes, like every operation.
	Inspect(ctx context.Context, name string) (State, error)

	// MinTTL is the shortest TTL this store keeps. The core refuses shorter ones.
	MinTTL() time.Duration

	// Close ends this handle. It closes what the handle opened itself and drops
	// the sinks. Holds are left to their leases. Closing twice is fine.
	Close() error
}

// Breaker is an optional ability: forced release, for operators. Nothing in
// dlock calls it on its own.
type Breaker interface {
	// Break removes all live holds of a name, promotes waiters and returns how
	// many holds it removed. The next grant has a greater token, so a resource
	// that checks tokens refuses the old holder as soon as it has seen the new
	// one. The old holder learns of it with its next renewal.
	Break(ctx context.Context, name string) (broken int, err error)
}

// Lister is an optional ability: the names in use, for operators.
type Lister interface {
	// List returns the names that have live holds or waiters, in no order.
	// Names that come or go during the call may or may not be among them.
	List(ctx context.Context) ([]string, error)
}

// TokenRaiser is an optional ability: to give a hold a token that was chosen
// outside the store. The quorum store needs it, so that its nodes can agree on
// one token.
type TokenRaiser interface {
	// RaiseToken makes token the token of the live hold with ref.ID, reserves that
	// many consecutive tokens from it on, and returns the token that the hold has
	// then. Every later grant of the name has a greater token than that span.
	// Repeating it is harmless: a hold that has the token, or a greater one, keeps
	// what it has.
	//
	// No two shared holds are given the same token. A shared hold gets token if
	// that is greater than every token issued so far, and otherwise a new token,
	// greater than both. An answer other than token says that token was too low,
	// and which token to exceed.
	//
	// An owner that takes the lock again gets the token of its exclusive hold, or
	// the greatest token of its shared holds.
	//
	// ErrLost says that there is no such hold. Nothing else of the hold changes,
	// and its lease stays as it is.
	RaiseToken(ctx context.Context, ref Ref, token uint64, tokens int) (uint64, error)
}

// Incarnator is an optional ability: to tell that holds may have been lost
// without being released. The quorum store asks its nodes for it. It takes a node
// without this ability for a store that loses nothing.
type Incarnator interface {
	// Incarnation names the present life of the store's data, the same for all
	// handles. A store may have lost holds because it restarted without them or
	// because another server took over. It then has a new id, and never an
	// earlier one again. age is for how long at least nothing has been lost. A
	// store that does not know its age says 0. A store that cannot lose anything
	// says the longest duration.
	//
	// The id is the same before its first slash for all stores that one server keeps.
	// A quorum refuses two nodes whose ids are equal there. An id without a slash counts
	// as a whole.
	Incarnation(ctx context.Context) (id string, age time.Duration, err error)
}

// Voter is an optional ability of a store that is a TokenRaiser and an Incarnator: to do
// in one round trip what the quorum store asks of a node for a grant. The quorum store makes
// the three calls one after the other where a store lacks this ability.
type Voter interface {
	// Vote does what Acquire does. If that grants, and the hold is the only one of its
	// owner, it then does what RaiseToken does with token; 0 raises nothing. A store may
	// leave that out, as Grant.Token then says. After that it does what Incarnation does.
	// The error is that of Acquire. [ErrUnsupported] says that nothing was sent, or that the
	// server certainly did not run it, and the three calls are to be made instead.
	Vote(ctx context.Context, req Request, token uint64) (Vote, error)
}

// Vote is the answer of a [Voter].
type Vote struct {
	Grant Grant // with the token that the hold has in the end

	// Of a hold: what Incarnation returns, as of after the grant. Err says why the store
	// did not say.
	Life string
	Age  time.Duration
	Err  error

	// Clock is the least token that the store would give to a new hold now, by a clock
	// that counts on in microseconds. 0: its tokens follow no clock.
	Clock uint64
}

// Request asks for a hold.
type Request struct {
	Name  string
	Owner string // a later request of the same owner re-enters
	ID    string // this acquisition, chosen before the first request is sent
	Mode  Mode

	TTL     time.Duration // lease of the hold, from its grant or renewal
	WaitTTL time.Duration // how long a place, or a promoted hold not yet renewed, lasts

	Queue  bool   // take a place if it cannot be granted now
	Fixed  bool   // a hint: the hold reaches its TTL once and is not renewed after that. A store may ignore it and never refuses a renewal because of it
	Tokens int    // how many consecutive tokens a new token reserves, less Grant.Short; Grant.Token is the first
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
	Token uint64 // held: the fencing token. Queued: the last token issued for this name so far, by a counter that may serve other names too

	// Short, when the request is held, is how many of the Tokens asked for are not
	// reserved from Token on, or may not be: 0 to Tokens-1. A re-entry issues no
	// tokens, so its Short is usually Tokens-1.
	Short int

	// TTL is how much of a hold's lease certainly remains, counted from the
	// moment before the request was sent. It may be less than asked for.
	TTL      time.Duration
	Holds    int // live holds of this owner, this one included; 1 shows a client that an earlier one is lost
	Position int // place in the queue: 1 is the head, 0 is none

	// Retry, when the request is not held, is how long at most until asking
	// again can help should no event come: when the holds in its way run out
	// unless renewed, a little more for each place further back, so that
	// waiters do not ask all at once. It is positive.
	Retry time.Duration

	// HeldBy is the label of one hold that is in the way of a request that is not
	// held, or "" if the store does not know it without a further call.
	HeldBy string

	// HeldFor is the [Entry.Age] of the hold that HeldBy names, or 0 if the store does
	// not know it without a further call.
	HeldFor time.Duration
}

// Event is a wake-up. With an ID and a Token: that request was granted, with
// that token. With an ID alone: that request may be granted if it is asked
// again. The zero Event: anything may have changed, since the store reconnected
// or could not tell, so every waiter asks again.
type Event struct {
	ID    string
	Token uint64
	Short int // how many of the Tokens asked for were not reserved; see Grant
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
	Token     uint64        // of a holder, the first of those that it reserved; 0 for a waiter
	Remaining time.Duration // until its deadline
	Label     string
	Age       time.Duration // since it was granted, or queued as a waiter; 0 if the store does not know
}

// Short cuts an id or owner to the six characters that may be shown.
func Short(id string) string {
	if len(id) > 6 {
		return id[:6]
	}
	return id
}
