package property

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// subject is a store as the machine meets it. For another store than memory,
// write another of these; nothing else names memory.
type subject struct {
	// open returns n handles on the same new and empty locks.
	open func(t *rapid.T, n int) []store.Store
	// bubble runs the sequence with a clock that fits the store: a synctest
	// bubble's if the store is in this process, else the real one.
	bubble func(t *rapid.T, sequence func(*rapid.T))
	// arrive returns when the events of the operations so far have arrived.
	arrive func()
	// slack bounds by how much deadlines differ from what the model reckons. Not
	// zero: sequences then keep as far away from the deadlines.
	slack time.Duration
	ttls  []time.Duration
}

func memorySubject() subject {
	return subject{
		open: func(_ *rapid.T, n int) (handles []store.Store) {
			first := memory.New()
			for handles = append(handles, first); len(handles) < n; {
				handles = append(handles, first.Peer())
			}
			return handles
		},
		bubble: rapid.SyncTest,
		arrive: synctest.Wait,
		ttls:   []time.Duration{10 * time.Millisecond, time.Second, 3 * time.Second},
	}
}

// TestFault82Store: a store answers what the model answers, whatever is asked of it in
// whatever order, by readers and writers, repeated or late.
func TestFault82Store(t *testing.T) {
	s := memorySubject()
	check(t, 10, func(t *rapid.T) {
		s.bubble(t, func(t *rapid.T) { storeMachine(t, s) })
	})
}

// bench is one run of the machine.
type bench struct {
	subject
	handles []store.Store
	model   model
	ids     []store.Request // every acquisition so far
	via     []int           // the handle of each
	calls   []func(*rapid.T)

	mu     sync.Mutex
	events map[wake]int // that arrived and are not accounted for
}

type wake struct {
	via   int
	id    string
	token uint64
}

func storeMachine(t *rapid.T, s subject) {
	b := &bench{
		subject: s,
		handles: s.open(t, rapid.IntRange(1, 2).Draw(t, "handles")),
		model:   model{names: make(map[string]*nameModel)},
		events:  make(map[wake]int),
	}
	for i, h := range b.handles {
		defer h.Listen(func(e store.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events[wake{i, e.ID, e.Token}]++
		})()
	}
	names := rapid.SampledFrom([]string{"n", "m"})
	// Skip, here and below, means that an action makes no sense now: rapid draws
	// another one.
	t.Repeat(map[string]func(*rapid.T){
		"ask":           b.ask,
		"ask, as often": b.ask, // twice as likely: nothing happens without
		"ask again": func(t *rapid.T) {
			i := b.anyID(t)
			if b.ids[i].Queue && rapid.Bool().Draw(t, "no place any more") {
				b.ids[i].Queue = false
			}
			b.acquire(t, b.ids[i], b.via[i])
		},
		"renew": func(t *rapid.T) {
			var refs []store.Ref
			for range rapid.IntRange(1, 3).Draw(t, "batch") {
				refs = append(refs, b.ref(b.anyID(t)))
			}
			b.do(t, func(t *rapid.T) { b.renew(t, refs) })
		},
		"release": func(t *rapid.T) {
			i := b.anyID(t)
			ref := b.ref(i)
			ref.Bury = rapid.IntRange(0, 3).Draw(t, "bury") == 3
			b.do(t, func(t *rapid.T) { b.release(t, ref, b.via[i]) })
		},
		"repeat": func(t *rapid.T) {
			if len(b.calls) == 0 {
				t.Skip()
			}
			b.calls[rapid.IntRange(0, len(b.calls)-1).Draw(t, "call")](t)
		},
		"break":   func(t *rapid.T) { b.breakAll(t, names.Draw(t, "name")) },
		"inspect": func(t *rapid.T) { b.inspect(t, names.Draw(t, "name")) },
		"list":    b.list,
		"advance": b.advance,
		"":        b.accountForEvents,
	})
	for _, name := range []string{"n", "m"} {
		b.inspect(t, name)
	}
}

// do makes a call that "repeat" may make again.
func (b *bench) do(t *rapid.T, call func(*rapid.T)) {
	b.calls = append(b.calls, call)
	call(t)
}

func (b *bench) anyID(t *rapid.T) int {
	if len(b.ids) == 0 {
		t.Skip()
	}
	// The latest first: that is what shrinks to short sequences.
	return len(b.ids) - 1 - rapid.IntRange(0, len(b.ids)-1).Draw(t, "id back")
}

