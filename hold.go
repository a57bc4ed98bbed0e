package dlock

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/internal/core"
)

// Hold is one handle on a lock; each successful call returns a new one. Nested
// handles of one owner on one name share a grant of the store. The last Unlock among
// them gives it back. A Hold is safe for concurrent use.
//
// Unlock every handle, also of a lost hold: until all of them are unlocked, the
// owner's further calls for that name return ErrLost.
type Hold struct {
	core  core.Handle
	index int // in a heldList, and guarded by it
}

// Unlock ends this handle, at once. With the last handle of its grant it also gives
// the lock back. Then it returns nil when the store has confirmed that. After
// StoreTimeout it returns ErrUnavailable with the store's error. The release then goes
// on in the background until it is confirmed or the lease has run out.
//
// The errors are in an *Error:
//
//   - ErrNotHeld for a second call;
//   - ErrLost for a lost hold;
//   - an error that matches ErrNotHeld and ErrClosed for the first call after
//     Client.Close;
//   - ErrClosed if the store was closed before: the lock is left to its lease.
//
// No call ends another handle.
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

// Done returns a channel that is closed when this handle is lost or unlocked. Unlock
// closes it before it calls the store.
func (h *Hold) Done() <-chan struct{} { return h.core.Done() }

// Err returns nil while the lock is held. After a loss it returns an error that
// matches ErrLost and says why, and after Unlock ErrNotHeld. If Client.Close released
// the hold, the error matches ErrNotHeld and ErrClosed. Err reads the clock. So it is
// right even if the process was stopped for longer than the lease and no timer has
// closed Done yet. On Linux that clock stands still while the whole machine is suspended:
// then Err tells at the next renewal, or at the deadline by that clock.
func (h *Hold) Err() error { return h.core.Err() }

// Deadline returns until when the hold is valid if no renewal succeeds from now on.
// Renewals move it. For a handle that is over it returns the zero Time.
func (h *Hold) Deadline() time.Time { return h.core.Deadline() }

// Context returns a context that carries the owner of this hold, for functions
// that take the same lock. It is cancelled when parent is, and when this handle
// ends, with Err as its cause (see [context.Cause]). When the handle is unlocked, the
// next holder may have the lock at the same moment. So let no goroutine that works
// under the context outlive the handle. The handle keeps each context until that ends:
// give a hold that lasts for long parents that end.
func (h *Hold) Context(parent context.Context) context.Context { return h.context(parent, false) }

func (h *Hold) context(parent context.Context, inDo bool) context.Context {
	return h.core.Context(withScope(parent, h.Owner(), h), inDo)
}

// Owner returns the owner of the hold: the explicit owner of the call, or the private
// owner that the call was given.
func (h *Hold) Owner() Owner { return Owner{h.core.Owner()} }

// Name returns the name of the lock.
func (h *Hold) Name() string { return h.core.Name() }

// Count returns how many handles on this name its owner holds through this client,
// this one included. It is 1 for a lock that is not nested, and 0 when all are
// unlocked or lost. Once this handle is unlocked it means nothing.
func (h *Hold) Count() int { return h.core.Count() }

// String describes the hold for people: its name, token and state.
func (h *Hold) String() string {
	state := "held"
	if err := h.Err(); err != nil {
		state = err.Error()
	}
	return fmt.Sprintf("hold of %q, token %d: %s", h.Name(), h.Token(), state)
}

// GoString is String, so that no format prints the fields.
func (h *Hold) GoString() string { return h.String() }

// MarshalText is String, for JSON and logs.
func (h *Hold) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// LogValue is String, for log/slog.
func (h *Hold) LogValue() slog.Value { return slog.StringValue(h.String()) }
