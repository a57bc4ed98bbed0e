package property

import (
	"context"
	"errors"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// call is what lock and try have in common: who asks where for what.
type call struct {
	*pending
	rw  *dlock.RWMutex
	ctx context.Context
}

// counter is where calls are made: a client and a name.
func (w *world) counter(t *rapid.T) (*client, string) {
	return w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(t, "client")],
		w.names[rapid.IntRange(0, len(w.names)-1).Draw(t, "name")]
}

func (w *world) call(t *rapid.T, c *client, name string) call {
	owner := rapid.IntRange(0, len(w.owners)).Draw(t, "owner")
	w.born++
	p := &pending{
		born:     w.born,
		mode:     rapid.SampledFrom([]store.Mode{store.Exclusive, store.Shared}).Draw(t, "mode"),
		explicit: owner < 2,
		from:     time.Now(),
		reply:    make(chan reply, 1),
	}
	ctx := context.Background()
	if owner < len(w.owners) {
		ctx = dlock.WithOwner(ctx, w.owners[owner])
	} else {
		owner = 100 + w.born // one who comes once: a private owner that nobody has seen before
	}
	p.party = party{owner: owner, client: c, name: name}
	p.who = identity{owner: owner, client: c}
	if p.explicit {
		p.who.client = nil
	}
	if d := rapid.SampledFrom([]int{0, 0, 0, 1, 50, 700, 5000}).Draw(t, "timeout ms"); d > 0 {
		p.until = p.from.Add(time.Duration(d) * time.Millisecond)
		ctx, p.cancel = context.WithDeadline(ctx, p.until)
	} else {
		ctx, p.cancel = context.WithCancel(ctx)
	}
	return call{pending: p, rw: c.RWMutex(name, w.terms[name].options...), ctx: ctx}
}

func (w *world) lock(t *rapid.T) {
	c, name := w.counter(t)
	w.lockAt(t, c, name)
}

// queueUp makes several calls for one name at one client, in a row.
func (w *world) queueUp(t *rapid.T) {
	c, name := w.counter(t)
	for range rapid.IntRange(2, 5).Draw(t, "calls") {
		w.lockAt(t, c, name)
	}
}

// lockAt waits on a goroutine of its own; settle looks whether it has returned.
func (w *world) lockAt(t *rapid.T, c *client, name string) {
	p := w.call(t, c, name)
	want, exact := w.local(p.party, p.mode)
	if !exact && w.quiet() {
		want, exact = w.predict(p.who, p.party, p.mode), true
	}
	t.Logf("          lock %v", p.pending)
	go func() {
		lock := p.rw.LockContext
		if p.mode == store.Shared {
			lock = p.rw.RLockContext
		}
		h, err := lock(p.ctx)
		w.returned(p.pending, h, err)
	}()
	w.waiting = append(w.waiting, p.pending)
	w.settleWith(t, func(q *pending, r reply) bool {
		if q != p.pending || !exact || errors.Is(want.err, dlock.ErrHeld) {
			return false
		}
		w.compare(t, "lock", q, r, want)
		return true
	})
	switch still := w.isWaiting(p.pending); {
	case exact && errors.Is(want.err, dlock.ErrHeld) && !still:
		t.Fatalf("lock %v did not wait; %s", p.pending, w.situation())
	case exact && !errors.Is(want.err, dlock.ErrHeld) && still:
		t.Fatalf("lock %v waits, want %+v; %s", p.pending, want, w.situation())
	}
}

func (w *world) try(t *rapid.T) {
	c, name := w.counter(t)
	w.tryAt(t, c, name)
}

// tryAt runs here, for it never waits for a holder; but it takes its time where
// the store does not answer.
func (w *world) tryAt(t *rapid.T, c *client, name string) {
	p := w.call(t, c, name)
	want, exact := w.local(p.party, p.mode)
	if !exact && w.quiet() {
		want, exact = w.predict(p.who, p.party, p.mode), true
	}
	defer p.cancel()
	try := p.rw.TryLockContext
	if p.mode == store.Shared {
		try = p.rw.TryRLockContext
	}
	h, err := try(p.ctx)
	t.Logf("          try %v: %v", p.pending, err)
	w.returned(p.pending, h, err)
	r := <-p.reply
	if took := r.at.Sub(p.from); took > w.timeout() {
		t.Fatalf("try %v took %v; StoreTimeout is %v", p.pending, took, w.timeout())
	}
	if exact {
		w.compare(t, "try", p.pending, r, want)
	} else {
		w.judge(t, p.pending, r, false)
	}
}

// returned is where a call ends, on its own goroutine: a grant is looked at as
// soon as it exists.
func (w *world) returned(p *pending, h *dlock.Hold, err error) {
	r := reply{hold: h, err: err, at: time.Now()}
	if h != nil {
		n := &handle{
			Hold: h, party: p.party, who: p.who, mode: p.mode,
			token: h.Token(), born: p.born, at: r.at, since: r.at, ctx: h.Context(context.Background()), state: held,
		}
		w.mu.Lock()
		w.arrived = append(w.arrived, n)
		w.mu.Unlock()
	}
	p.reply <- r
}

func (w *world) unlock(t *rapid.T) {
	var live []*handle
	for _, h := range w.handles {
		if h.state == held {
			live = append(live, h)
		}
	}
	w.unlockOne(t, live)
}

// unlockAny also unlocks what is over, or unlocked already.
func (w *world) unlockAny(t *rapid.T) { w.unlockOne(t, w.handles) }

func (w *world) unlockOne(t *rapid.T, handles []*handle) {
	if len(handles) == 0 {
		t.Skip()
	}
	w.unlockHandle(t, handles[len(handles)-1-rapid.IntRange(0, len(handles)-1).Draw(t, "handle back")])
}

func (w *world) unlockHandle(t *rapid.T, h *handle) {
	want, from, before := w.unlocking(h), time.Now(), h.String()
	exact := h.state != held || w.nested(h) > 1 || w.quiet()
	ids := h.client.link.of(h.token, h.mode)
	switch {
	case h.state != held:
	case len(ids) > 1 && (w.broken[h.token] || !w.quiet()):
		exact = false // which of its owner's holds this handle is of, nobody can tell
	case len(ids[0].tokens) > 1:
		exact = false // broken, and granted once more before its client knew
	}
	err := h.Unlock()
	t.Logf("          unlock %s: %v", before, err)
	h.state = unlocked
	switch {
	case exact && !sameAnswer(err, want):
		t.Fatalf("Unlock of %s: %v, want %v", before, err, want)
	case exact || err == nil || errors.Is(err, dlock.ErrUnavailable):
	case !errors.Is(err, dlock.ErrLost):
		t.Fatalf("Unlock of %s: %v", before, err)
	case !w.broken[h.token] && time.Now().Before(ids[0].first):
		// (A release that arrives after the lease would have ended finds nothing.)
		t.Fatalf("Unlock of %s: %v, but the store cannot have lost it yet", before, err)
	}
	if took := time.Since(from); took > w.timeout() {
		t.Fatalf("Unlock of %s took %v; StoreTimeout is %v", before, took, w.timeout())
	}
}

func (w *world) cancel(t *rapid.T) {
	if len(w.waiting) == 0 {
		t.Skip()
	}
	p := w.waiting[rapid.IntRange(0, len(w.waiting)-1).Draw(t, "call")]
	t.Logf("          cancel %v", p)
	p.canceled = true
	p.cancel()
	w.settle(t)
	if w.isWaiting(p) {
		t.Fatalf("%v did not return when its context was cancelled", p)
	}
}
