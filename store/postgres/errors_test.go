package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/store"
)

// A server that has no room refuses. One that ends with a panic for that reason may have written the commit before, so
// the outcome is unknown.
func TestPanicIsNoRefusal(t *testing.T) {
	for severity, certain := range map[string]bool{"ERROR": true, "FATAL": true, "PANIC": false} {
		for code := range refusals {
			err := error(&pgconn.PgError{Code: code, SeverityUnlocalized: severity})
			if got := undone(err); got != certain {
				t.Errorf("%s %s is certain: got %v", severity, code, got)
			}
			if got := errors.Is(new(backend).outcome(err), store.ErrRefused); got != certain {
				t.Errorf("%s %s is a refusal: got %v", severity, code, got)
			}
		}
	}
}
