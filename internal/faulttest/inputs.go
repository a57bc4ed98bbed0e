package faulttest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// awkward returns distinct names that are no trouble, those likeliest to be some first: with parts
// of the keys of stores, and of languages in which they ask.
func awkward() []string {
	id := strings.Repeat("0", 32)
	names := []string{
		strings.Repeat("n", dlock.MaxNameLen), strings.Repeat("n", dlock.MaxNameLen-1), strings.Repeat("\x00", dlock.MaxNameLen),
		strings.Repeat("/", dlock.MaxNameLen), strings.Repeat("}", dlock.MaxNameLen),
		"/", "//", "a/", "/a", "a//", "a/a", "a/" + id, "a/" + id + "!", id, id + "!", "!", "a!", "dlock", "dlock/", "dlock/a", "..", ".", "a/../a",
		"{}", "{", "}", "}{", "{a}", "{1}", "a}b{", "{}a", "{0}:token", "dlock:{0}:token", "{3}:lock:a", "}:lock:a", "lock:a", ":", "::",
		"%", "%%", "%2F", "%2f", "a%2F", "%252F", "%00", "%s", "\xff", "\xff\xff", "\xff\xfe", "\x00", "\x00\x00", "a\x00", "a\x00b",
		"a", "aa", "aaa", "a ", " a", "A", "a\n", "\na", "a\r\n", "\xc3\x28", "\u2028", "世界", "*", "?", "[a]", "\\", "\\*", `"`, "'", "$(x)",
		"i:" + id, "o:owner", "holds", "serial", "nil", "false", "0", "-1",
	}
	for b := range 256 {
		names = append(names, "b"+string([]byte{byte(b)}), string([]byte{byte(b)})+"b")
	}
	const alphabet = "/%!2Ff{}:*\\\n\x00\xffab\r ."
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

// anyName: any bytes are a name, and no two names meet, also if the one begins like the other.
// What is no name never gets to the server.
func (s *Site) anyName() {
	t := s.T
	c, rival := s.client(dlock.Options{}), s.client(dlock.Options{})
	names := awkward()
	holds := make([]*dlock.Hold, len(names))
	locktest.InParallel(t, len(names), func(i int) (err error) {
		holds[i], err = c.Mutex(names[i]).TryLockContext(t.Context()) // and keeps it: so each is a lock of its own
		return err
	})
	locktest.InParallel(t, len(names), func(i int) error {
		if _, err := rival.Mutex(names[i]).TryLockContext(t.Context()); !errors.Is(err, dlock.ErrHeld) {
			return fmt.Errorf("another gets %q: %w", names[i], err)
		}
		state, err := s.Direct.Inspect(t.Context(), names[i])
		if err == nil && (len(state.Holders) != 1 || state.Holders[0].Token != holds[i].Token()) {
			err = fmt.Errorf("%q is held by %+v", names[i], state.Holders)
		}
		return err
	})
	listed, err := s.Direct.List(t.Context())
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
	locktest.InParallel(t, len(names), func(i int) error { return holds[i].Unlock() })
	s.Empty(0)

	far, sent := s.counts()
	counted := locktest.NewClient(t, far, dlock.Options{})
	before := sent()
	for _, name := range []string{"", strings.Repeat("n", dlock.MaxNameLen+1), strings.Repeat("n", 1<<20)} {
		_, err := counted.Mutex(name).LockContext(t.Context())
		locktest.MustBe(t, err, dlock.ErrInvalidName)
	}
	if n := sent() - before; n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// renewalOfAnyName: renewal, too, tells awkward names apart.
func (s *Site) renewalOfAnyName() {
	t := s.T
	names := awkward()[:90]
	refs := make([]store.Ref, len(names))
	for i, name := range names {
		req := locktest.Request(name, i)
		req.TTL = time.Minute
		refs[i] = locktest.RefTo(req)
		locktest.Hold(t, s.Direct, req)
	}
	for i := 0; i < len(names); i += 2 {
		if err := s.Direct.Release(t.Context(), refs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i, err := range s.Direct.Renew(t.Context(), refs) {
		if i%2 == 0 {
			locktest.MustBe(t, err, store.ErrLost)
			continue
		}
		if err == nil {
			err = s.Direct.Release(t.Context(), refs[i])
		}
		if err != nil {
			t.Errorf("%q: %v", names[i], err)
		}
	}
	s.Empty(0)
}

// refusedTTL: a TTL that the server would misunderstand never gets there.
func (s *Site) refusedTTL() {
	t := s.T
	far, sent := s.counts()
	c := locktest.NewClient(t, far, dlock.Options{})
	before := sent()
	for _, ttl := range []time.Duration{
		0, -1, -time.Second, 1, time.Microsecond, time.Millisecond, far.MinTTL() / 2, far.MinTTL() - 1,
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
	if n := sent() - before; n > 0 {
		t.Errorf("%d requests were sent", n)
	}
}
