package etcd_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

func TestMain(m *testing.M) {
	locktest.Main(m, func(url string) (store.Store, error) { return etcd.Open(url) }, "16")
}
