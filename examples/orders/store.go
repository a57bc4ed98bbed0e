package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/postgres"
	"github.com/dlock-go/dlock/store/redis"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// stores says how each kind of store is opened, by the scheme of its URL. The
// rest of the program does not know which one it runs on.
var stores = map[string]func(url string) (store.Store, error){
	"memory": func(string) (store.Store, error) { return memory.New(), nil },
	"etcd":   func(url string) (store.Store, error) { return etcd.Open(url) },
	"redis":  openRedis,
	"rediss": openRedis,

	"postgres":   openPostgres,
	"postgresql": openPostgres,

	"zk": func(url string) (store.Store, error) { return zookeeper.Open(url) },
}

func openRedis(url string) (store.Store, error) { return redis.Open(url) }

// openPostgres opens the table of locks, and makes it if it is not there.
func openPostgres(url string) (store.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, postgres.ErrInvalidURL // pgx's error repeats parts of the URL
	}
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer c.Close(ctx)
	if err := postgres.Migrate(ctx, c, ""); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, url)
}

// openStore opens the store of a URL. Errors do not repeat the URL, which may
// have a password in it.
func openStore(url string) (store.Store, error) {
	scheme, _, ok := strings.Cut(url, "://")
	if !ok {
		return nil, fmt.Errorf("-store is not a URL; supported: %s", schemes())
	}
	open, ok := stores[scheme]
	if !ok {
		return nil, fmt.Errorf("-store: unknown scheme %q; supported: %s", scheme, schemes())
	}
	return open(url)
}

// schemes lists the schemes that openStore knows, for messages.
func schemes() string {
	return strings.Join(slices.Sorted(maps.Keys(stores)), "://, ") + "://"
}