func (b *bench) ask(t *rapid.T) {
	ttl := rapid.SampledFrom(b.ttls)
	req := store.Request{
		Name:    rapid.SampledFrom([]string{"n", "m"}).Draw(t, "name"),
		Owner:   fmt.Sprintf("owner%d", rapid.IntRange(0, 4).Draw(t, "owner")),
		ID:      fmt.Sprintf("%06x%026x", len(b.ids)+1, 0), // differs in what Inspect shows
		Mode:    rapid.SampledFrom([]store.Mode{store.Exclusive, store.Shared}).Draw(t, "mode"),
		Queue:   rapid.IntRange(0, 3).Draw(t, "queue") < 3,
		TTL:     ttl.Draw(t, "TTL"),
		WaitTTL: ttl.Draw(t, "WaitTTL"),
		Fixed:   rapid.Bool().Draw(t, "fixed"),
		Tokens:  rapid.IntRange(1, 3).Draw(t, "tokens"),
		Label:   "label",
	}
	via := rapid.IntRange(0, len(b.handles)-1).Draw(t, "handle")
	b.ids, b.via = append(b.ids, req), append(b.via, via)
	b.do(t, func(t *rapid.T) { b.acquire(t, req, via) })
}

func (b *bench) ref(i int) store.Ref {
	r := b.ids[i]
	return store.Ref{Name: r.Name, Owner: r.Owner, ID: r.ID, Mode: r.Mode, TTL: r.TTL}
}

// advance lets time pass: to some deadline, a hair before or after it, or by
// any duration. A store with slack is never asked near a deadline.
func (b *bench) advance(t *rapid.T) {
	var until []time.Time
	for _, n := range b.model.names {
		for _, c := range slices.Concat(n.holds, n.queue) {
			until = append(until, c.until)
		}
		for _, u := range n.buried {
			until = append(until, u)
		}
	}
	slices.SortFunc(until, time.Time.Compare)
	until = slices.DeleteFunc(until, func(u time.Time) bool { return u.Before(time.Now()) })
	d := time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms")) * time.Millisecond
	if len(until) > 0 && rapid.Bool().Draw(t, "to a deadline") {
		i := rapid.IntRange(0, len(until)-1).Draw(t, "which")
		d = time.Until(until[i]) + time.Duration(rapid.IntRange(-1, 1).Draw(t, "hair"))
	}
	for _, u := range until {
		if miss := time.Until(u) - d; b.slack > 0 && miss.Abs() < b.slack {
			d = time.Until(u) + b.slack
		}
	}
	time.Sleep(d)
	t.Logf("          %v later", d)
}

func (b *bench) acquire(t *rapid.T, req store.Request, via int) {
	b.model.now = time.Now()
	want := b.model.acquire(req, via)
	got, err := b.handles[via].Acquire(context.Background(), req)
	t.Logf("          Acquire %s = %+v, %v", describe(req), got, err)
	b.compareGrant(t, req, got, err, want)
}

func (b *bench) renew(t *rapid.T, refs []store.Ref) {
	b.model.now = time.Now()
	var want []error
	for _, ref := range refs {
		want = append(want, b.model.renew(ref))
	}
	got := b.handles[0].Renew(context.Background(), refs)
	t.Logf("          Renew %d: %v", len(refs), got)
	if !slices.EqualFunc(got, want, sameAnswer) {
		t.Fatalf("Renew(%v)\n got  %v\n want %v", refs, got, want)
	}
}

func (b *bench) release(t *rapid.T, ref store.Ref, via int) {
	b.model.now = time.Now()
	want := b.model.release(ref)
	got := b.handles[via].Release(context.Background(), ref)
	t.Logf("          Release %s bury=%v = %v", ref.ID[:6], ref.Bury, got)
	if !sameAnswer(got, want) {
		t.Fatalf("Release(%+v)\n got  %v\n want %v", ref, got, want)
	}
}

func (b *bench) breakAll(t *rapid.T, name string) {
	breaker, ok := b.handles[0].(store.Breaker)
	if !ok {
		t.Skip("not an ability of this store")
	}
	b.model.now = time.Now()
	want := b.model.breakAll(name)
	got, err := breaker.Break(context.Background(), name)
	t.Logf("          Break %q = %d, %v", name, got, err)
	if got != want || err != nil {
		t.Fatalf("Break(%q)\n got  %d, %v\n want %d, <nil>", name, got, err, want)
	}
}

// list asks for the names in use. It is no operation on any of them, so it
// notices no expiry; but what is dead does not count.
func (b *bench) list(t *rapid.T) {
	lister, ok := b.handles[0].(store.Lister)
	if !ok {
		t.Skip("not an ability of this store")
	}
	var want []string
	for name, n := range b.model.names {
		if slices.ContainsFunc(slices.Concat(n.holds, n.queue), func(c *claim) bool { return c.until.After(time.Now()) }) {
			want = append(want, name)
		}
	}
	got, err := lister.List(context.Background())
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("List() = %q, %v, want %q", got, err, want)
	}
}
