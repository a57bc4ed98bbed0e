package redistest

import (
	"testing"

	"github.com/dlock-go/dlock/internal/clocktest"
)

// StartWithClock is Start for a server, on Linux, whose wall clock the test holds.
func StartWithClock(t testing.TB, config ...string) (*Server, *clocktest.Clock) {
	t.Helper()
	clock, env := clocktest.New(t, t.TempDir())
	return launch(t, kind{
		lines: func(port, _ string) []string { return append(standalone(port), config...) },
		env:   env,
	}), clock
}
