package etcd_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// awkward are names that are no trouble.
func awkward() []string {
	id := strings.Repeat("0", 32)
	names := []string{
		strings.Repeat("n", dlock.MaxNameLen), strings.Repeat("n", dlock.MaxNameLen-1), strings.Repeat("\x00", dlock.MaxNameLen), strings.Repeat("/", dlock.MaxNameLen),
		"/", "//", "a/", "/a", "a//", "a/a", "a/" + id, "a/" + id + "!", id, id + "!", "!", "a!", "dlock", "dlock/", "dlock/a", "..", ".", "a/../a",
		"%", "%%", "%2F", "%2f", "a%2F", "%252F", "%00", "%s", "\xff", "\xff\xff", "\x00", "\x00\x00", "a\x00", "a\x00b",
		"a", "aa", "aaa", "a ", " a", "A", "a\n", "\na", "a\r\n", "{}", "{a}", "}{", "\xc3\x28", "\u2028", "世界", "*", "?", "[a]", "\\", `"`, "'", "$(x)", "nil", "0", "-1",
	}
	for b := range 256 {
		names = append(names, "b"+string([]byte{byte(b)}), string([]byte{byte(b)})+"b")
	}
	const alphabet = "/%!2Ff\\\n\x00\xffab\r ."
	for range 200 {
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

// inParallel calls f for 0 to n-1, a few at once, and fails the test if one fails.
func inParallel(t *testing.T, n int, f func(i int) error) {
	t.Helper()
	errs := make(chan error, n)
	var next atomic.Int64
	for range 16 {
		go func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs <- f(i)
			}
		}()
	}
	var failed error
	for range n {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	if failed != nil {
		t.Fatal(failed)
	}
}

// Any bytes are a name, and no two names meet, also if the one begins like the
// other. What is no name never gets to the server.
func TestFault85AnyName(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	c, rival := s.near(dlock.Options{}), s.near(dlock.Options{})
	names := awkward()
	holds := make([]*dlock.Hold, len(names))
	inParallel(t, len(names), func(i int) (err error) {
		holds[i], err = c.Mutex(names[i]).TryLockContext(t.Context()) // and keeps it: so each is a lock of its own
		return err
	})
	inParallel(t, len(names), func(i int) error {
		if _, err := rival.Mutex(names[i]).TryLockContext(t.Context()); !errors.Is(err, dlock.ErrHeld) {
			return fmt.Errorf("another gets %q: %w", names[i], err)
		}
		state, err := s.direct.Inspect(t.Context(), names[i])
		if err == nil && (len(state.Holders) != 1 || state.Holders[0].Token != holds[i].Token()) {
			err = fmt.Errorf("%q is held by %+v", names[i], state.Holders)
		}
		return err
	})
	listed, err := s.direct.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range listed {
		found[name] = true
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("%q is not listed", name)
		}
	}
	if len(listed) != len(names) {
		t.Errorf("%d names are listed, of %d", len(listed), len(names))
	}
	inParallel(t, len(names), func(i int) error { return holds[i].Unlock() })
	s.empty(0)

	far := s.far(dlock.Options{})
	sent := s.countAll()
	for _, name := range []string{"", strings.Repeat("n", dlock.MaxNameLen+1), strings.Repeat("n", 1<<20)} {
		_, err := far.Mutex(name).LockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrInvalidName)
	}
	if n := sent.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// Renewal, too, tells awkward names apart.
func TestFault85RenewalOfAnyName(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	names := awkward()[:60]
	refs := make([]store.Ref, len(names))
	for i, name := range names {
		req := locktest.Request(name, i)
		req.TTL = time.Minute
		refs[i] = locktest.RefTo(req)
		if _, err := s.direct.Acquire(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(names); i += 2 {
		if err := s.direct.Release(t.Context(), refs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, err := range s.direct.Renew(t.Context(), refs) {
		switch {
		case i%2 == 0:
			locktest.MustBe(t, err, store.ErrLost)
		case err != nil:
			t.Errorf("%q: %v", names[i], err)
		}
	}
}

// countAll counts all requests on the wire from now on.
func (s *site) countAll() *atomic.Int32 {
	var sent atomic.Int32
	s.wire.plan(func(string, int) action {
		sent.Add(1)
		return pass
	})
	return &sent
}

// A TTL that the server would misunderstand never gets there.
func TestFault86RefusedTTL(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	c := locktest.NewClient(t, far, dlock.Options{})
	sent := s.countAll()
	for _, ttl := range []time.Duration{
		0, -1, -time.Second, 1, time.Millisecond, 500 * time.Millisecond, far.MinTTL() - 1,
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
	if n := sent.Load(); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TTLs at the ends of the range, and those that are no whole seconds, are what
// they are, to the next whole second and what the server is late.
func TestFault86AnyTTL(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	ttls := []time.Duration{
		time.Second, time.Second + 1, 1500 * time.Millisecond, 1999 * time.Millisecond, time.Hour, dlock.MaxTTL - 1, dlock.MaxTTL,
	}
	var handles []*etcd.Store
	for range ttls {
		handles = append(handles, open(t, s.cluster.URL()))
	}
	inParallel(t, len(ttls), func(i int) error {
		ttl, far := ttls[i], handles[i]
		req := locktest.Request(ttl.String(), i)
		req.TTL, req.WaitTTL = ttl, ttl
		began := time.Now()
		g, err := far.Acquire(t.Context(), req)
		if err != nil || !g.Held || g.TTL > ttl || g.TTL < ttl-time.Since(began) {
			return fmt.Errorf("for %v: got %+v, %w", ttl, g, err)
		}
		if err := far.Renew(t.Context(), []store.Ref{locktest.RefTo(req)})[0]; err != nil {
			return fmt.Errorf("for %v: %w", ttl, err)
		}
		renewed := time.Now()
		whole := (ttl + time.Second - 1).Truncate(time.Second)
		for here := true; here && ttl < time.Hour; time.Sleep(20 * time.Millisecond) {
			state, err := s.direct.Inspect(t.Context(), req.Name)
			if err != nil {
				return err
			}
			here = len(state.Holders) == 1
			switch {
			case !here && time.Since(began) < ttl:
				return fmt.Errorf("for %v: gone after %v", ttl, time.Since(began))
			case here && state.Holders[0].Remaining > whole:
				return fmt.Errorf("for %v: the server has %v", ttl, state.Holders[0].Remaining)
			case time.Since(renewed) > whole+lag+locktest.Late:
				return fmt.Errorf("for %v: there after %v", ttl, time.Since(renewed))
			}
		}
		if ttl < time.Hour {
			return nil
		}
		return far.Release(t.Context(), locktest.RefTo(req))
	})
	c := s.near(dlock.Options{})
	h, err := c.Mutex("a", dlock.WithTTL(dlock.MaxTTL)).LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, h)
	s.empty(0)
}
