package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
)

// Each benchmark has one sub-benchmark for each kind of lock; "sync" is the one
// that the others are compared with.

func newClient(tb testing.TB) *dlock.Client {
	client, err := dlock.New(memory.New(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return client
}

// channelLock is the lock that fits in a channel of one.
type channelLock chan struct{}

func (c channelLock) Lock()   { c <- struct{}{} }
func (c channelLock) Unlock() { <-c }

// lockers are the kinds of lock, by name.
func lockers(client *dlock.Client) []struct {
	name string
	new  func(name string) sync.Locker
} {
	return []struct {
		name string
		new  func(name string) sync.Locker
	}{
		{"sync", func(string) sync.Locker { return new(sync.Mutex) }},
		{"channel", func(string) sync.Locker { return make(channelLock, 1) }},
		{"dlock", func(name string) sync.Locker { return client.Mutex(name) }},
	}
}

// in runs b.N operations on n goroutines together.
func in(b *testing.B, n int, newOp func(goroutine int) func(i int64)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for g := range n {
		op := newOp(g)
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				op(i)
			}
		})
	}
	wg.Wait()
}

// Uncontended: Lock and Unlock of one lock by one goroutine.
func BenchmarkUncontended(b *testing.B) {
	for _, kind := range lockers(newClient(b)) {
		b.Run(kind.name, func(b *testing.B) {
			l, turns := kind.new("uncontended"), 0
			b.ReportAllocs()
			for b.Loop() {
				l.Lock()
				turns++
				l.Unlock()
			}
		})
	}
}

// Forms: the ways to take a lock that is free.
func BenchmarkForms(b *testing.B) { forms(b, context.Background(), newClient(b).Mutex("forms")) }

// Nested: the first lock, and then the forms of taking it again.
func BenchmarkNested(b *testing.B) {
	m := newClient(b).Mutex("nested")
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			lockContext(b, b.Context(), m)
		}
	})
	hold, err := m.LockContext(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer hold.Unlock()
	forms(b, hold.Context(context.Background()), m)
}

func forms(b *testing.B, ctx context.Context, m *dlock.Mutex) {
	b.Run("LockContext", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			lockContext(b, ctx, m)
		}
	})
	b.Run("Do", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := m.Do(ctx, func(context.Context) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("As", func(b *testing.B) {
		owner, ok := dlock.OwnerFrom(ctx)
		if !ok {
			owner = dlock.NewOwner()
		}
		l, turns := m.As(owner), 0
		b.ReportAllocs()
		for b.Loop() {
			l.Lock()
			turns++
			l.Unlock()
		}
	})
}

func lockContext(tb testing.TB, ctx context.Context, m *dlock.Mutex) {
	h, err := m.LockContext(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if err := h.Unlock(); err != nil {
		tb.Fatal(err)
	}
}

// Contended: 16 goroutines want one lock; an operation is one turn.
func BenchmarkContended16(b *testing.B) {
	for _, kind := range lockers(newClient(b)) {
		b.Run(kind.name, func(b *testing.B) {
			l, turns := kind.new("contended"), 0
			in(b, 16, func(int) func(int64) {
				return func(int64) {
					l.Lock()
					turns++
					l.Unlock()
				}
			})
			if turns != b.N {
				b.Errorf("%d turns of %d", turns, b.N)
			}
		})
	}
}

// Distinct: 16 goroutines, each with a lock of its own.
func BenchmarkDistinct16(b *testing.B) {
	for _, kind := range lockers(newClient(b)) {
		b.Run(kind.name, func(b *testing.B) {
			in(b, 16, func(goroutine int) func(int64) {
				l, turns := kind.new(fmt.Sprint("distinct/", goroutine)), 0
				return func(int64) {
					l.Lock()
					turns++
					l.Unlock()
				}
			})
		})
	}
}

// rwLocker is what sync.RWMutex and dlock.RWMutex have in common.
type rwLocker interface {
	sync.Locker
	RLock()
	RUnlock()
}

// channelRW is a readers' and writers' lock of a channel: each reader takes one
// slot, a writer all of them, and mu keeps writers from meeting half-way.
type channelRW struct {
	slots chan struct{}
	mu    sync.Mutex
}

func (c *channelRW) RLock()   { c.slots <- struct{}{} }
func (c *channelRW) RUnlock() { <-c.slots }
func (c *channelRW) Lock() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range cap(c.slots) {
		c.slots <- struct{}{}
	}
}
func (c *channelRW) Unlock() {
	for range cap(c.slots) {
		<-c.slots
	}
}

// ReadMostly: 16 goroutines, every 20th turn of them all a writer's.
func BenchmarkReadMostly16(b *testing.B) {
	client := newClient(b)
	for _, kind := range []struct {
		name string
		lock rwLocker
	}{
		{"sync", new(sync.RWMutex)},
		{"channel", &channelRW{slots: make(chan struct{}, 16)}},
		{"dlock", client.RWMutex("read-mostly")},
	} {
		b.Run(kind.name, func(b *testing.B) {
			l, written := kind.lock, int64(0)
			in(b, 16, func(int) func(int64) {
				return func(i int64) {
					if i%20 == 0 {
						l.Lock()
						written++
						l.Unlock()
						return
					}
					l.RLock()
					_ = written
					l.RUnlock()
				}
			})
			if written != int64(b.N)/20 {
				b.Errorf("%d writes of %d", written, b.N/20)
			}
		})
	}
}
