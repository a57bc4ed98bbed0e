// Package wakeups hands locks over many times, while the connections that tell
// waiters of it are killed, and looks for one that was not told and only came
// round to asking by itself. It also kills holders.
//
// DLOCK_PROVE=1 makes many more hand-overs, for about ten minutes: give it
// -timeout=30m.
package wakeups

import (
	"os"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
	"github.com/dlock-go/dlock/store/redis"
)

func TestMain(m *testing.M) { locktest.Main(m, open, "16") }

func open(url string) (store.Store, error) {
	if strings.HasPrefix(url, "etcd:") {
		return etcd.Open(url)
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

func openStore(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
