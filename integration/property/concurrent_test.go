package property

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// TestConcurrent: goroutines that do as they like, all at once, never hold
// together what excludes each other, are served in the order in which they came
// to the store, and leave nothing behind. What they do is drawn beforehand; who
// comes first at one moment is left to the scheduler, so not every failure
// repeats.
func TestConcurrent(t *testing.T) {
	check(t, 2, func(t *rapid.T) {
		plan := drawPlan(t)
		rapid.SyncTest(t, plan.run)
	})
}

// plan is all that is drawn of one run.
type plan struct {
	clients int
	waitTTL time.Duration
	workers [][]visit
	gales   []gale
	closes  []time.Duration // when client i is closed; 0: at the end
}

// visit is one time that a goroutine takes a lock.
type visit struct {
	Client, Name int
	Owner        int // of the explicit ones; none beyond them
	Mode         store.Mode
	Try          bool
	Think        time.Duration // before
	Patience     time.Duration // 0: as long as it takes
	Hold         time.Duration
	Nest         bool // takes it again inside, for a moment
	Read         bool // nested: as a reader, which it stays when the rest is unlocked
}

// gale is bad weather on one link for a while.
type gale struct {
	Client   int
	Weather  weather
	From, To time.Duration
}

const explicitOwners = 2

func drawPlan(t *rapid.T) plan {
	pause := rapid.SampledFrom([]time.Duration{0, 0, time.Millisecond, 40 * time.Millisecond, 900 * time.Millisecond, 4 * time.Second})
	p := plan{
		clients: rapid.IntRange(1, 3).Draw(t, "clients"),
		waitTTL: rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second}).Draw(t, "WaitTTL"),
	}
	one := rapid.Custom(func(t *rapid.T) visit {
		return visit{
			Client:   rapid.IntRange(0, p.clients-1).Draw(t, "client"),
			Name:     rapid.IntRange(0, 1).Draw(t, "name"),
			Owner:    rapid.IntRange(0, explicitOwners+3).Draw(t, "owner"),
			Mode:     rapid.SampledFrom([]store.Mode{store.Exclusive, store.Shared}).Draw(t, "mode"),
			Try:      rapid.IntRange(0, 4).Draw(t, "try") == 4,
			Think:    pause.Draw(t, "think"),
			Patience: pause.Draw(t, "patience"),
			Hold:     pause.Draw(t, "hold"),
			Nest:     rapid.IntRange(0, 3).Draw(t, "nest") == 3,
			Read:     rapid.Bool().Draw(t, "read"),
		}
	})
	p.workers = rapid.SliceOfN(rapid.SliceOfN(one, 1, 6), 2, 10).Draw(t, "workers")
	for range p.clients {
		at := time.Duration(0)
		if rapid.IntRange(0, 5).Draw(t, "close early") == 5 {
			at = 1 + pause.Draw(t, "close at")
		}
		p.closes = append(p.closes, at)
	}
	if rapid.Bool().Draw(t, "gales") {
		p.gales = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) gale {
			from := pause.Draw(t, "from")
			return gale{
				Client:  rapid.IntRange(0, p.clients-1).Draw(t, "client"),
				Weather: rapid.SampledFrom([]weather{refused, replyLost, silent, mute, slow}).Draw(t, "weather"),
				From:    from,
				To:      from + 1 + pause.Draw(t, "for"),
			}
		}), 1, 3).Draw(t, "gales")
	}
	return p
}

// crowd is one run of a plan.
type crowd struct {
	plan
	memory   *memory.Store
	ledger   *ledger
	clients  []*dlock.Client
	links    []*link
	owners   []dlock.Owner
	claims   claims
	complain func(format string, args ...any) // on any goroutine
	done     sync.WaitGroup
}

func (p plan) run(t *rapid.T) {
	c := &crowd{plan: p, memory: memory.New()}
	var mu sync.Mutex
	var complaints []string
	c.complain = func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		complaints = append(complaints, fmt.Sprintf(format, args...))
	}
	c.ledger = newLedger(c.memory, c.complain)
	c.claims.complain = c.complain
	for range explicitOwners {
		c.owners = append(c.owners, dlock.NewOwner())
	}
	for i := range p.clients {
		l := newLink(label(i), c.ledger.peer())
		client, err := dlock.New(l, &dlock.Options{TTL: leaseTTL, WaitTTL: p.waitTTL, Label: label(i)})
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		c.links, c.clients = append(c.links, l), append(c.clients, client)
	}
	for _, g := range p.gales {
		l := c.links[g.Client]
		time.AfterFunc(g.From, func() { l.set(g.Weather, -1, 700*time.Millisecond) })
		time.AfterFunc(g.To, func() { l.set(fair, 0, 0) })
	}
	for i, at := range p.closes {
		if at > 0 {
			time.AfterFunc(at, func() { c.close(i) })
		}
	}
	for _, visits := range p.workers {
		c.done.Go(func() {
			for _, v := range visits {
				c.visit(v)
			}
		})
	}
	c.end(t)
	for _, complaint := range complaints {
		t.Error(complaint)
	}
}

