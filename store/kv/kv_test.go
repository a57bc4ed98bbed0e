package kv_test

import (
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// TestConformance: in bubbles, over a map, with and without messages, with a
// counter and with a sequence, and with every step run twice.
func TestConformance(t *testing.T) {
	for name, with := range map[string]func(b *backend) kv.Backend{
		"messages": func(b *backend) kv.Backend { return notifying{b} },
		"polling":  func(b *backend) kv.Backend { return b },
		"sequence": func(b *backend) kv.Backend { b.limit = true; return notifying{b} },
		"twice":    func(b *backend) kv.Backend { b.twice = true; return notifying{b} },
	} {
		t.Run(name, func(t *testing.T) {
			conformance.RunSuite(t, conformance.Suite{
				Bubble: true,
				New: func(t testing.TB) store.Store {
					b := with(&backend{table: newTable()})
					return handle{open(t, b, nil), b, t}
				},
				Stall: func(_ testing.TB, s store.Store) (resume func()) {
					lock := tableOf(s).lock
					lock <- struct{}{}
					return func() { <-lock }
				},
				Footprint: func(s store.Store) int {
					table := tableOf(s)
					table.lock <- struct{}{}
					defer func() { <-table.lock }()
					return len(table.values)
				},
				Plant: func(_ testing.TB, s store.Store, name string) {
					tableOf(s).values[name] = []byte("a value of another program")
				},
			})
		})
	}
}

// tableOf returns the table behind a handle.
func tableOf(s store.Store) *table {
	switch b := s.(handle).backend.(type) {
	case notifying:
		return b.table
	case *backend:
		return b.table
	}
	return nil
}
