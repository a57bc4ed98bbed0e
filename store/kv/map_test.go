package kv_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/kv"
)

// table is a database in memory: values, a counter and a clock under one lock
// that can be waited for with a context.
type table struct {
	lock   chan struct{}
	values map[string][]byte
	last   uint64
	limit  bool // draws tokens from a sequence in blocks of a thousand

	mu        sync.Mutex
	receivers map[string]func([]byte)
}

func newTable() *table {
	return &table{lock: make(chan struct{}, 1), values: make(map[string][]byte), receivers: make(map[string]func([]byte))}
}

// backend is one handle's access to a table. before and after are faults: they
// are called around the commit and may fail it.
type backend struct {
	*table
	before, after func() error
	twice         bool   // every step is rolled back once and repeated
	deaf          bool   // ignores ctx
	later         func() // set by deafened: messages arrive
}

var errCommit = errors.New("connection reset by peer")

func (b *backend) Update(ctx context.Context, names []string, f func(i int, r *kv.Record)) error {
	if b.deaf {
		ctx = context.Background()
	}
	select {
	case b.lock <- struct{}{}:
		defer func() { <-b.lock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.twice {
		b.step(names, f)
	}
	changed, last := b.step(names, f)
	if b.before != nil {
		if err := b.before(); err != nil {
			return err
		}
	}
	b.last = last
	for name, value := range changed {
		if b.values[name] = value; value == nil {
			delete(b.values, name)
		}
	}
	if b.after != nil {
		return b.after()
	}
	return nil
}

// step runs f on all names and returns the values to save and the counter.
func (b *backend) step(names []string, f func(i int, r *kv.Record)) (map[string][]byte, uint64) {
	changed, last := make(map[string][]byte), b.last
	for i, name := range names {
		r := kv.Record{Value: b.values[name], Now: time.Now(), Last: last}
		if b.limit {
			r.Limit = last + 1000
		}
		f(i, &r)
		if last = r.Last; b.limit {
			last = r.Limit
		}
		if r.Changed {
			changed[name] = r.Value
		}
	}
	return changed, last
}

func (b *backend) Names(context.Context) ([]string, error) {
	b.lock <- struct{}{}
	defer func() { <-b.lock }()
	return slices.Collect(maps.Keys(b.values)), nil
}

func (b *backend) Close() error { return nil }

// notifying is a backend with messages.
type notifying struct{ *backend }

func (n notifying) Receive(handle string, got func([]byte)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.receivers[handle] = got
	return nil
}

func (n notifying) Send(handle string, msg []byte) {
	n.mu.Lock()
	got := n.receivers[handle]
	n.mu.Unlock()
	if got != nil {
		go got(msg)
	}
}

// open returns a handle on a table, and fails the test if that fails.
func open(t testing.TB, b kv.Backend, opts *kv.Options) *kv.Store {
	t.Helper()
	s, err := kv.New(b, opts)
	if err != nil {
		t.Fatal(err)
	}
	s.CountFromZero()
	return s
}

// handle is a Store that knows its backend, so that a test finds peers.
type handle struct {
	*kv.Store
	backend kv.Backend
	t       testing.TB
}

func (h handle) Peer() store.Store { return handle{open(h.t, h.backend, nil), h.backend, h.t} }
