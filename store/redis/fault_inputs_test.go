package redis_test

import (
	"math"
	"math/rand/v2"
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

// awkward are names that are no trouble.
func awkward() []string {
	names := []string{
		strings.Repeat("n", dlock.MaxNameLen), strings.Repeat("\x00", dlock.MaxNameLen), strings.Repeat("}", dlock.MaxNameLen),
		"{}", "{", "}", "}{", "{a}", "{1}", "a}b{", "{}a", "{0}:token", "dlock:{0}:token", "{3}:lock:a", "}:lock:a", "lock:a", ":", "::",
		"a", "a ", " a", "a\n", "\na", "a\r\n", "a\x00", "a\x00b", "\xff\xfe", "\xc3\x28", "\u2028", "世界", "*", "?", "[a]", "\\*", `"`, "'", "$(x)", "%s", "%00", "..", "/",
		"i:" + strings.Repeat("0", 32), "o:owner", "holds", "serial", "-1", "0", "nil", "false",
	}
	for b := range 256 {
		names = append(names, "b"+string([]byte{byte(b)}), string([]byte{byte(b)})+"b")
	}
	const alphabet = "{}:*\\\n\x00\xffab\r "
	for range 300 {
		name := make([]byte, 1+rand.N(40))
		for i := range name {
			name[i] = alphabet[rand.N(len(alphabet))]
		}
		names = append(names, string(name))
	}
	seen := map[string]bool{}
	var distinct []string
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			distinct = append(distinct, name)
		}
	}
	return distinct
}

// Any bytes are a name, and no two names meet.
func TestFault85AnyName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, rival := s.near(dlock.Options{}), s.near(dlock.Options{})
	names := awkward()
	holds := inParallel(t, len(names), func(i int) (*dlock.Hold, error) {
		return c.Mutex(names[i]).TryLockContext(t.Context()) // all at once: so each is a lock of its own
	})
	inParallel(t, len(names), func(i int) (*dlock.Hold, error) {
		if _, err := rival.Mutex(names[i]).TryLockContext(t.Context()); err == nil {
			t.Errorf("%q is locked twice", names[i])
		}
		return nil, nil
	})
	listed, err := s.direct.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range listed {
		found[name] = true
	}
	for i, name := range names {
		if !found[name] {
			t.Errorf("%q is not listed", name)
		}
		if state := s.state(name); len(state.Holders) != 1 || state.Holders[0].Token != holds[i].Token() {
			t.Errorf("%q is held by %+v", name, state.Holders)
		}
	}
	if len(listed) != len(names) {
		t.Errorf("%d names are listed, of %d", len(listed), len(names))
	}
	if errs := s.renewAll(names[:40]); len(errs) > 0 {
		t.Error(errs)
	}
	inParallel(t, len(names), func(i int) (*dlock.Hold, error) { return nil, holds[i].Unlock() })
	s.empty(0)

	far := s.far(dlock.Options{})
	s.on("", redistest.Pass)
	for _, name := range []string{"", strings.Repeat("n", dlock.MaxNameLen+1), strings.Repeat("n", 1<<20)} {
		_, err := far.Mutex(name).LockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrInvalidName)
	}
	if n := s.proxy.Calls(); n > 0 {
		t.Errorf("%d calls were made", n)
	}
}

// renewAll renews shared holds of its own on such names, in one call.
func (s *site) renewAll(names []string) (errs []error) {
	var refs []store.Ref
	for i, name := range names {
		req := locktest.Request(name+"!", i)
		if _, err := s.direct.Acquire(s.t.Context(), req); err != nil {
			return []error{err}
		}
		refs = append(refs, locktest.RefTo(req))
	}
	for i, err := range s.direct.Renew(s.t.Context(), refs) {
		if err == nil {
			err = s.direct.Release(s.t.Context(), refs[i])
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// A TTL that the server would misunderstand never gets there; those at the ends
// of the range are what they are.
func TestFault86AnyTTL(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	far := open(t, s.proxy.URL())
	c := locktest.NewClient(t, far, dlock.Options{})
	s.on("", redistest.Pass)
	for _, ttl := range []time.Duration{
		0, -1, -time.Second, 1, time.Microsecond, time.Millisecond, far.MinTTL() - 1,
		dlock.MaxTTL + 1, math.MaxInt64, math.MinInt64, 1e15 * time.Nanosecond * 1000,
	} {
		_, err := c.Mutex("a", dlock.WithTTL(ttl)).LockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrInvalidTTL)
		if ttl != 0 { // the default
			_, err = dlock.New(far, &dlock.Options{TTL: ttl})
			locktest.MustBe(t, err, dlock.ErrInvalidTTL)
			_, err = dlock.New(far, &dlock.Options{WaitTTL: ttl})
			locktest.MustBe(t, err, dlock.ErrInvalidTTL)
		}
	}
	if n := s.proxy.Calls(); n > 0 {
		t.Errorf("%d calls were made", n)
	}
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
	inParallel(t, holds, func(i int) (*dlock.Hold, error) {
		req := locktest.Request(strconv.Itoa(i), i)
		req.TTL = time.Minute
		refs[i] = locktest.RefTo(req)
		if i%10 == 0 {
			return nil, nil // never acquired
		}
		_, err := s.direct.Acquire(t.Context(), req)
		return nil, err
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
	inParallel(t, holds, func(i int) (*dlock.Hold, error) {
		if i%10 == 0 {
			return nil, nil
		}
		return nil, s.direct.Release(t.Context(), refs[i])
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
	inParallel(t, readers, func(i int) (*dlock.Hold, error) {
		_, err := s.direct.Acquire(t.Context(), reader(i))
		return nil, err
	})
	if n := len(s.state("a").Queue); n != readers {
		t.Fatalf("%d wait, want %d", n, readers)
	}
	if err := s.direct.Release(t.Context(), locktest.RefTo(writer)); err != nil {
		t.Fatal(err)
	}
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
				if err := s.direct.Release(t.Context(), locktest.RefTo(again)); err != nil {
					t.Fatal(err)
				}
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
		if err := s.direct.Release(t.Context(), locktest.RefTo(req)); err != nil {
			t.Fatal(err)
		}
	}
	s.empty(0)
}
