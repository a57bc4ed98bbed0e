// Package peers runs other libraries of distributed locks, and dlock, through
// the same faults on the same servers, and measures what becomes of a lock.
//
// All have the same lease, the defaults of their documentation where those make
// sense on one server, and one wire that fails in the same way for all of them.
// What a library leaves to its caller, such as renewal, is done once as its
// documentation shows it and once as a careful caller would.
//
// TestPeers makes a few runs and asserts what dlock promises; what the others do
// is only reported. For the table of docs/reliability.md, from this directory:
//
//	go test -run=TestPeers -timeout=1h -peers.only= -peers.runs=20 -peers.write=reliability.md
//
// TestQuorum has dlock and redsync lock at a majority of three servers, and measures
// both: rates, times with a node that hangs or is dead, what a lost reply leaves,
// tokens. In make test it does so for a moment; make bench-quorum writes the tables
// of docs/quorum.md.
package peers

import (
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

var (
	runs     = flag.Int("peers.runs", 2, "runs of each fault with each library")
	atOnce   = flag.Int("peers.atonce", 10, "runs at once of one fault with one library")
	only     = flag.String("peers.only", "dlock", "only libraries with this `text` in their names; empty: all")
	oneFault = flag.String("peers.fault", "", "only this `fault`: overlap, orphan, wakeup or tokens")
	write    = flag.String("peers.write", "", "write the table to this `file`, in docs unless it names a directory")
)

// lease is what every library is told to use.
const lease = 3 * time.Second

func TestMain(m *testing.M) {
	open := func(string) (store.Store, error) { return nil, errors.New("no test here has children") }
	locktest.Main(m, open, "10", "jackc")
}
