package wakeups

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/integration/stores"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// beatOf asks for next to nothing, on a connection of its own.
func beatOf(t *testing.T, url string) func() error {
	t.Helper()
	c := connect(t, url)
	return func() error {
		_, err := c.Exec(context.Background(), "SELECT 1")
		return err
	}
}

// lookAt looks at a name that nobody has, through a store of its own.
func lookAt(t *testing.T, url string) func() error {
	t.Helper()
	s := stores.OpenFor(t, url)
	return func() error {
		_, err := s.Inspect(context.Background(), "pulse")
		return err
	}
}
