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
				Plant: func(t testing.TB, s store.Store, name string) { plant(s.(handle).backend, name) },
			})
		})
	}
}

// plant puts a value of another program at a name.
func plant(b kv.Backend, name string) {
	if n, ok := b.(notifying); ok {
		b = n.backend
	}
	b.(*backend).values[name] = []byte("a value of another program")
}
