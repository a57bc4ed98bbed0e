package postgres_test

import (
	"context"
	"os"
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/postgres"
)

// urlVar is where the processes of TestTorture find the server.
const urlVar = "DLOCK_TEST_POSTGRES"

// TestTorture: processes that are killed leave no lock behind, and never two
// hold one lock.
func TestTorture(t *testing.T) {
	conformance.Torture(t, func(t testing.TB) store.Store {
		url := os.Getenv(urlVar)
		if url == "" {
			url = start(t).url
			t.(*testing.T).Setenv(urlVar, url)
		}
		s, err := postgres.Open(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