func label(client int) string { return fmt.Sprintf("client %d", client) }

// end waits for all, for longer than any plan can take, and looks for what is left.
func (c *crowd) end(t *rapid.T) {
	finished := make(chan struct{})
	go func() {
		c.done.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(time.Hour):
		c.complain("some goroutine never gets its lock")
	}
	for i, at := range c.closes {
		if at == 0 {
			c.close(i)
		}
	}
	<-finished
	time.Sleep(leaseTTL + c.waitTTL + 10*time.Second) // links are fair again; what was cut off has expired
	if names, err := c.memory.List(context.Background()); err != nil || len(names) > 0 {
		c.complain("left at the store: %q, %v", names, err)
	}
	c.ledger.mu.Lock() // also for the complaints: nothing runs any more
	defer c.ledger.mu.Unlock()
}

// close closes a client, whoever may be using it. In fair weather its holds and
// places are gone when it returns.
func (c *crowd) close(i int) {
	err := c.clients[i].Close()
	if len(c.gales) > 0 {
		return
	}
	if err != nil {
		c.complain("Close: %v", err)
	}
	for n := range 2 {
		s, err := c.memory.Inspect(context.Background(), lockName(n))
		if err != nil {
			c.complain("Inspect: %v", err)
		}
		for _, e := range append(s.Holders, s.Queue...) {
			if e.Label == label(i) {
				c.complain("%s was closed and the store still has %+v", e.Label, e)
			}
		}
	}
}

func lockName(n int) string { return string(rune('a' + n)) }

// visit takes a lock, holds it for a while, and gives it back.
func (c *crowd) visit(v visit) {
	time.Sleep(v.Think)
	ctx := context.Background()
	if v.Owner < explicitOwners {
		ctx = dlock.WithOwner(ctx, c.owners[v.Owner])
	}
	if v.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.Patience)
		defer cancel()
	}
	h := c.take(ctx, v, v.Mode)
	if h == nil {
		return
	}
	if v.Nest {
		mode := v.Mode
		if v.Read {
			mode = store.Shared
		}
		if inner := c.take(h.Context(ctx), v, mode); inner != nil {
			if v.Read {
				h, inner = inner, h // the outer one goes first
			}
			c.give(inner)
		}
	}
	select {
	case <-time.After(v.Hold):
	case <-h.Done(): // lost, or the client was closed
	}
	c.give(h)
}

func (c *crowd) take(ctx context.Context, v visit, mode store.Mode) *dlock.Hold {
	rw := c.clients[v.Client].RWMutex(lockName(v.Name))
	take := rw.LockContext
	switch {
	case v.Try && mode == store.Shared:
		take = rw.TryRLockContext
	case v.Try:
		take = rw.TryLockContext
	case mode == store.Shared:
		take = rw.RLockContext
	}
	h, err := take(ctx)
	if err == nil {
		c.claims.begin(v.Client, h, mode)
		return h
	}
	ok := ctx.Err() != nil && errors.Is(err, ctx.Err()) ||
		v.Try && errors.Is(err, dlock.ErrHeld) ||
		c.closes[v.Client] > 0 && (errors.Is(err, dlock.ErrClosed) || errors.Is(err, context.Canceled)) ||
		mode == store.Exclusive && v.Owner < explicitOwners && errors.Is(err, dlock.ErrUpgrade) ||
		len(c.gales) > 0 && (errors.Is(err, dlock.ErrUnavailable) || errors.Is(err, dlock.ErrLost) || errors.Is(err, context.Canceled))
	if !ok {
		c.complain("%+v: %v", v, err)
	}
	return nil
}

func (c *crowd) give(h *dlock.Hold) {
	c.claims.end(h)
	err := h.Unlock()
	if err != nil && len(c.gales) == 0 && !errors.Is(err, dlock.ErrClosed) {
		c.complain("Unlock: %v", err)
	}
}
