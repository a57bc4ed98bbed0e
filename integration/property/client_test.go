package property

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
)

const leaseTTL = 3 * time.Second

// TestClient: clients do what the model says, whatever is asked of them in
// whatever order, and keep what they promise while their links fail.
func TestClient(t *testing.T) {
	check(t, 3, func(t *rapid.T) { rapid.SyncTest(t, clientMachine) })
}

// world is one run: clients over one store, and everything that they have been
// asked and have answered.
type world struct {
	memory  *memory.Store // the test's own handle: without weather
	clients []*client
	born    int
	owners  []dlock.Owner // the first two explicit, the others private
	names   []string
	terms   map[string]terms
	options dlock.Options
	quietly time.Duration // after trouble, until nothing of it can be left

	handles  []*handle
	waiting  []*pending
	gaveUp   []*pending        // returned without a handle, at this moment
	newest   map[string]uint64 // token, of each name
	broken   map[uint64]bool   // tokens whose holds were removed by force
	restless time.Time         // until then something of a closed client may be left

	mu      sync.Mutex
	arrived []*handle // in the order in which calls returned
	mourned map[*dlock.Hold]int
}

// client is a client slot's present incarnation.
type client struct {
	*dlock.Client
	link   *link
	label  string
	closed bool
}

func (c *client) String() string { return c.label }

type terms struct {
	options []dlock.LockOption
	fixed   bool
	maxHold time.Duration
}

func clientMachine(t *rapid.T) {
	w := newWorld(t)
	defer w.abandon()
	stormy := rapid.Bool().Draw(t, "stormy")
	// Half of the sequences have no faults, so that the other half's tolerance
	// does not hide a wrong answer. (To rapid, Skip means: draw another action.)
	inStorms := func(action func(*rapid.T)) func(*rapid.T) {
		return func(t *rapid.T) {
			if !stormy {
				t.Skip()
			}
			action(t)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"lock":                  w.lock,
		"queue up":              w.queueUp,
		"try":                   w.try,
		"try, as often as lock": w.try,
		"unlock":                w.unlock,
		"unlock, as often":      w.unlock,
		"unlock any":            w.unlockAny,
		"cancel":                w.cancel,
		"advance":               w.advance,
		"break":                 w.breakName,
		"close":                 w.closeClient,
		"storm":                 inStorms(w.storm),
		"deafen":                inStorms(w.deafen),
		"fair weather":          inStorms(w.clear),
		"":                      w.settle,
	})
	w.finish(t)
}

func newWorld(t *rapid.T) *world {
	w := &world{
		memory:  memory.New(),
		names:   []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "names")],
		terms:   make(map[string]terms),
		newest:  make(map[string]uint64),
		broken:  make(map[uint64]bool),
		mourned: make(map[*dlock.Hold]int),
		options: dlock.Options{
			TTL:          leaseTTL,
			WaitTTL:      rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second}).Draw(t, "WaitTTL"),
			StoreTimeout: rapid.SampledFrom([]time.Duration{0, 5 * time.Second}).Draw(t, "StoreTimeout"),
			// The model says what the store grants to whom, and in which order.
			LocalHandoffs: -1,
		},
	}
	// The longest pauses of the client after an error: 300 ms before it asks
	// again, 200 ms before it releases again, WaitTTL/3 before a waiter looks
	// for itself.
	w.quietly = w.options.WaitTTL/3 + 500*time.Millisecond
	w.options.OnLost = func(h *dlock.Hold) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mourned[h]++
	}
	for _, name := range w.names {
		w.terms[name] = rapid.SampledFrom([]terms{
			{},
			{options: []dlock.LockOption{dlock.WithoutRenewal()}, fixed: true},
			{options: []dlock.LockOption{dlock.WithMaxHold(4 * time.Second)}, maxHold: 4 * time.Second},
		}).Draw(t, "terms of "+name)
	}
	for range rapid.IntRange(1, 3).Draw(t, "clients") {
		w.clients = append(w.clients, w.newClient(t))
	}
	w.owners = []dlock.Owner{dlock.NewOwner(), dlock.NewOwner()}
	for range 2 {
		h, err := w.clients[0].Mutex("to get a private owner").LockContext(context.Background())
		if err != nil {
			t.Fatalf("Lock: %v", err)
		}
		w.owners = append(w.owners, h.Owner())
		if err := h.Unlock(); err != nil {
			t.Fatalf("Unlock: %v", err)
		}
	}
	return w
}

func (w *world) newClient(t *rapid.T) *client {
	w.born++
	c := &client{label: fmt.Sprintf("client %d", w.born)}
	c.link = newLink(c.label, w.memory.Peer())
	options := w.options
	options.Label = c.label
	var err error
	if c.Client, err = dlock.New(c.link, &options); err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

// timeout is that of one call of the store.
func (w *world) timeout() time.Duration {
	if w.options.StoreTimeout > 0 {
		return w.options.StoreTimeout
	}
	return leaseTTL / 3
}

// quiet: no weather has had an effect for so long that nothing of it is left.
// Then the model's answers are exact; otherwise only promises are checked.
func (w *world) quiet() bool { return w.quietSince(time.Now()) }

// quietSince: the same for all moments from then on.
func (w *world) quietSince(then time.Time) bool {
	for _, c := range w.clients {
		if c.link.troubled(then.Add(-w.quietly)) {
			return false
		}
	}
	return !then.Before(w.restless)
}

// abandon ends whatever a failed sequence leaves behind, for the bubble has to.
func (w *world) abandon() {
	for _, p := range w.waiting {
		p.cancel()
	}
	for _, c := range w.clients {
		c.link.set(fair, 0, 0)
		_ = c.Client.Close()
	}
}

// finish undoes everything and looks for what is left.
func (w *world) finish(t *rapid.T) {
	w.clear(t)
	for _, p := range w.waiting {
		p.cancel()
		p.canceled = true
	}
	time.Sleep(w.quietly + w.timeout() + 3*time.Second)
	w.settle(t)
	for _, h := range w.handles {
		w.unlockHandle(t, h)
	}
	w.settle(t)
	if len(w.waiting) > 0 {
		t.Fatalf("calls never returned: %v", w.waiting)
	}
	time.Sleep(leaseTTL + w.options.WaitTTL)
	for _, c := range w.clients {
		if err := c.Close(); err != nil {
			t.Fatalf("Close in fair weather: %v", err)
		}
	}
	synctest.Wait()
	names, err := w.memory.List(context.Background())
	if err != nil || len(names) > 0 {
		t.Fatalf("left at the store: %q, %v", names, err)
	}
}
