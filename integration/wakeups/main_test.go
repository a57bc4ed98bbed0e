// Package wakeups hands locks over many times, while the connections that tell
// waiters of it are killed, and looks for one that was not told and only came
// round to asking by itself. It also kills holders.
//
// DLOCK_PROVE=1 makes many more hand-overs, for about ten minutes: give it
// -timeout=30m.
package wakeups

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m, stores.Open, "16") }

// prove is how often to do something: few times, or many if that is wanted.
func prove(few, many int) int {
	if os.Getenv("DLOCK_PROVE") != "" {
		return many
	}
	return few
}
