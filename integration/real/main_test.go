// Package real runs random histories of locks on real servers, with real
// processes, through real faults, and checks what dlock promises.
//
// A history takes about ten seconds. Three workers, which are this test program
// started again, take and nest and lose locks of a few names, with leases of one,
// two or six seconds; the driver, which is the test, has a fault happen to them, to
// the wires or to the servers; and every call of the store and of the library is
// recorded, with times of the one monotonic clock of the machine. Then:
//
//   - The grants of the store: tokens grow, none is given twice, and nobody is
//     granted what another has for certain.
//   - The state of the store, looked at from outside: no two holders exclude each
//     other, and what was released does not come back.
//   - The claims of the workers never overlap, except where nobody could promise
//     that: a process that did not run, a store that lost what it had.
//   - The register that the locks protect, which checks tokens, has lost no
//     update and took no token after a greater one.
//   - Nothing is left at the store when all have gone.
//   - Porcupine finds an order of all that the store has answered that the model
//     of package store allows. Where a fault may take holds away, each may end at
//     any time of it; from when on another copy of the data may be what the store
//     answers from, nothing is judged so. Nor is a quorum, which serves in no order.
//
// A history in which the fault made no difference proves nothing; it is counted
// as void, and too many of them fail the test.
//
// More of it: go test -run=TestHistories -real.histories=200 -timeout=2h.
// A history that fails is kept as a file, and -real.judge judges kept ones again.
// Its seed repeats its plan, but not its timing, so look at the records first.
package real

import (
	"flag"
	"strconv"
	"testing"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/locktest"
)

var (
	histories  = flag.Int("real.histories", 2, "histories for each deployment; with less than 10, none on ZooKeeper")
	within     = flag.Duration("real.for", 0, "begin no history after so long (0: all of them)")
	deployment = flag.String("real.deployment", "", "run histories on this `deployment` alone")
	fault      = flag.String("real.fault", "", "run histories with this `kind` of fault alone")
	without    = flag.String("real.without", "", "run no history with this `kind` of fault")
	seed       = flag.Uint64("real.seed", 0, "draw the histories from this seed; 0: any")
	keepAll    = flag.Bool("real.keep", false, "keep all histories, not only those that fail")
	keepIn     = flag.String("real.out", "", "keep histories in this `directory` (default: that for temporary files)")
	judgeAgain = flag.String("real.judge", "", "judge the history that is kept in this `directory` again, or those below it, and run none")
	parallel   = flag.Int("real.parallel", 4, "histories at once")
)

func TestMain(m *testing.M) {
	beWorker()
	beRival()
	flag.Parse()
	locktest.Main(m, stores.Open, strconv.Itoa(*parallel), "redis/rueidis", "go.etcd.io", "jackc")
}
