// Package fenced has worker processes change data in Redis under a lock of each store
// and counts whether a change was lost.
//
//   - TestFencedListLosesNothing: workers are stopped in the middle of their work,
//     for longer than their lease, and go on where they were. The data checks the
//     tokens.
//   - TestPlainCounterLosesNothing: the data checks nothing, and connections are
//     cut and processes killed, but nobody who changes the data is stopped.
//
// They are small unless DLOCK_PROVE=1, with which they take some minutes.
package fenced

import (
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/locktest"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(orderEnv); text != "" {
		work(text)
		return
	}
	locktest.Main(m, stores.Open, "1", "redis/rueidis", "go.etcd.io", "jackc")
}

// size is how much a test does.
type size struct {
	locks   int
	changes int           // acknowledged, at least
	limit   time.Duration // in which it has to be done
}
