// Package cancels ends calls of Lock before they have the lock, by the thousand,
// on a server that answers and on one that does not: because it stands still, is
// gone, or all that is sent to it is lost. Each call returns soon after it was
// told to, and nothing is left of any of them.
//
// DLOCK_PROVE=1 makes 20,000 of each store, which takes some minutes.
package cancels

import (
	"testing"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/locktest"
)

// What is left is counted, so nothing runs beside.
func TestMain(m *testing.M) {
	locktest.Main(m, stores.Open, "1", "redis/rueidis", "go.etcd.io", "jackc")
}
