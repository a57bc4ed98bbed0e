package zookeeper

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/store"
)

var (
	// errConflict: the node is not as the snapshot has it, and nothing was written.
	errConflict = errors.New("zookeeper: the node was changed meanwhile")

	// errBusy: an operation lost against other writers of the name too often. It has
	// changed nothing, but this is no refusal: it passes by itself.
	errBusy = errors.New("zookeeper: too many other changes of the lock at once")

	// errLate: the transaction was carried out, but later than it was decided for.
	errLate = errors.New("zookeeper: the answer took so long that a lease ended meanwhile")

	// errTooLarge: the server would close the connection of the call.
	errTooLarge = fmt.Errorf("%w: zookeeper: the lock has too many holds and waiters for one node", store.ErrRefused)

	// errForeignChild: the nodes below a record are not those that this package made.
	errForeignChild = fmt.Errorf("%w: a node below it is missing, or of another program", store.ErrForeignKey)

	errUnderWay = errors.New("zookeeper: the handle was closed during the call")
)

// quotaExceeded is how the client reports the code of a server that enforces quotas,
// which it has no error for.
const quotaExceeded = "unknown error: -125"

// outcome says whether an error of the client is a certain refusal. What it does
// not know has an unknown outcome.
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrInvalidACL), errors.Is(err, zk.ErrAuthFailed), err.Error() == quotaExceeded:
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return fmt.Errorf("zookeeper: %w", err)
}
