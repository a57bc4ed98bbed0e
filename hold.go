package dlock

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/internal/core"
)

// Hold is one handle on a lock: each successful call returns its own. Nested
// handles of one owner on one name share a grant of the store, which is given
// back with the last of them. A Hold is safe for concurrent use.
//
// Unlock every handle, also of a lost hold: until all of them are unlocked, the
// owner's further calls for that name return ErrLost.
type Hold struct {
	core  core.Handle
	index int // in a heldList, and guarded by it
}

// Unlock gives this handle back, and with the last handle of its grant the lock.
// Then it returns nil when the store has confirmed, or ErrUnavailable with the
// store's error after StoreTimeout, while the release goes on in the background until
// it is confirmed or the lease has run out. In any case the handle is over at once.
//
// A second call returns ErrNotHeld, a call for a lost hold ErrLost, the first one after
// Client.Close an error that is both ErrNotHeld and ErrClosed, and one for a store that
// was closed before ErrClosed, as the lock is left to its lease; each in an *Error. No
// call takes another handle's hold away.
func (h *Hold) Unlock() error {
	if err := h.core.Unlock(); err != nil {
		return &Error{Op: "unlock", Name: h.Name(), Err: err}
	}
	return nil
}

// Token returns the fencing token of the grant, the same for all of its nested
// handles. Writer tokens of a name strictly increase. Reader tokens are unique and
// greater than those of earlier writers, but not ordered among readers. Send a
// writer's token with each access to the resource, reads too, and let the resource
// refuse tokens lower than the highest it has seen. A holder of only a reader's lock
// sends none. Package fence says why.
func (h *Hold) Token() uint64 { return h.core.Token() }

// Done returns a channel that is closed when this handle is lost or unlocked,
// in the latter case before the store is told.
func (h *Hold) Done() <-chan struct{} { return h.core.Done() }

// Err returns nil while the lock is held, then an error that matches ErrLost and
// says why, or ErrNotHeld (which also matches ErrClosed if Client.Close released
// it). It reads the clock, so it is right also when the process was stopped for
// longer than the lease and Done has not had the time to close.
func (h *Hold) Err() error { return h.core.Err() }

// Deadline returns until when the hold is valid if no renewal succeeds from now on.
// Renewals move it. For a handle that is over it returns the zero Time.
func (h *Hold) Deadline() time.Time { return h.core.Deadline() }

// Context returns a context that carries the owner of this hold, for functions
// that take the same lock. It is cancelled when parent is, and when this handle
// ends, with Err as its cause (see [context.Cause]). When the handle is unlocked, the
// next holder may be there in the same moment: let no goroutine that goes by the
// context outlive the handle.
func (h *Hold) Context(parent context.Context) context.Context { return h.context(parent, false) }

func (h *Hold) context(parent context.Context, inDo bool) context.Context {
	return h.core.Context(withScope(parent, h.Owner(), h), inDo)
}

// Owner returns the owner that holds: the explicit owner of the call, or the private
// one that it got.
func (h *Hold) Owner() Owner { return Owner{h.core.Owner()} }

// Name returns the name of the lock.
func (h *Hold) Name() string { return h.core.Name() }

// Count returns how many handles on this name, this one included, its owner
// holds through this client: 1 for a lock that is not nested, 0 when all are
// unlocked or lost.
func (h *Hold) Count() int { return h.core.Count() }

// String describes the hold for people: its name, token and state.
func (h *Hold) String() string {
	state := "held"
	if err := h.Err(); err != nil {
		state = err.Error()
	}
	return fmt.Sprintf("hold of %q, token %d: %s", h.Name(), h.Token(), state)
}

// GoString is String, so that no format prints what is inside.
func (h *Hold) GoString() string { return h.String() }

// MarshalText is String, for JSON and logs.
func (h *Hold) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// LogValue is String, for log/slog.
func (h *Hold) LogValue() slog.Value { return slog.StringValue(h.String()) }
