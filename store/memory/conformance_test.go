package memory_test

import (
	"context"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

func TestConformance(t *testing.T) { conformance.Run(t, newStore) }

func TestConformanceInBubble(t *testing.T) {
	conformance.RunSuite(t, conformance.Suite{
		Bubble:    true,
		New:       func(testing.TB) store.Store { return &gated{Store: memory.New()} },
		Peer:      func(_ testing.TB, s store.Store) store.Store { return s.(*gated).Peer() },
		Stall:     func(_ testing.TB, s store.Store) (resume func()) { return s.(*gated).shut() },
		Footprint: func(s store.Store) int { return s.(*gated).Records() },
	})
}

// gated is a memory store whose calls wait while its gate is shut: the store
// itself never waits.
type gated struct {
	*memory.Store
	mu   sync.Mutex
	gate chan struct{} // nil: open
}

func (g *gated) shut() (resume func()) {
	gate := make(chan struct{})
	g.mu.Lock()
	g.gate = gate
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		g.gate = nil
		g.mu.Unlock()
		close(gate)
	}
}

func (g *gated) pass(ctx context.Context) error {
	g.mu.Lock()
	gate := g.gate
	g.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) Acquire(ctx context.Context, req store.Request) (store.Grant, error) {
	if err := g.pass(ctx); err != nil {
		return store.Grant{}, err
	}
	return g.Store.Acquire(ctx, req)
}

func (g *gated) Release(ctx context.Context, ref store.Ref) error {
	if err := g.pass(ctx); err != nil {
		return err
	}
	return g.Store.Release(ctx, ref)
}

func (g *gated) Inspect(ctx context.Context, name string) (store.State, error) {
	if err := g.pass(ctx); err != nil {
		return store.State{}, err
	}
	return g.Store.Inspect(ctx, name)
}

func (g *gated) Renew(ctx context.Context, holds []store.Ref) []error {
	if err := g.pass(ctx); err != nil {
		errs := make([]error, len(holds))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return g.Store.Renew(ctx, holds)
}

func (g *gated) Break(ctx context.Context, name string) (int, error) {
	if err := g.pass(ctx); err != nil {
		return 0, err
	}
	return g.Store.Break(ctx, name)
}

func (g *gated) List(ctx context.Context) ([]string, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	return g.Store.List(ctx)
}

func (g *gated) RaiseToken(ctx context.Context, ref store.Ref, token uint64, tokens int) (uint64, error) {
	if err := g.pass(ctx); err != nil {
		return 0, err
	}
	return g.Store.RaiseToken(ctx, ref, token, tokens)
}
