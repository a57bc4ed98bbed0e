package wakeups

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/integration/stores"
	"github.com/dlock-go/dlock/internal/redistest"
)

// startMasters starts the servers of a quorum.
func startMasters(t *testing.T) (servers []*redistest.Server) {
	t.Helper()
	for range 3 {
		servers = append(servers, redistest.Start(t))
	}
	return servers
}

// urlOf is the URL of one server, or of a quorum. No server restarts, so all are durable.
func urlOf(servers []*redistest.Server) string {
	var urls []string
	for _, server := range servers {
		urls = append(urls, server.URL())
	}
	if len(urls) == 1 {
		return urls[0]
	}
	return stores.DurableQuorum(urls...)
}

// ping asks all servers for next to nothing.
func ping(servers []*redistest.Server) func() error {
	for _, server := range servers {
		server.Client() // connects, which only this goroutine may have fail
	}
	return func() (err error) {
		for _, server := range servers {
			err = errors.Join(err, server.Do("PING").Error())
		}
		return err
	}
}

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
