package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/store"
)

// ErrNoQuorum: fewer nodes than a majority gave a usable answer, so it is unknown what became of the call. It is not
// [store.ErrHeld], for which a majority has answered, and too few of these nodes have granted. The error is a
// [*NoQuorumError], which has what each node said.
var ErrNoQuorum = errors.New("quorum: no majority of the nodes answered")

var (
	// errRestarted is why the vote of a node does not count.
	errRestarted = errors.New("the node has kept its data for less than a lease, as far as is known, and may have lost holds")
	// errSilent: it did not answer in time, and was not waited for.
	errSilent = errors.New("the node has not answered")
	// errUnheard is why its renewal of a hold does not count.
	errUnheard = errors.New("the node has the hold, and its grant was not heard")
	// errLate is why a majority does not count.
	errLate = errors.New("the lease ran out while the nodes agreed")
	// errToken: it has gone further, and others have not.
	errToken = errors.New("the node has issued greater tokens")
	// errBroken: it had granted the hold and then had no hold to give the token to. The id is not buried, so
	// ErrLost would be wrong.
	errBroken = errors.New("the hold was broken before the nodes agreed")
)

// NoQuorumError is the error of a call for which there was no majority. It matches [ErrNoQuorum], and [errors.Is] and
// [errors.As] also find in it what the nodes said, with two exceptions, to look at which takes Nodes: certain
// refusals, for that of one node is none of the store, and the ends of contexts, for a node's timeout is not the end
// of the caller's.
type NoQuorumError struct {
	Need  int     // how many nodes are a majority
	Nodes []error // of each node, in the order of New; nil: it did its part
}

// Error names each node that failed, by its number from 0.
func (e *NoQuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v (%d of %d are needed)", ErrNoQuorum, e.Need, len(e.Nodes))
	for i, err := range e.Nodes {
		if err != nil {
			fmt.Fprintf(&b, "; node %d: %v", i, err)
		}
	}
	return b.String()
}

// Unwrap returns ErrNoQuorum and the errors of nodes that say something of the call.
func (e *NoQuorumError) Unwrap() []error {
	errs := []error{ErrNoQuorum}
	for _, err := range e.Nodes {
		ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
		if err != nil && !ended && !certain(err) {
			errs = append(errs, err)
		}
	}
	return errs
}

// refusals are what a store may say for certain, but for the two that depend on the state of the lock and so on the
// node.
var refusals = []error{store.ErrLost, store.ErrForeignKey, store.ErrRefused, store.ErrClosed, store.ErrUnsupported}

func certain(err error) bool {
	is := func(refusal error) bool { return errors.Is(err, refusal) }
	return slices.ContainsFunc(refusals, is) || is(store.ErrHeld) || is(store.ErrUpgrade)
}

// verdict is the error of a call that fewer nodes than a majority have done: a refusal if so many nodes made it that
// there can be no majority without them, else NoQuorumError.
func (s *Store) verdict(errs []error) error {
	for _, refusal := range refusals {
		refused := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return !errors.Is(err, refusal) })
		if len(refused) > len(s.nodes)-s.need {
			return refused[0]
		}
	}
	return &NoQuorumError{Need: s.need, Nodes: errs}
}

// silence is what is known of the nodes before they answer.
func (s *Store) silence() []error { return slices.Repeat([]error{errSilent}, len(s.nodes)) }
