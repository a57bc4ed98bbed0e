package matrix

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// options are those of the client behind the wire: a lease outlives a mute wire,
// by more than the second in which everything has to be well again.
var options = dlock.Options{TTL: 4 * time.Second, StoreTimeout: time.Second}

// soon is when everything has to be well again after the wire is.
const soon = time.Second

// server is one on which all cells of its store run, each with a name, a wire
// and a client behind it of its own.
type server interface {
	near(t *testing.T) store.Store
	far(t *testing.T) (store.Store, wire)
}

// site is a server, and those who see it directly, in all cells.
type site struct {
	server
	direct store.Store
	client *dlock.Client
}

func newSite(t *testing.T, s server) *site {
	direct := s.near(t)
	return &site{s, direct, locktest.NewClient(t, direct, dlock.Options{TTL: 10 * time.Second})}
}

// cell is one cell of the table.
type cell struct {
	t      *testing.T
	how    fault
	giveUp bool

	// A release is applied twice, and the client hears the second answer, which is
	// that of a hold that was gone. It cannot know better, and nothing is wrong but
	// what Unlock and OnLost say.
	twiceReleased bool

	apart  bool // owners belong to one client
	outer  int  // handles of the owner in the far client before take
	name   string
	wire   wire
	direct store.Store
	far    *dlock.Client // behind the wire
	near   *dlock.Client
}

func newCell(t *testing.T, s *site, name string, how fault, giveUp bool) *cell {
	c := &cell{t: t, how: how, giveUp: giveUp, name: name, direct: s.direct, near: s.client}
	_, c.apart = s.server.(*quorumServer)
	behind, w := s.far(t)
	o := options
	o.OnLost = func(*dlock.Hold) {
		if !c.twiceReleased {
			t.Error("a hold was lost")
		}
	}
	c.wire, c.far = w, locktest.NewClient(t, behind, o)
	// The connection is there, and so is all that a store makes once.
	locktest.Unlock(t, locktest.Lock(t, c.far, "warm "+name))
	return c
}

type locking func(context.Context) (*dlock.Hold, error)

// take takes a lock, whose reply is lost. A caller who gives up has gone before
// the request arrives; then take returns nil.
func (c *cell) take(ctx context.Context, lock locking) *dlock.Hold {
	c.t.Helper()
	ctx, leave := context.WithTimeout(ctx, locktest.Patience)
	defer leave()
	c.wire.lose(acquire, c.how, false, func() {
		if c.giveUp {
			leave()
		}
	})
	h, err := lock(ctx)
	switch {
	case c.giveUp && err == nil: // the answer was quicker than the word of the caller's leaving
		locktest.Unlock(c.t, h)
		return nil
	case c.giveUp:
		locktest.MustBe(c.t, err, context.Canceled)
		return nil
	case err != nil:
		c.t.Fatalf("the lock is free, and the caller got %v", err)
	}
	if n := h.Count(); n != c.outer+1 {
		c.t.Errorf("its count is %d, want %d", n, c.outer+1)
	}
	return h
}

// well waits until a second after the wire was healed, when the store must have
// so many holds of the lock and nobody in its queue.
func (c *cell) well(holds int) store.State {
	c.t.Helper()
	select {
	case <-c.wire.healed():
	case <-time.After(locktest.Patience):
		c.t.Fatal("the fault has not bitten")
	}
	<-time.After(soon)
	state := c.state()
	is := func() bool { return len(state.Holders) == holds && len(state.Queue) == 0 }
	for grace := time.Now().Add(locktest.Late); !is() && time.Now().Before(grace); state = c.state() {
		time.Sleep(10 * time.Millisecond)
	}
	if !is() {
		c.t.Fatalf("the store has %+v, want %d holders and no queue", state, holds)
	}
	return state
}

func (c *cell) state() store.State {
	c.t.Helper()
	state, err := c.direct.Inspect(context.Background(), c.name)
	if err != nil {
		c.t.Fatal(err)
	}
	return state
}

// atMost is the store's state, as soon as it has no more than so many holds and places. Unlock
// returns when a majority of a quorum has released: a slower node has still to.
func (c *cell) atMost(n int) store.State {
	c.t.Helper()
	state := c.state()
	for grace := time.Now().Add(locktest.Late); c.apart && len(state.Holders)+len(state.Queue) > n && time.Now().Before(grace); state = c.state() {
		time.Sleep(time.Millisecond)
	}
	return state
}

// holds asserts that the store knows the hold, by its token, and counts n
// altogether.
func (c *cell) holds(h *dlock.Hold, n int) {
	c.t.Helper()
	if err := h.Err(); err != nil {
		c.t.Fatal(err)
	}
	state := c.atMost(n)
	known := 0
	for _, e := range state.Holders {
		if e.Token == h.Token() {
			known++
		}
	}
	if known == 0 || len(state.Holders) != n {
		c.t.Fatalf("the store has the holders %+v, want %d, one with token %d", state.Holders, n, h.Token())
	}
}

// free asserts that anyone can take the lock at once, and that it is free again
// after that.
func (c *cell) free() {
	c.t.Helper()
	h, err := c.near.Mutex(c.name).TryLockContext(context.Background())
	if err != nil {
		c.t.Fatalf("nobody holds the lock, and a try gets %v", err)
	}
	c.holds(h, 1)
	locktest.Unlock(c.t, h)
	if state := c.atMost(0); len(state.Holders)+len(state.Queue) > 0 {
		c.t.Fatalf("left at the store: %+v", state)
	}
}

// busy asserts that nobody can take the lock, for somebody holds it.
func (c *cell) busy() {
	c.t.Helper()
	_, err := c.near.Mutex(c.name).TryLockContext(context.Background())
	locktest.MustBe(c.t, err, dlock.ErrHeld)
}

// released asserts that an Unlock has gone as it may. Its time is bounded as a
// whole: when that is over the client goes on in the background.
func (c *cell) released(err error) {
	c.t.Helper()
	switch {
	case err == nil, errors.Is(err, dlock.ErrUnavailable):
	case errors.Is(err, dlock.ErrLost) && c.twiceReleased:
	default:
		c.t.Fatal(err)
	}
}
