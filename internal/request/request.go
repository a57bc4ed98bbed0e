// Package request carries one acquisition id to the store and back: the first request, repeats under the
// same id, events, late replies, and the release in the background of what nobody wants. It knows nothing
// of owners, queues or holds.
//
// A [Request] is sent on the caller's goroutine by [Request.Send] or [Request.Try]. When the answer is
// "queued" or unknown, [Request.Poll] goes on in the background until the request is granted or refused.
// [Request.Abandon] and [Request.Release] end it. Whatever the order of replies and events, nothing of
// the id stays at the store afterwards.
package request

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// Config is what one lock asks of the store. It does not change.
type Config struct {
	TTL     time.Duration // of a hold
	WaitTTL time.Duration // of a place, and of a grant that is not renewed yet
	Timeout time.Duration // of one call of the store
	Fixed   bool          // the lease is not renewed
	Label   string
}

// Margin is kept between the end of a hold here and the end of its lease at the
// store: 1 % for clocks that run at different rates and 2 ms for their granularity,
// the figures of the Redlock description (redis.io, "Distributed Locks").
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// valid is how long a lease of the store may be relied on, from the sending of the
// request that it counts from. It is never longer than the TTL: where WaitTTL is
// longer, the first renewal shortens what a promotion gave.
func (c *Config) valid(lease time.Duration) time.Duration {
	lease = min(lease, c.TTL)
	return lease - Margin(lease)
}

// Request is one acquisition id at the store. Set it up with Init. Its methods are
// safe for concurrent use; Send and Try are called by one goroutine at a time,
// before Poll.
type Request struct {
	sender *Sender
	config *Config
	req    store.Request
	nested bool // see Nested

	mu        sync.Mutex
	phase     phase
	inFlight  bool
	unknown   bool          // some request of the id has no known outcome
	present   bool          // some request of the id was queued or granted
	resets    uint64        // of the wakeups, before the first request was sent
	lastToken uint64        // that a confirmed answer told
	base      time.Time     // sending of the last confirmed request; before any, of the first
	standing  *Standing     // what the last answers said; nil if nothing
	cleared   chan struct{} // see Cleared
	poll      *polling      // nil until Poll
}

// phase is what a request is wanted for.
type phase uint8

const (
	asking    phase = iota
	granted         // it is a hold; late replies add nothing
	abandoned       // nobody wants it any more
)

// Outcome is what one request came to.
type Outcome uint8

// The outcomes of a request.
const (
	Granted Outcome = iota
	Queued
	Refused // certainly not; Answer.Err says why
	Unknown // Answer.Err says what went wrong
	Unsent  // there is no answer, for no request was sent
)

// Answer is the outcome of a request.
type Answer struct {
	Outcome Outcome
	Grant   Grant         // if granted
	Err     error         // if refused or unknown
	Retry   time.Duration // if queued: when to ask again, unless an event comes

	// Late: the silence that ended a Poll was counted from a request that was itself sent
	// late. Other requests may have been answered meanwhile.
	Late bool
}

// Grant is a grant that may be relied on until Deadline.
type Grant struct {
	Token    uint64
	Spare    int       // tokens after Token that are reserved with it
	At       time.Time // it came
	Deadline time.Time
	Alone    bool // the store knows no other hold of the owner
}

// NewIDs returns two new ids, each of 128 random bits in hexadecimal. They come
// straight from crypto/rand: random bytes kept for later would be the same in two
// copies of a virtual machine, and so would be the ids.
func NewIDs() (a, b string) {
	var bits [32]byte
	rand.Read(bits[:]) // never fails: crypto/rand ends the program instead
	var text [64]byte
	hex.Encode(text[:], bits[:])
	both := string(text[:])
	return both[:32], both[32:]
}

// Init sets up a request, which is req with the fields that c has.
func (r *Request) Init(d *Sender, c *Config, req store.Request) {
	r.sender, r.config, r.req = d, c, req
	r.req.TTL, r.req.WaitTTL, r.req.Fixed, r.req.Label = c.TTL, c.WaitTTL, c.Fixed, c.Label
}

// Nested says that the owner has a hold of the name already. The store may have lost that, which an answer
// tells and an event does not: after an event the request asks. It is called before the first request is sent.
func (r *Request) Nested() { r.nested = true }

// ID returns the acquisition id.
func (r *Request) ID() string { return r.req.ID }

// Name returns the name of the lock.
func (r *Request) Name() string { return r.req.Name }

// Send asks the store once, on this goroutine. The call of the store has the values
// of ctx, and ends with ctx, the timeout or Close. If it is cut its outcome is
// unknown, and so it is noted if the store panics. Errors of contexts are replaced: the
// caller looks at ctx itself.
func (r *Request) Send(ctx context.Context) Answer {
	return r.send(ctx, time.Now(), r.timeout())
}

// timeout is the time for one call of the store. A later answer would come too late to be of use.
func (r *Request) timeout() time.Duration { return min(r.config.Timeout, r.config.TTL) }

