package redis_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
)

// TTLs at the ends of the range are what they are.
func TestFault86AnyTTL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	far := open(t, s.proxy.URL())
	c := locktest.NewClient(t, far, dlock.Options{})
	for i, ttl := range []time.Duration{far.MinTTL(), far.MinTTL() + 1, 15 * time.Millisecond, 1900 * time.Millisecond, time.Hour, dlock.MaxTTL - 1, dlock.MaxTTL} {
		req := locktest.Request("a", i)
		req.TTL, req.WaitTTL = ttl, ttl
		for what, do := range map[string]func() error{
			"acquired": func() error { _, err := far.Acquire(t.Context(), req); return err },
			"renewed":  func() error { return far.Renew(t.Context(), []store.Ref{locktest.RefTo(req)})[0] },
		} {
			// The shortest may be over before they can be looked at.
			err := do()
			if ttl >= time.Second && err != nil && what == "acquired" {
				t.Fatal(err)
			}
			if state := s.state("a"); len(state.Holders) == 1 {
				left := state.Holders[0].Remaining
				if left > ttl+time.Millisecond || ttl >= time.Second && left < ttl-locktest.Late {
					t.Errorf("%s for %v: the server has %v", what, ttl, left)
				}
			} else if ttl >= time.Second && what == "acquired" {
				t.Errorf("%s for %v: not there", what, ttl)
			}
		}
		far.Release(t.Context(), locktest.RefTo(req))
	}
	s.empty(locktest.Soon)
	h, err := c.Mutex("a", dlock.WithTTL(dlock.MaxTTL)).LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, h)
}

// Ten thousand holds are renewed in one call, some of them gone. Each gets its
// own result, and the server never has to work on many at a time.
func TestFault88ManyKeys(t *testing.T) {
	const holds = 10_000
	s := newSite(t)
	far := open(t, s.proxy.URL())
	refs := make([]store.Ref, holds)
	locktest.InParallel(t, holds, func(i int) error {
		req := locktest.Request(strconv.Itoa(i), i)
		req.TTL = time.Minute
		refs[i] = locktest.RefTo(req)
		if i%10 == 0 {
			return nil // never acquired
		}
		_, err := s.direct.Acquire(t.Context(), req)
		return err
	})
	var mu sync.Mutex
	most := 0
	s.proxy.Plan(func(_ int, args []string) redistest.Action {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, len(args))
		return redistest.Pass
	})
	for i, err := range far.Renew(t.Context(), refs) {
		if gone := i%10 == 0; gone != (err != nil) {
			t.Fatalf("hold %d: %v", i, err)
		} else if gone {
			locktest.MustBe(t, err, store.ErrLost)
		}
	}
	if n := s.proxy.Calls(); n > 100 || most > 700 {
		t.Errorf("%d calls with up to %d arguments, want at most 100 with 700", n, most)
	}
	for _, i := range []int{1, holds/2 - 1, holds - 1} {
		if r := s.state(strconv.Itoa(i)).Holders; len(r) != 1 || r[0].Remaining < 30*time.Second {
			t.Errorf("hold %d: %+v", i, r)
		}
	}
	locktest.InParallel(t, holds, func(i int) error {
		if i%10 == 0 {
			return nil
		}
		return s.direct.Release(t.Context(), refs[i])
	})
	s.empty(0)
}

// Three thousand share one lock. They are granted together, run out together,
// and cost a script no table of that size.
func TestFault88ManyHoldersOfOneLock(t *testing.T) {
	const readers = 3000
	s := newSite(t)
	writer := locktest.Request("a", 1)
	writer.TTL = time.Minute
	if _, err := s.direct.Acquire(t.Context(), writer); err != nil {
		t.Fatal(err)
	}
	reader := func(i int) store.Request {
		req := locktest.Request("a", 10+i)
		req.Mode, req.TTL, req.WaitTTL = store.Shared, 30*time.Second, 30*time.Second
		return req
	}
	locktest.InParallel(t, readers, func(i int) error {
		_, err := s.direct.Acquire(t.Context(), reader(i))
		return err
	})
	if n := len(s.state("a").Queue); n != readers {
		t.Fatalf("%d wait, want %d", n, readers)
	}
	locktest.Release(t, s.direct, writer)
	if n := len(s.state("a").Holders); n != readers {
		t.Fatalf("%d hold, want %d", n, readers)
	}
	var refs []store.Ref
	for i := range readers {
		ref := locktest.RefTo(reader(i))
		ref.TTL = 100 * time.Millisecond
		refs = append(refs, ref)
	}
	for i, err := range s.direct.Renew(t.Context(), refs) {
		if err != nil {
			// The first batches may have run out when the last are renewed.
			locktest.MustBe(t, err, store.ErrLost)
			t.Logf("reader %d was gone", i)
			break
		}
	}
	locktest.Poll(t, "all run out", locktest.Patience, func() bool {
		g, err := s.direct.Acquire(t.Context(), store.Request{
			Name: "a", Owner: "next", ID: strings.Repeat("f", 32), TTL: time.Second, WaitTTL: time.Second, Tokens: 1,
		})
		return err == nil && g.Held
	})
	if err := s.direct.Release(t.Context(), store.Ref{Name: "a", Owner: "next", ID: strings.Repeat("f", 32)}); err != nil {
		t.Fatal(err)
	}
	s.empty(locktest.Soon)
}

// Owners and ids are compared whole: none that begins like another is taken for
// it, and owners of one's own making are not accepted in the first place.
func TestFault92SimilarOwners(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, text := range []string{"worker-1", "worker-10", "", "*", strings.Repeat("0", 32)} {
		if _, err := dlock.ParseOwner(text); err == nil {
			t.Errorf("%q is taken for an owner", text)
		}
	}
	similar := []string{"worker-1", "worker-10", "worker-", "worker", "worker-1:", "worker-1=", "*", "worker?1", ".*", "WORKER-1", "%a", "w"}
	for i, owner := range similar {
		req := locktest.Request("a", i)
		req.Owner, req.Queue, req.TTL = owner, false, time.Minute
		g, err := s.direct.Acquire(t.Context(), req)
		if err != nil || !g.Held {
			t.Fatalf("%s gets %+v, %v", owner, g, err)
		}
		for k, other := range similar {
			again := locktest.Request("a", 1000+k)
			again.Owner, again.Queue = other, false
			g2, err := s.direct.Acquire(t.Context(), again)
			if other == owner {
				if err != nil || g2.Token != g.Token || g2.Holds != 2 {
					t.Fatalf("%s enters again: %+v, %v", owner, g2, err)
				}
				locktest.Release(t, s.direct, again)
				continue
			}
			if err == nil {
				t.Errorf("%s takes the lock of %s", other, owner)
			}
			// Nor can it release what is not its own.
			locktest.MustBe(t, s.direct.Release(t.Context(), locktest.RefTo(again)), store.ErrLost)
		}
		if n := len(s.state("a").Holders); n != 1 {
			t.Fatalf("%d holders, want one", n)
		}
		locktest.Release(t, s.direct, req)
	}
	s.empty(0)
}
