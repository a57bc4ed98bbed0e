package sim

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/dlock-go/dlock/integration/model"
	"github.com/dlock-go/dlock/store"
)

// Moment is a point of a history: nanoseconds since its start, and within one
// nanosecond, in which most things in a bubble happen, the order in which they
// were written down. Between two moments of a history three places stay free,
// for what a checker wants to put between them.
type Moment int64

const (
	orderBits = 18
	apart     = 4
	never     = Moment(math.MaxInt64)
)

// at is the first place of a nanosecond.
func at(d time.Duration) Moment {
	if d > time.Duration(never>>orderBits) {
		return never
	}
	return Moment(d) << orderBits
}

// time drops the order.
func (m Moment) time() time.Duration { return time.Duration(m >> orderBits) }

// plus is the first place of the nanosecond that is d later.
func (m Moment) plus(d time.Duration) Moment {
	if m == never {
		return never
	}
	return at(m.time() + d)
}

// What a call is and what became of it has the words of the model.
type (
	Op      = model.Op
	Outcome = model.Outcome
)

// The words.
const (
	Acquire = model.Acquire
	Renew   = model.Renew
	Release = model.Release

	Unknown  = model.Unknown
	Held     = model.Held
	Queued   = model.Queued
	Busy     = model.Busy
	Upgrade  = model.Upgrade
	Done     = model.Done
	Lost     = model.Lost
	Refused  = model.Refused
	Foreign  = model.Foreign
	IsClosed = model.IsClosed
)

// Call is one call of the store as its client saw it; of a Renew, one hold of
// it. Ids and owners are numbers in the order in which they appeared.
type Call struct {
	Op             Op
	Client         int
	Name           string
	ID, Owner      int
	Shared         bool          `json:",omitempty"`
	Queue          bool          `json:",omitempty"`
	Bury           bool          `json:",omitempty"`
	Lease          time.Duration // TTL, by the clock of the test
	Wait           time.Duration // WaitTTL, likewise
	Sent, Returned Moment        // Returned is never while it has not
	Outcome        Outcome
	Tokens         int       `json:",omitempty"` // of an Acquire: how many it reserves
	Token          uint64    `json:",omitempty"`
	Holds          int       `json:",omitempty"`
	Position       int       `json:",omitempty"`
	Arrivals       []Arrival `json:",omitempty"`
}

// call is what the model is told of it.
func (c *Call) call() *model.Call {
	return &model.Call{
		Op: c.Op, ID: c.ID, Owner: c.Owner, Shared: c.Shared, Queue: c.Queue, Bury: c.Bury,
		Outcome: c.Outcome, Token: c.Token, Holds: c.Holds, Position: c.Position,
	}
}

// Arrival is one time that a call reached the store. The checkers use it only as
// evidence: of when something happened whose outcome the client was not told.
type Arrival struct {
	From, To Moment
	Outcome  Outcome
	Token    uint64 `json:",omitempty"`
}

// Promotion is an event as the store sent it.
type Promotion struct {
	ID    int
	Token uint64
	At    Moment
}

// Claim is what somebody believes to hold: from the return of Lock until the
// call of Unlock or the moment at which Done closed, whichever is first.
type Claim struct {
	Name        string
	Client      int
	Owner       int
	Private     bool // nobody but this client can act for the owner
	Shared      bool
	Nested      bool // under another claim of its owner
	Token       uint64
	Called      Moment // the call of Lock
	From, Until Moment
	Lost        bool `json:",omitempty"`
	Disowned    bool `json:",omitempty"` // it was unlocked in time, and Unlock called it lost
}

// Mark is a moment from which on holds with a token up to Token are gone,
// whatever their holders know: of one name by force, of all ("") by a loss of
// data.
type Mark struct {
	Name     string
	From, To Moment
	Token    uint64
}

// Reconnect is a moment at which a client was told that the store can be reached
// again, and that it may have missed anything.
type Reconnect struct {
	Client int
	At     Moment
}

// History is what happened in a run of a plan.
type History struct {
	Plan       Plan
	Calls      []*Call
	Promotions []Promotion
	Claims     []*Claim
	Marks      []Mark
	Reconnects []Reconnect
	Closed     []int // clients that were closed and could not clear up
	Operations int   // calls of the clients that were begun
	Effects    map[Kind]int
	Complaints []string // of those who took part

	mu       sync.Mutex
	start    time.Time
	last     time.Duration
	order    int64
	ids      map[string]int // of ids and owners
	triggers map[int][]func()
	running  sync.WaitGroup
	live     []*held // claims that have not ended
}

