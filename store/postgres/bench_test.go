package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPairs is one lock taken and released, each of another name, by 64
// goroutines.
func BenchmarkPairs(b *testing.B) {
	s := start(b)
	locks := open(b, s.url+"&pool_max_conns=16")
	var n atomic.Int64
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := int(n.Add(1))
			req := request(fmt.Sprintf("n%d", i), i, false)
			if _, err := locks.Acquire(b.Context(), req); err != nil {
				b.Error(err)
			}
			if err := locks.Release(b.Context(), refOf(req)); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkFloor is what PostgreSQL makes of one INSERT and one DELETE.
func BenchmarkFloor(b *testing.B) {
	s := start(b)
	pool := newPool(b, s.url+"&pool_max_conns=16")
	if _, err := pool.Exec(b.Context(), "CREATE TABLE floor (name text PRIMARY KEY, owner text, until timestamptz)"); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			name := fmt.Sprintf("n%d", n.Add(1))
			if _, err := pool.Exec(b.Context(), "INSERT INTO floor VALUES ($1, $2, now() + $3) ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until WHERE floor.until < now()", name, "owner", time.Minute); err != nil {
				b.Error(err)
			}
			if _, err := pool.Exec(b.Context(), "DELETE FROM floor WHERE name = $1 AND owner = $2", name, "owner"); err != nil {
				b.Error(err)
			}
		}
	})
}
