package dlock

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dlock-go/dlock/internal/core"
)

// Owner is the party that holds a lock and may take it again. It is comparable; the
// zero Owner is invalid.
//
// An explicit owner, from NewOwner or ParseOwner, may cross processes. A service that
// gets its text (see String) in a request's header can re-enter the caller's locks.
// The text is a capability: every program that knows it can re-enter. So the formats
// of package fmt, log/slog and JSON show only its first six characters.
//
// A call without an owner gets a private owner, and the contexts of Hold.Context and
// Do carry it. It re-enters only through the Client that made it. The store knows it
// by another random id, which no program gets to see.
type Owner struct{ core core.Owner }

// NewOwner returns a new explicit owner, of 128 random bits.
func NewOwner() Owner { return Owner{core.NewOwner()} }

// ParseOwner returns the explicit owner with the text s, as String renders it:
// 32 lower-case hexadecimal digits, not all zero. Anything else is an *Error
// with ErrInvalidOwner.
func ParseOwner(s string) (Owner, error) {
	var id core.OwnerID
	if strings.HasPrefix(s, privateMark) {
		return Owner{}, invalidOwner("this is a private owner, which re-enters only in its own process: " +
			"use WithOwner with NewOwner")
	}
	if len(s) != hex.EncodedLen(len(id)) {
		return Owner{}, invalidOwner("%d bytes, 32 are needed", len(s))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || hex.EncodeToString(id[:]) != s {
		return Owner{}, invalidOwner("not lower-case hexadecimal")
	}
	if id == (core.OwnerID{}) {
		return Owner{}, invalidOwner("all zero")
	}
	return Owner{core.ExplicitOwner(id)}, nil
}

func invalidOwner(format string, args ...any) error {
	return &Error{Op: "parse owner", Err: fmt.Errorf("%w: %s", ErrInvalidOwner, fmt.Sprintf(format, args...))}
}

const privateMark = "private:"

// String returns the text of an explicit owner for ParseOwner: the whole
// capability. Of a private owner it returns a short mark, which ParseOwner refuses,
// because the owner would not re-enter elsewhere.
func (o Owner) String() string {
	if o.core.Private() {
		return privateMark + o.short()
	}
	return o.core.String()
}

// short is what may be shown of an owner.
func (o Owner) short() string { return o.core.String()[:6] }

// Format shows the first six characters, whatever the verb.
func (o Owner) Format(f fmt.State, _ rune) { fmt.Fprint(f, o.GoString()) }

// GoString shows the first six characters.
func (o Owner) GoString() string { return "dlock.Owner(" + o.short() + ")" }

// LogValue shows the first six characters to log/slog.
func (o Owner) LogValue() slog.Value { return slog.StringValue(o.short()) }

// MarshalText shows the first six characters, for JSON. ParseOwner refuses them.
func (o Owner) MarshalText() ([]byte, error) { return []byte(o.short()), nil }

func (o Owner) valid() bool { return o.core.Valid() }

// scope is what a context carries: its owner, and the holds that it was made under.
type scope struct {
	context.Context
	owner Owner
	hold  *Hold  // nil from WithOwner
	outer *scope // of the context around it; nil if there is none
}

type scopeKey struct{}

// Value returns the scope itself for its key.
func (s *scope) Value(key any) any {
	if key == (scopeKey{}) {
		return s
	}
	return s.Context.Value(key)
}

func withScope(parent context.Context, o Owner, h *Hold) *scope {
	return &scope{Context: parent, owner: o, hold: h, outer: scopeOf(parent)}
}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// WithOwner returns a context that acts for o. Goroutines that share it are one
// owner and so do not exclude each other. Where they should, give each of them
// WithOwner(ctx, NewOwner()). With a zero o, calls that get the context fail. Holds of
// another owner that ctx was made under are not holds of o: TokenFor does not find them.
func WithOwner(ctx context.Context, o Owner) context.Context {
	s := withScope(ctx, o, nil)
	s.outer = s.outer.of(o)
	return s
}

// of returns the scopes of o alone among s and those around it.
func (s *scope) of(o Owner) *scope {
	switch {
	case s == nil:
		return nil
	case s.owner != o:
		return s.outer.of(o)
	}
	own := *s
	own.outer = s.outer.of(o)
	return &own
}

// OwnerFrom returns the owner that ctx acts for, and whether it carries one.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	if s := scopeOf(ctx); s != nil {
		return s.owner, true
	}
	return Owner{}, false
}

// TokenFor returns the fencing token of the hold on that name that ctx was made
// under, and whether there is one. Do, RDo and Hold.Context make such contexts. The
// nesting may be of any depth. Of several holds on the name it takes the greatest token,
// which the resource knows of: a reader's lock inside an upgrade has that of the reader's
// lock outside. It does not say whether a hold still lasts: ctx is cancelled when it does
// not.
func TokenFor(ctx context.Context, name string) (token uint64, ok bool) {
	for s := scopeOf(ctx); s != nil; s = s.outer {
		if s.hold != nil && s.hold.Name() == name {
			token, ok = max(token, s.hold.Token()), true
		}
	}
	return token, ok
}

// TokenFrom returns what TokenFor does for the innermost hold that ctx was made
// under, whatever its name. Under [WithOwner] with another owner there is none. Where
// locks of several names nest, that is the token of another lock than the resource
// expects: use [TokenFor], which asks by name.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	first := scopeOf(ctx)
	for s := first; s != nil && s.owner == first.owner; s = s.outer {
		if s.hold != nil {
			return TokenFor(s, s.hold.Name())
		}
	}
	return 0, false
}
