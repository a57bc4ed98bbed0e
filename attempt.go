package dlock

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/store"
)

// attempt is one acquisition id at the store, from before its first request is
// sent until it is known what became of it. The call that made it may go while
// a request is on its way; then the attempt itself gives back what the reply
// says was granted or queued.
type attempt struct {
	client *Client
	terms  *terms
	req    store.Request

	replies chan reply    // at most one request is in flight
	wake    chan struct{} // an event came: look at pushed, or ask again

	mu       sync.Mutex
	stage    stage
	inFlight bool
	unknown  bool          // some request has no known outcome
	present  bool          // some request was queued or granted
	told     uint64        // last token told by a confirmed answer
	base     time.Time     // sending of the last confirmed request; before any, of the first
	pushed   store.Event   // the latest one with a token, until it is looked at
	hinted   bool          // anything may have changed, likewise
	strayed  bool          // a reply came while its hold was being released
	cleared  chan struct{} // closed when it was left and nothing is at the store; nil if nobody waits for that

	pace pace // of those who ask with it, one after another
}

type stage uint8

const (
	asking  stage = iota
	granted       // it is a hold; late replies add nothing
	leaving       // it is a hold that is being released
	left          // nobody wants it any more
)

type reply struct {
	grant store.Grant
	err   error
	sent  time.Time
}

func (c *Client) newAttempt(t *terms, mode store.Mode, queue bool) *attempt {
	return &attempt{
		client: c,
		terms:  t,
		req: store.Request{
			Name: t.name, ID: newID(), Mode: mode,
			TTL: t.ttl, WaitTTL: t.waitTTL,
			Queue: queue, Fixed: t.fixed, Tokens: 1, Label: c.opts.Label,
		},
		replies: make(chan reply, 1),
		wake:    make(chan struct{}, 1),
	}
}

// send asks the store once, on a goroutine and a timeout of its own: the caller
// may leave without cutting a request whose outcome it would then not know.
func (a *attempt) send(now time.Time) {
	a.mu.Lock()
	a.inFlight = true
	if a.base.IsZero() {
		a.base = now
	}
	a.mu.Unlock()
	c := a.client
	ask := func() {
		ctx := c.calls.bound(a.terms.timeout)
		defer ctx.leave()
		g, err := c.store.Acquire(ctx, a.req)
		a.replied(reply{g, c.calls.verdict(ctx, err, a.terms.timeout), now})
	}
	if !c.calls.spawn(ask) {
		a.replied(reply{err: ErrClosed, sent: now})
	}
}

// replied notes what a reply tells and hands it on, if anyone still listens.
func (a *attempt) replied(r reply) {
	a.mu.Lock()
	a.inFlight = false
	switch {
	case r.err == nil:
		a.present = true
		a.told, a.base = max(a.told, r.grant.Token), r.sent
	case !certain(r.err):
		a.unknown = true
	}
	if a.stage == asking {
		a.replies <- r
	}
	a.strayed = a.strayed || a.stage == leaving && !certain(r.err)
	abandoned := a.stage == left
	present := a.present || a.unknown
	a.mu.Unlock()
	if abandoned {
		a.clear(present)
	}
}

// leave ends an attempt that is no hold. What it may have at the store is
// cleared away in the background, at once or when the reply under way has come.
func (a *attempt) leave() {
	a.mu.Lock()
	a.stage = left
	settled := !a.inFlight
	present := a.present || a.unknown
	a.mu.Unlock()
	if settled {
		a.clear(present)
	}
}

// clear has the store forget an attempt that was left, if anything of it may be there.
func (a *attempt) clear(present bool) {
	if present {
		a.client.cleaner.add(a)
	} else {
		a.forgotten()
	}
}

// mayBePresent reports whether some request of it was queued, granted or not answered.
func (a *attempt) mayBePresent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present || a.unknown
}

// watch returns a channel that is closed when the attempt was left and nothing of
// it is at the store any more.
func (a *attempt) watch() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cleared = make(chan struct{})
	return a.cleared
}

