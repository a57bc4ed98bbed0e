package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/memory"
	"github.com/dlock-go/dlock/store/redis"
)

// stores says how each kind of store is opened, by the scheme of its URL. The
// rest of the program does not know which one it runs on.
var stores = map[string]func(url string) (store.Store, error){
	"memory": func(string) (store.Store, error) { return memory.New(), nil },
	"etcd":   func(url string) (store.Store, error) { return etcd.Open(url) },
	"redis":  openRedis,
	"rediss": openRedis,
}

func openRedis(url string) (store.Store, error) { return redis.Open(url) }

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

// schemes lists what openStore knows, for people.
func schemes() string {
	return strings.Join(slices.Sorted(maps.Keys(stores)), "://, ") + "://"
}
