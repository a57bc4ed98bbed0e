package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
)

// world is one run of a plan: a server, clients and tasks.
type world struct {
	plan    *Plan
	history *History
	server  backend
	slots   []*slot
	owners  []dlock.Owner // explicit
	tasks   sync.WaitGroup
	healed  atomic.Bool // no faults any more
	on      map[*Fault]*atomic.Int32

	ctx  context.Context // of all tasks; ends when one of them is stuck
	stop context.CancelFunc
}

// slot is a client that may be closed and opened anew.
type slot struct {
	reopens atomic.Bool // another that did so at once would leave a client behind

	mu     sync.Mutex
	client *dlock.Client
	link   *link
}

func (s *slot) now() *dlock.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// Run runs a plan in the present bubble and returns what happened. It returns
// when nothing that it started is left, or else the bubble ends with a panic.
func Run(p Plan) *History {
	w := &world{plan: &p, history: newHistory(p), on: make(map[*Fault]*atomic.Int32)}
	if p.Nodes > 0 {
		w.server = newQuorumServer(w.history, p.Nodes)
	} else {
		w.server = newServer(w.history)
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	defer w.stop()
	for range crowdOwners {
		w.owners = append(w.owners, dlock.NewOwner())
	}
	for i := range p.Clients {
		w.slots = append(w.slots, new(slot))
		w.open(i)
	}
	for i := range p.Faults {
		w.prepare(&p.Faults[i])
	}
	for _, d := range p.Deeds {
		w.history.after(d.After, func() { w.do(d) })
	}
	for _, t := range p.Tasks {
		w.tasks.Go(func() { w.run(t) })
	}
	w.end()
	return w.history
}

// open puts a new client into slot i.
func (w *world) open(i int) {
	o := w.plan.Clients[i]
	l := newLink(w, i)
	c, err := dlock.New(l, &dlock.Options{
		TTL: o.TTL, WaitTTL: o.WaitTTL, StoreTimeout: o.StoreTimeout, MaxHold: o.MaxHold, LocalHandoffs: o.LocalHandoffs, Label: fmt.Sprintf("client %d", i),
	})
	if err != nil {
		panic(err) // the plan is wrong
	}
	s := w.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client, s.link = c, l
}

// close closes the client in slot i. Where nothing fails it has to succeed.
func (w *world) close(i int) {
	err := w.slots[i].now().Close()
	if err == nil {
		return
	}
	w.history.leftBehind(i)
	if len(w.plan.Faults) == 0 || !errors.Is(err, dlock.ErrUnavailable) {
		w.history.complain(fmt.Sprintf("Close: %v", err))
	}
}

func (w *world) isOn(f *Fault) bool { return w.on[f].Load() > 0 }

// prepare arranges for f to come and go.
func (w *world) prepare(f *Fault) {
	w.on[f] = new(atomic.Int32)
	if f.For == 0 {
		return
	}
	w.history.after(f.After, func() {
		w.on[f].Add(1)
		if f.Kind == DataLoss {
			w.server.lose()
		}
		w.history.effect(f.Kind)
		time.Sleep(f.For)
		w.on[f].Add(-1)
		if f.Kind == SlowStore {
			return
		}
		for i, s := range w.slots { // the links are up again
			s.mu.Lock()
			l := s.link
			s.mu.Unlock()
			if f.Client < 0 || f.Client == i {
				w.history.reconnected(i)
				l.behind.Emit(store.Event{})
			}
		}
	})
}

// do does what happens to the whole.
func (w *world) do(d Deed) {
	w.history.begin()
	if d.Break >= 0 {
		w.server.force(lockName(d.Break))
		return
	}
	if s := w.slots[d.Close]; s.reopens.CompareAndSwap(false, true) {
		defer s.reopens.Store(false)
	} else {
		return
	}
	w.close(d.Close)
	time.Sleep(d.Pause)
	w.open(d.Close)
}

// end waits until all tasks are done, ends what is left, and looks whether
// anything stays.
func (w *world) end() {
	done := make(chan struct{})
	go func() {
		w.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(4000 * w.plan.TTL):
		w.history.complain("some call never returns")
		w.stop()
		<-done
	}
	w.history.finish()
	w.healed.Store(true)
	time.Sleep(w.quiet()) // for what the faults keep back
	for i := range w.slots {
		w.close(i)
	}
	time.Sleep(w.quiet())
	w.server.close()
	for _, name := range w.server.left() {
		w.history.complain(fmt.Sprintf("%q is still in use at the store", name))
	}
}

// quiet is longer than anything can last without a client: a late request and
// the longest lease after it, by the slowest clock.
func (w *world) quiet() time.Duration {
	longest := 12 * w.plan.TTL // a lease of the longest TTL, and WaitTTL before it
	slowest := 1.0
	for _, c := range w.plan.Clients {
		slowest = min(slowest, c.Rate)
	}
	return time.Duration(float64(longest)/slowest) + 4*w.plan.TTL
}

func lockName(n int) string { return fmt.Sprintf("%c%d", 'a'+n%26, n/26) }
