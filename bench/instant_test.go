package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// instantStore grants every request at once and keeps nothing: what a lock costs over
// it is the cost of the client alone.
type instantStore struct{ tokens atomic.Uint64 }

func (s *instantStore) Acquire(_ context.Context, req store.Request) (store.Grant, error) {
	return store.Grant{Held: true, Token: s.tokens.Add(1), TTL: req.TTL, Holds: 1}, nil
}
func (s *instantStore) Renew(_ context.Context, holds []store.Ref) []error {
	return make([]error, len(holds))
}
func (s *instantStore) Release(context.Context, store.Ref) error { return nil }
func (s *instantStore) Listen(func(store.Event)) (stop func())   { return func() {} }
func (s *instantStore) MinTTL() time.Duration                    { return time.Millisecond }
func (s *instantStore) Close() error                             { return nil }
func (s *instantStore) Inspect(context.Context, string) (store.State, error) {
	return store.State{}, nil
}

// Client: a free lock over a store that answers at once, with a context that cannot be
// cancelled and with one that can; and the same over the memory store, beside bare
// calls of it.
func BenchmarkClient(b *testing.B) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, k := range []struct {
		name string
		ctx  context.Context
		s    store.Store
	}{
		{"instant", context.Background(), &instantStore{}},
		{"instant cancellable", cancellable, &instantStore{}},
		{"memory", context.Background(), memory.New()},
		{"memory cancellable", cancellable, memory.New()},
	} {
		b.Run(k.name, func(b *testing.B) {
			c, err := dlock.New(k.s, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			m := c.Mutex("sku/4711")
			b.ReportAllocs()
			for b.Loop() {
				lockContext(b, k.ctx, m)
			}
		})
	}
	b.Run("bare memory", func(b *testing.B) {
		s := memory.New()
		req := store.Request{Name: "sku/4711", Owner: "owner", ID: "id", TTL: time.Minute, WaitTTL: time.Minute, Tokens: 1}
		ref := store.Ref{Name: "sku/4711", Owner: "owner", ID: "id", TTL: time.Minute}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Acquire(context.Background(), req); err != nil {
				b.Fatal(err)
			}
			if err := s.Release(context.Background(), ref); err != nil {
				b.Fatal(err)
			}
		}
	})
}
