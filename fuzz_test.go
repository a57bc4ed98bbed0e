package dlock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/store/memory"
)

// ParseOwner accepts exactly the texts that String returns.
func FuzzParseOwner(f *testing.F) {
	for _, s := range []string{
		"", "0", "0123456789abcdef0123456789abcdef", "0123456789ABCDEF0123456789abcdef", "private:012345",
		"00000000000000000000000000000000", "ffffffffffffffffffffffffffffffff", "0123456789abcdef0123456789abcde\x00",
		dlock.NewOwner().String(),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		canonical := len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" && strings.Trim(s, "0") != ""
		o, err := dlock.ParseOwner(s)
		if (err == nil) != canonical {
			t.Fatalf("ParseOwner(%q): %v, canonical: %v", s, err, canonical)
		}
		if err != nil {
			var e *dlock.Error
			if !errors.Is(err, dlock.ErrInvalidOwner) || !errors.As(err, &e) || o != (dlock.Owner{}) {
				t.Fatalf("ParseOwner(%q): %v, %v", s, o, err)
			}
			return
		}
		if o.String() != s {
			t.Fatalf("ParseOwner(%q) renders as %q", s, o.String())
		}
	})
}

// Any 1 to 1,024 bytes are a lock's name, and nothing else is.
func FuzzName(f *testing.F) {
	for _, s := range []string{
		"", "m", "\x00", "\xff", "{a}b", "a\nb", strings.Repeat("x", 1023), strings.Repeat("x", 1024), strings.Repeat("x", 1025),
	} {
		f.Add(s)
	}
	s := memory.New()
	c, err := dlock.New(s, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := c.Close(); err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, name string) {
		h, err := c.Mutex(name).LockContext(t.Context())
		if len(name) < 1 || len(name) > dlock.MaxNameLen {
			if !errors.Is(err, dlock.ErrInvalidName) {
				t.Fatalf("%d bytes: %v", len(name), err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		state, err := s.Inspect(t.Context(), name)
		if err != nil || len(state.Holders) != 1 || h.Name() != name {
			t.Fatalf("%q: %+v, %v, %q", name, state, err, h.Name())
		}
		if err := h.Unlock(); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
	})
}
