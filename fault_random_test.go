package dlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

const (
	chaos = 2 * time.Minute  // faults happen
	calm  = 30 * time.Second // and then none: everything has to come to rest
)

// Ten goroutines of two clients lock, nest, wait, give up and unlock, readers
// and writers, renewed and not, while calls and events meet faults at random.
// No claims overlap, tokens grow, and nothing is left. A failure prints the
// seed; the scheduler is not seeded, so it may take several runs to come back.
func TestFaultsAtRandom(t *testing.T) {
	first := rand.Uint64()
	for seed := first; seed < first+8; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, &dlock.Options{TTL: 3 * time.Second}, func(t *testing.T, w *world) { w.random(seed) })
		})
	}
}

func (w *world) random(seed uint64) {
	spans := &spans{start: w.start}
	for i, s := range []*faultstore.Store{w.s1, w.s2} {
		w.randomFaults(s, rand.New(rand.NewPCG(seed, uint64(i))))
	}
	var users sync.WaitGroup
	for i := range 10 {
		c, r := []*dlock.Client{w.c1, w.c2}[i%2], rand.New(rand.NewPCG(seed, uint64(i)+10))
		users.Go(func() {
			for time.Since(w.start) < chaos {
				w.randomUse(c, r, spans)
				time.Sleep(upTo(r, 100*time.Millisecond))
			}
		})
	}
	users.Wait()
	time.Sleep(calm)
	synctest.Wait()
	spans.check(w.t)
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// randomFaults makes a share of what goes through s meet one or two faults.
func (w *world) randomFaults(s *faultstore.Store, r *rand.Rand) {
	var mu sync.Mutex
	share := r.Float64() / 2
	draw := func() (faults []faultstore.Fault, late time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		late = upTo(r, 4*time.Second)
		kinds := []faultstore.Fault{
			faultstore.DropRequest(), faultstore.DropReply(), faultstore.Mute(), faultstore.MuteReply(), faultstore.Duplicate(),
			faultstore.DelayRequest(late), faultstore.DelayReply(late), faultstore.DelayRequest(late / 100), faultstore.DelayReply(late / 100),
		}
		for time.Since(w.start) < chaos && r.Float64() < share {
			faults = append(faults, kinds[r.IntN(len(kinds))])
		}
		return faults, late
	}
	s.On(faultstore.Any, faultstore.Every, func(ctx context.Context, deliver func(context.Context) faultstore.Result) faultstore.Result {
		faults, _ := draw()
		for _, fault := range faults {
			next := deliver
			deliver = func(ctx context.Context) faultstore.Result { return fault(ctx, next) }
		}
		return deliver(ctx)
	})
	s.OnEvent(faultstore.EveryEvent, func(e store.Event, deliver func(store.Event)) {
		faults, late := draw()
		if len(faults) != 1 { // none or two: it comes in time, after two also again
			deliver(e)
		}
		if len(faults) > 0 && late%3 > 0 {
			time.AfterFunc(late, func() { deliver(e) })
		}
	})
}

// randomUse takes a lock in one way or another and gives it back.
func (w *world) randomUse(c *dlock.Client, r *rand.Rand, spans *spans) {
	ctx, cancel := context.WithTimeout(w.t.Context(), upTo(r, 6*time.Second))
	defer cancel()
	if r.IntN(3) == 0 {
		ctx = dlock.WithOwner(ctx, dlock.NewOwner())
	}
	var opts []dlock.LockOption
	if r.IntN(5) == 0 {
		opts = append(opts, dlock.WithoutRenewal())
	}
	rw := c.RWMutex([]string{"a", "b"}[r.IntN(2)], opts...)
	shared := r.IntN(3) == 0
	lock := rw.LockContext
	if shared {
		lock = rw.RLockContext
	}
	h, err := lock(ctx)
	if err != nil {
		return
	}
	spans.add(h, shared)
	if r.IntN(4) == 0 {
		if read, err := rw.RLockContext(dlock.WithOwner(ctx, h.Owner())); err == nil {
			spans.add(read, true)
			defer read.Unlock() // it may be lost
		}
	}
	time.Sleep(upTo(r, 4*time.Second))
	_ = h.Unlock()
	time.Sleep(upTo(r, time.Second))
}

// spans are claims of readers and writers, of several owners.
type spans struct {
	start time.Time
	mu    sync.Mutex
	list  []*span
}

type span struct {
	claim
	shared bool
	owner  dlock.Owner
}

func (x *spans) add(h *dlock.Hold, shared bool) {
	s := &span{claim{name: h.Name(), token: h.Token(), from: time.Now()}, shared, h.Owner()}
	x.mu.Lock()
	x.list = append(x.list, s)
	x.mu.Unlock()
	done := h.Done()
	go func() {
		<-done
		x.mu.Lock()
		defer x.mu.Unlock()
		s.until = time.Now()
	}()
}

// check compares all pairs that exclude each other.
func (x *spans) check(t *testing.T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	require.NotEmpty(t, x.list, "nobody ever held")
	for i, a := range x.list {
		for _, b := range x.list[i+1:] {
			if a.name != b.name || a.owner == b.owner || a.shared && b.shared {
				continue
			}
			if a.from.After(b.from) {
				a, b = b, a
			}
			if b.from.Before(a.until) {
				require.FailNow(t, "claims overlap", "%q: until %v, from %v", a.name, a.until.Sub(x.start), b.from.Sub(x.start))
			}
			if a.until.Before(b.from) && b.token <= a.token {
				require.FailNow(t, "token does not grow", "%q: %d at %v, %d at %v", a.name, a.token, a.from.Sub(x.start), b.token, b.from.Sub(x.start))
			}
		}
	}
}
