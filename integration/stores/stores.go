// Package stores opens the stores for the tests of this module.
package stores

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/internal/postgrestest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/postgres"
	"github.com/dlock-go/dlock/store/quorum"
	"github.com/dlock-go/dlock/store/redis"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// durable, before the URLs of a quorum, says that its servers lose nothing: no lock waits until they are as old as a lease.
const durable = "durable "

// Open opens the store of a URL, or a quorum of the Redis servers of several.
func Open(url string) (store.Store, error) {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "etcd":
		return etcd.Open(url)
	case "postgres":
		return postgres.Open(context.Background(), url)
	case "zk":
		return zookeeper.Open(url)
	}
	if urls, ok := strings.CutPrefix(url, durable); ok {
		return openDurable(strings.Fields(urls)...)
	}
	if nodes := strings.Fields(url); len(nodes) > 1 {
		return redis.OpenQuorum(nodes...)
	}
	return redis.Open(url)
}

// openDurable is [redis.OpenQuorum] for servers that lose nothing.
func openDurable(urls ...string) (store.Store, error) {
	var dialed []*redis.Node
	var nodes []store.Store
	for _, url := range urls {
		n, err := redis.OpenNode(url)
		if err != nil {
			return nil, err
		}
		dialed, nodes = append(dialed, n), append(nodes, n)
	}
	if err := quorum.AwaitMajority(dialed); err != nil {
		return nil, err
	}
	return quorum.NewWithOptions(&quorum.Options{Durable: true, Own: true}, nodes...)
}

// DurableQuorum returns the URL of a quorum whose servers lose nothing.
func DurableQuorum(urls ...string) string { return durable + strings.Join(urls, " ") }

// OpenFor opens a store that is closed when the test ends.
func OpenFor(t testing.TB, url string) store.Store {
	t.Helper()
	s, err := Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// NewDatabase returns the URL of a database with the table of the locks.
func NewDatabase(t testing.TB, server *postgrestest.Server) string {
	t.Helper()
	url, ctx := server.URL(), context.Background()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if err := postgres.Migrate(ctx, c, ""); err != nil {
		t.Fatal(err)
	}
	return url
}
