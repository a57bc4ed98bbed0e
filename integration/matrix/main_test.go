// Package matrix loses the replies to all that dlock asks of a store, in all
// ways, on real servers: one test for each cell of
//
//	{acquire, re-entry, shared, renew, release} x {cut, mute, late, duplicate} x {retry, give up} x
//	{Redis, etcd, PostgreSQL, ZooKeeper, one node of a quorum, all nodes of a quorum}
//
// One second after the wire is healed nothing may be left of a call that gave
// up, at no node of a quorum, nobody may find a lock busy that is free, and the client's and the store's
// counts must be right.
package matrix

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

func TestMain(m *testing.M) {
	open := func(string) (store.Store, error) { return nil, errors.New("no test here has children") }
	locktest.Main(m, open, "20")
}
