// Package cancels ends calls of Lock before they have the lock, by the thousand,
// on a server that answers and on one that does not: because it stands still, is
// gone, or all that is sent to it is lost. Each call returns soon after it was
// told to, and nothing is left of any of them.
//
// DLOCK_PROVE=1 makes 20,000 of each store, which takes some minutes.
package cancels

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/postgres"
	"github.com/dlock-go/dlock/store/redis"
	"github.com/dlock-go/dlock/store/zookeeper"
)

// What is left is counted, so nothing runs beside.
func TestMain(m *testing.M) { locktest.Main(m, open, "1", "redis/rueidis", "go.etcd.io", "jackc") }

func open(url string) (store.Store, error) {
	switch {
	case strings.HasPrefix(url, "etcd:"):
		return etcd.Open(url)
	case strings.HasPrefix(url, "postgres:"):
		return postgres.Open(context.Background(), url)
	case strings.HasPrefix(url, "zk:"):
		return zookeeper.Open(url)
	}
	return redis.Open(url)
}

// prove is how often to do something: few times, or many if that is wanted.
func prove(few, many int) int {
	if os.Getenv("DLOCK_PROVE") != "" {
		return many
	}
	return few
}
