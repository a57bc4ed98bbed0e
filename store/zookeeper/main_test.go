package zookeeper_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/zookeeper"
)

func TestMain(m *testing.M) {
	locktest.Main(m, func(url string) (store.Store, error) { return zookeeper.Open(url) }, "4")
}
