package redis_test

import (
	"testing"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

func TestMain(m *testing.M) {
	locktest.Main(m, func(url string) (store.Store, error) { return redis.Open(url) }, "8", "redis/rueidis")
}
