package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/coretest"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/store"
	"github.com/stretchr/testify/require"
)

const (
	faulty = 2 * time.Minute  // faults happen in this time
	calm   = 30 * time.Second // no faults happen in this time, and everything has to come to rest
)

// Ten goroutines of two clients lock, nest, wait, give up and unlock, while calls and events meet
// random faults. They read and write, with renewal and without. No claims overlap, tokens grow,
// and nothing is left.
//
// A failure prints the seed. The scheduler is not seeded, so a failure may need several runs to
// come back.
func TestFaultsAtRandom(t *testing.T) {
	first := rand.Uint64()
	for seed := first; seed < first+8; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			coretest.InWorld(t, &dlock.Options{TTL: 3 * time.Second}, func(t *testing.T, w *coretest.World) { randomUsers(w, seed) })
		})
	}
}

// randomUsers runs the goroutines of one seed.
func randomUsers(w *coretest.World, seed uint64) {
	spans := &spans{start: w.Start}
	for i, s := range []*faultstore.Store{w.S1, w.S2} {
		randomFaults(w, s, rand.New(rand.NewPCG(seed, uint64(i))))
	}
	var users sync.WaitGroup
	for i := range 10 {
		c, r := []*dlock.Client{w.C1, w.C2}[i%2], rand.New(rand.NewPCG(seed, uint64(i)+10))
		users.Go(func() {
			for time.Since(w.Start) < faulty {
				randomUse(w, c, r, spans)
				time.Sleep(upTo(r, 100*time.Millisecond))
			}
		})
	}
	users.Wait()
	time.Sleep(calm)
	synctest.Wait()
	spans.check(w.T)
}

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// randomFaults makes a share of the calls and events of s meet one or two faults.
func randomFaults(w *coretest.World, s *faultstore.Store, r *rand.Rand) {
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
		for time.Since(w.Start) < faulty && r.Float64() < share {
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
		if len(faults) != 1 { // no fault or two: the event arrives in time; with two it may arrive again
			deliver(e)
		}
		if len(faults) > 0 && late%3 > 0 {
			time.AfterFunc(late, func() { deliver(e) })
		}
	})
}

// randomUse takes one lock and gives it back.
func randomUse(w *coretest.World, c *dlock.Client, r *rand.Rand, spans *spans) {
	ctx, cancel := context.WithTimeout(w.T.Context(), upTo(r, 6*time.Second))
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
			defer read.Unlock() // the hold may be lost
		}
	}
	time.Sleep(upTo(r, 4*time.Second))
	_ = h.Unlock()
	time.Sleep(upTo(r, time.Second))
}

// spans are the claims of readers and writers of several owners.
type spans struct {
	start time.Time
	mu    sync.Mutex
	list  []*span
}

type span struct {
	coretest.Claim
	shared bool
	owner  dlock.Owner
}

func (x *spans) add(h *dlock.Hold, shared bool) {
	s := &span{coretest.Claim{Name: h.Name(), Token: h.Token(), From: time.Now()}, shared, h.Owner()}
	x.mu.Lock()
	x.list = append(x.list, s)
	x.mu.Unlock()
	done := h.Done()
	go func() {
		<-done
		x.mu.Lock()
		defer x.mu.Unlock()
		s.Until = time.Now()
	}()
}

// check compares all pairs of claims that exclude each other.
func (x *spans) check(t *testing.T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	require.NotEmpty(t, x.list, "no lock was ever held")
	for i, a := range x.list {
		for _, b := range x.list[i+1:] {
			if a.Name != b.Name || a.owner == b.owner || a.shared && b.shared {
				continue
			}
			if a.From.After(b.From) {
				a, b = b, a
			}
			if b.From.Before(a.Until) {
				require.FailNow(t, "claims overlap", "%q: until %v, from %v", a.Name, a.Until.Sub(x.start), b.From.Sub(x.start))
			}
			if a.Until.Before(b.From) && b.Token <= a.Token {
				require.FailNow(t, "token does not grow", "%q: %d at %v, %d at %v", a.Name, a.Token, a.From.Sub(x.start), b.Token, b.From.Sub(x.start))
			}
		}
	}
}