func newHistory(p Plan) *History {
	return &History{
		Plan: p, Effects: make(map[Kind]int),
		start: time.Now(), ids: make(map[string]int), triggers: make(map[int][]func()),
	}
}

// moment is now. h.mu is held.
func (h *History) moment() Moment {
	now := time.Since(h.start)
	if now != h.last {
		h.last, h.order = now, 0
	}
	h.order += apart
	if h.order >= 1<<orderBits {
		panic("sim: too much in one nanosecond")
	}
	return at(now) + Moment(h.order)
}

func (h *History) now() Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.moment()
}

// number stands for an id or an owner. h.mu is held.
func (h *History) number(id string) int {
	n, ok := h.ids[id]
	if !ok {
		n = len(h.ids) + 1
		h.ids[id] = n
	}
	return n
}

// begin counts an operation of a client, and starts what waits for its number.
func (h *History) begin() Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count()
}

// count is begin for those who hold h.mu.
func (h *History) count() Moment {
	h.Operations++
	for _, f := range h.triggers[h.Operations] {
		h.running.Go(f)
	}
	return h.moment()
}

// after has f run when so many operations have begun.
func (h *History) after(operations int, f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.triggers[operations] = append(h.triggers[operations], f)
}

// finish waits for what was started, and drops what was to run at a later operation.
func (h *History) finish() {
	h.mu.Lock()
	clear(h.triggers)
	h.mu.Unlock()
	h.running.Wait()
}

// leftBehind notes that a client was closed and could not clear up.
func (h *History) leftBehind(client int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Closed = append(h.Closed, client)
}

func (h *History) effect(kind Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Effects[kind]++
}

func (h *History) complain(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Complaints = append(h.Complaints, what)
}

// send writes down that calls are sent, together.
func (h *History) send(calls []*Call, ids, owners []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.moment()
	for i, c := range calls {
		c.ID, c.Owner = h.number(ids[i]), h.number(owners[i])
		c.Sent, c.Returned, c.Outcome = now, never, Unknown
	}
	h.Calls = append(h.Calls, calls...)
}

func (h *History) returned(c *Call, g store.Grant, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Returned = h.moment()
	c.Outcome = outcome(c.Op, g, err)
	if err == nil && c.Op == Acquire {
		c.Token, c.Holds, c.Position = g.Token, g.Holds, g.Position
	}
}

func (h *History) arrived(c *Call, from Moment, g store.Grant, err error) {
	if c == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.Arrivals = append(c.Arrivals, Arrival{from, h.moment(), outcome(c.Op, g, err), g.Token})
}

func (h *History) promoted(e store.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Promotions = append(h.Promotions, Promotion{h.number(e.ID), e.Token, h.moment()})
}

// mark writes down that what was granted up to token is gone.
func (h *History) mark(name string, from Moment, token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Marks = append(h.Marks, Mark{name, from, h.moment(), token})
}

func (h *History) reconnected(client int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Reconnects = append(h.Reconnects, Reconnect{client, h.moment()})
}

// outcome classifies an answer.
func outcome(op Op, g store.Grant, err error) Outcome {
	switch {
	case err == nil && op != Acquire:
		return Done
	case err == nil && g.Held:
		return Held
	case err == nil:
		return Queued
	}
	for _, certain := range []struct {
		err error
		is  Outcome
	}{
		{store.ErrHeld, Busy},
		{store.ErrUpgrade, Upgrade},
		{store.ErrLost, Lost},
		{store.ErrRefused, Refused},
		{store.ErrForeignKey, Foreign},
		{store.ErrClosed, IsClosed},
	} {
		if errors.Is(err, certain.err) {
			return certain.is
		}
	}
	return Unknown
}

// sending is what a call carries on its way, so that those it passes know it.
type sending struct {
	n     int // of its link's calls
	calls []*Call
}

func (s *sending) renews() bool { return len(s.calls) > 0 && s.calls[0].Op == Renew }

type sendingKey struct{}

func sendingOf(ctx context.Context) *sending {
	s, _ := ctx.Value(sendingKey{}).(*sending)
	if s == nil {
		return &sending{}
	}
	return s
}