// forgotten notes that nothing of an attempt that was left is at the store.
func (a *attempt) forgotten() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cleared != nil {
		close(a.cleared)
		a.cleared = nil
	}
}

// discard ends an attempt of which nobody wants what asking for it ended with: a
// grant, or err.
func (a *attempt) discard(err error) {
	if err != nil {
		a.leave()
	} else {
		a.client.cleaner.add(a)
	}
}

// quit is ref for what nobody wants any more, whatever late replies say.
func (a *attempt) quit() store.Ref {
	a.mu.Lock()
	a.stage = left
	a.mu.Unlock()
	return a.ref()
}

// part is ref for the release of a hold. When that is over call parted: what a request
// got that was on its way meanwhile is released once more, for it may have arrived
// when the id was not buried any more.
func (a *attempt) part() store.Ref {
	a.mu.Lock()
	a.stage = leaving
	a.mu.Unlock()
	return a.ref()
}

func (a *attempt) parted() {
	a.mu.Lock()
	a.stage = left
	strayed := a.strayed
	a.mu.Unlock()
	if strayed {
		a.client.cleaner.add(a)
	}
}

// ref names what the attempt may have at the store, to be renewed or released.
// While one of its requests may still arrive there, the id has to be buried.
func (a *attempt) ref() store.Ref {
	a.mu.Lock()
	defer a.mu.Unlock()
	return store.Ref{
		Name: a.req.Name, Owner: a.req.Owner, ID: a.req.ID, Mode: a.req.Mode,
		TTL:  max(a.req.TTL, a.req.WaitTTL),
		Bury: a.unknown || a.inFlight,
	}
}

// push notes an event with this attempt's id.
func (a *attempt) push(e store.Event) {
	a.mu.Lock()
	if e.Token > a.pushed.Token {
		a.pushed = e
	}
	a.mu.Unlock()
	a.nudge()
}

// hint notes that anything may have changed.
func (a *attempt) hint() {
	a.mu.Lock()
	a.hinted = true
	a.mu.Unlock()
	a.nudge()
}

// resume wakes who asks next with what woke the one before and was not looked at.
func (a *attempt) resume() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pushed.Token != 0 || a.hinted {
		a.nudge()
	}
}

// nudge wakes who asks.
func (a *attempt) nudge() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// award is a grant that may be used until deadline.
type award struct {
	token    uint64
	short    int // see store.Grant
	deadline time.Time
	pushed   bool // by an event: the lease is the short one until it is renewed
}

// valid is how long a lease of the store's may be relied on, from the sending of
// the request that it counts from. Never longer than the TTL: where WaitTTL is
// longer, the first renewal shortens what a promotion gave.
func (a *attempt) valid(lease time.Duration) time.Duration {
	lease = min(lease, a.terms.ttl)
	return lease - margin(lease)
}

// byReply judges a grant that came as a reply.
func (a *attempt) byReply(r reply) (award, error) {
	w := award{token: r.grant.Token, short: r.grant.Short, deadline: r.sent.Add(a.valid(r.grant.TTL))}
	if !time.Now().Before(w.deadline) {
		return award{}, errLate
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stage = granted
	return w, nil
}

// byEvent judges an event. It is a grant if its token is newer than the last
// one that a confirmed answer told: else it is a late event of a promotion that
// had expired by then. The store counts the promoted hold's WaitTTL from a
// moment after the request that got the place, so that is where validity
// starts. Any other event is a hint to ask. So it is for a lease that will
// not be renewed, because asking again brings it to its TTL before Lock returns,
// and for one of which little is left to renew it in; asks come more often than
// that, unless WaitTTL is longer than TTL.
func (a *attempt) byEvent() (w award, ok, hint bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.pushed
	a.pushed, a.hinted = store.Event{}, false
	w = award{e.Token, e.Short, a.base.Add(a.valid(a.terms.waitTTL)), true}
	switch {
	case e.Token <= a.told:
		return award{}, false, false
	case a.terms.fixed || time.Until(w.deadline) < a.valid(a.terms.waitTTL)/3:
		return award{}, false, true
	}
	a.stage = granted
	return w, true, false
}
