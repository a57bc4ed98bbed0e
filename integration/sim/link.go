package sim

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
)

// link is a client's way to the store. It writes down what its client sees; the
// faults come behind it, and the end of the link behind them.
type link struct {
	world  *world
	client int
	rate   float64
	behind *faultstore.Store

	mu      sync.Mutex
	calls   int       // that were sent through it
	events  int       // that came from the store
	severed time.Time // it is dead until then
	forged  time.Time // the last Event{} that no store sent
}

func newLink(w *world, client int) *link {
	l := &link{world: w, client: client, rate: w.plan.Clients[client].Rate, behind: faultstore.New(w.server.handle())}
	l.behind.Skew(l.rate)
	l.behind.On(faultstore.Any, faultstore.Every, l.meet)
	l.behind.OnEvent(faultstore.EveryEvent, l.meetEvent)
	return l
}

// lease is how long, by the clock of the test, the store keeps what it is asked to keep for d.
func (l *link) lease(d time.Duration) time.Duration {
	if l.rate == 1 {
		return d
	}
	return time.Duration(float64(d) * (1 / l.rate))
}

// send writes down that calls leave together, and lets those that they pass know it.
func (l *link) send(ctx context.Context, calls []*Call, ids, owners []string) context.Context {
	l.mu.Lock()
	l.calls++
	s := &sending{n: l.calls, calls: calls}
	l.mu.Unlock()
	l.world.history.send(calls, ids, owners)
	return context.WithValue(ctx, sendingKey{}, s)
}

// Acquire implements [store.Store].
func (l *link) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	c := &Call{
		Op: Acquire, Client: l.client, Name: req.Name, Shared: req.Mode == store.Shared, Queue: req.Queue, Tokens: req.Tokens,
		Lease: l.lease(req.TTL), Wait: l.lease(req.WaitTTL),
	}
	ctx = l.send(ctx, []*Call{c}, []string{req.ID}, []string{req.Owner})
	g, err := l.behind.Acquire(ctx, req)
	l.world.history.returned(c, g, err)
	return g, err
}

// Renew implements [store.Store].
func (l *link) Renew(ctx context.Context, refs []store.Ref) []error {
	ctx, calls := l.sendRefs(ctx, Renew, refs)
	results := l.behind.Renew(ctx, refs)
	for i, c := range calls {
		l.world.history.returned(c, store.Grant{}, results[i])
	}
	return results
}

// Release implements [store.Store].
func (l *link) Release(ctx context.Context, ref store.Ref) error {
	ctx, calls := l.sendRefs(ctx, Release, []store.Ref{ref})
	err := l.behind.Release(ctx, ref)
	l.world.history.returned(calls[0], store.Grant{}, err)
	return err
}

func (l *link) sendRefs(ctx context.Context, op Op, refs []store.Ref) (context.Context, []*Call) {
	var calls []*Call
	var ids, owners []string
	for _, r := range refs {
		calls = append(calls, &Call{
			Op: op, Client: l.client, Name: r.Name, Shared: r.Mode == store.Shared, Bury: r.Bury, Lease: l.lease(r.TTL),
		})
		ids, owners = append(ids, r.ID), append(owners, r.Owner)
	}
	return l.send(ctx, calls, ids, owners), calls
}

// Listen implements [store.Store].
func (l *link) Listen(sink func(store.Event)) (stop func()) { return l.behind.Listen(sink) }

// Inspect implements [store.Store].
func (l *link) Inspect(ctx context.Context, name string) (store.State, error) {
	return l.behind.Inspect(ctx, name)
}

// MinTTL implements [store.Store].
func (l *link) MinTTL() time.Duration { return l.behind.MinTTL() }

// Close implements [store.Store].
func (l *link) Close() error { return l.behind.Close() }