// backoff returns the pauses between calls that fail.
func (c *Config) backoff() Backoff { return Backoff{Limit: min(time.Second, c.Timeout/10)} }

// send asks the store once. now is the moment before, from which a grant counts.
func (r *Request) send(ctx context.Context, now time.Time, timeout time.Duration) (answer Answer) {
	d := r.sender
	r.mu.Lock()
	// Under the mutex, so that Abandon either sees the request under way and leaves the
	// release to it, or releases what earlier requests have left and keeps this one back.
	r.inFlight = d.acquires.Err() == nil && r.phase == asking
	if !r.inFlight {
		r.mu.Unlock()
		return Answer{Outcome: Refused, Err: ErrClosed}
	}
	r.begin(now)
	r.mu.Unlock()
	c := call(ctx, &d.acquires, now, timeout)
	g, err := store.Grant{}, errNoReturn
	defer func() {
		r.mu.Lock()
		defer r.endCall()
		answer = r.note(g, err, now)
	}()
	defer func() { err = c.end(d, err) }() // ctx may panic
	g, err = d.store.Acquire(c, r.req)
	return
}

// errNoReturn stands for the answer of a store that panicked, or ended the goroutine.
var errNoReturn = errors.New("the call of the store did not return")

// begin notes when the first request is sent. r.mu is locked.
func (r *Request) begin(now time.Time) {
	if r.base.IsZero() {
		r.base = now
		r.resets = r.sender.wakeups.resets.Load()
	}
}

// endCall ends a call and unlocks r.mu. A request that was abandoned during the call was left to it, and
// is released: the call may have taken effect after an earlier release.
func (r *Request) endCall() {
	forgotten, present := r.phase == abandoned, r.present || r.unknown
	r.mu.Unlock()
	if forgotten {
		r.clear(present, true)
	}
}

// note notes what a reply tells about the id, whoever still wants it, and returns
// what the reply means for a caller that does. r.mu is locked.
func (r *Request) note(g store.Grant, err error, sent time.Time) Answer {
	r.inFlight = false
	answer := Answer{Retry: g.Retry}
	r.setStanding(g, err, sent)
	switch {
	case err == nil:
		r.present = true
		r.lastToken, r.base = max(r.lastToken, g.Token), sent
		answer.Outcome = Queued
	case Certain(err):
		// About this request only: an earlier one of the id, of unknown outcome, may
		// have left something, so unknown and present stay.
		answer.Outcome, answer.Err = Refused, err
	default:
		r.unknown = true
		answer.Outcome, answer.Err = Unknown, r.standing.Trouble
	}
	if err == nil && g.Held && r.phase == asking {
		answer.Outcome = Granted
		now := time.Now()
		answer.Grant = Grant{Token: g.Token, Spare: r.spare(g.Short), At: now, Deadline: sent.Add(r.config.valid(g.TTL))}
		answer.Grant.Alone = g.Holds == 1
		if !now.Before(answer.Grant.Deadline) { // the phase stays, so Abandon releases the hold
			return Answer{Outcome: Refused, Err: ErrExpired}
		}
		r.phase = granted
	}
	return answer
}

// setStanding keeps what an answer says of a holder or of the store. sent is when its request was sent. r.mu
// is locked.
func (r *Request) setStanding(g store.Grant, err error, sent time.Time) {
	if err == nil && g.Held {
		r.standing = nil
		return
	}
	var st Standing
	if err == nil || Certain(err) {
		st.HeldBy = g.HeldBy
		if g.HeldFor > 0 {
			st.HeldSince = sent.Add(-g.HeldFor)
		}
	} else {
		if r.standing != nil {
			st = *r.standing
		}
		st.add(err)
	}
	r.standing = &st
}

// spare is how many of the tokens asked for are reserved beside the first.
func (r *Request) spare(short int) int { return max(r.req.Tokens-1-max(short, 0), 0) }

// Try asks until the outcome is known, and fails with ErrUnavailable at the deadline, which is at most the
// timeout of a call away: in an outage the last request is sent when a tenth of the timeout is left, or a
// second if that is less. It returns early when ctx ends or stop closes, with an unknown outcome.
func (r *Request) Try(ctx context.Context, stop <-chan struct{}, deadline time.Time) Answer {
	now := time.Now()
	pause := r.config.backoff()
	for {
		a := r.send(ctx, now, deadline.Sub(now))
		switch {
		case a.Outcome == Queued: // a store that has it wait all the same
			return Answer{Outcome: Refused, Err: store.ErrHeld}
		case a.Outcome != Unknown || ctx.Err() != nil:
			return a
		}
		// A request that is sent at the end would be cut, which costs a release with Bury.
		left := time.Until(deadline) - pause.Limit
		if left <= 0 {
			return Answer{Outcome: Refused, Err: Unavailable(a.Err)}
		}
		if !sleep(min(pause.Next(), left), ctx.Done(), stop) {
			return a
		}
		now = time.Now()
	}
}
