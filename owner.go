package dlock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
)

// Owner says who holds a lock, and so who may take it again. It is comparable;
// the zero Owner is invalid.
//
// An explicit owner, from NewOwner or ParseOwner, may cross processes: its text
// in a request's header lets the service behind re-enter the caller's locks.
// That text is a capability; who knows it can re-enter.
//
// A private owner is what a lock without one acts for, and what Hold.Context
// and Do carry on. It re-enters only through the Client it came from, and the
// store knows it by another random id, which is never handed out.
type Owner struct {
	id      [16]byte
	private bool
}

// NewOwner returns a new explicit owner, of 128 random bits.
func NewOwner() Owner {
	var o Owner
	rand.Read(o.id[:]) // never fails: crypto/rand ends the program instead
	return o
}

func newPrivateOwner() Owner {
	o := NewOwner()
	o.private = true
	return o
}

// ParseOwner returns the explicit owner with the text s, as String renders it:
// 32 lower-case hexadecimal digits, not all zero. Anything else is an *Error
// with ErrInvalidOwner.
func ParseOwner(s string) (Owner, error) {
	var o Owner
	if len(s) != hex.EncodedLen(len(o.id)) {
		return Owner{}, invalidOwner("%d bytes, 32 are needed", len(s))
	}
	if _, err := hex.Decode(o.id[:], []byte(s)); err != nil || o.String() != s {
		return Owner{}, invalidOwner("not lower-case hexadecimal")
	}
	if !o.valid() {
		return Owner{}, invalidOwner("all zero")
	}
	return o, nil
}

func invalidOwner(format string, args ...any) error {
	return &Error{Op: "parse owner", Err: fmt.Errorf("%w: %s", ErrInvalidOwner, fmt.Sprintf(format, args...))}
}

// String returns the text of an explicit owner for ParseOwner. Of a private
// owner it returns a short mark, which ParseOwner refuses, for it would not
// re-enter anywhere else.
func (o Owner) String() string {
	if o.private {
		return "private:" + hex.EncodeToString(o.id[:3])
	}
	return hex.EncodeToString(o.id[:])
}

// LogValue shows the first six characters to log/slog: the whole is a capability.
func (o Owner) LogValue() slog.Value { return slog.StringValue(hex.EncodeToString(o.id[:3])) }

// GoString shows the first six characters to %#v.
func (o Owner) GoString() string { return "dlock.Owner(" + hex.EncodeToString(o.id[:3]) + ")" }

func (o Owner) valid() bool { return o.id != [16]byte{} }

// scope is what a context carries: for whom it acts, and under which hold it was made.
type scope struct {
	owner Owner
	hold  *Hold // nil from WithOwner
}

type scopeKey struct{}

// WithOwner returns a context that acts for o. Goroutines that share it are one
// owner and so do not exclude each other; give each WithOwner(ctx, NewOwner())
// where they should. A zero o makes the calls fail that get the context.
func WithOwner(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, scopeKey{}, &scope{owner: o})
}

// OwnerFrom returns the owner that ctx acts for, and whether it carries one.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok {
		return Owner{}, false
	}
	return s.owner, true
}

// TokenFrom returns the fencing token of the innermost hold that ctx was made
// under, by Do, RDo or Hold.Context, and whether there is one. It says nothing
// of whether that hold still lasts; ctx itself is cancelled when it does not.
func TokenFrom(ctx context.Context) (token uint64, ok bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s.hold == nil {
		return 0, false
	}
	return s.hold.Token(), true
}

// newID returns 128 random bits for an acquisition, in hexadecimal.
func newID() string {
	var id [16]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}
