package zookeeper_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zookeepertest"
)

// pairs locks and unlocks a name.
type pairs func(name string) (lock, unlock func() error)

// BenchmarkLibraries measures dlock beside zk.Lock, the recipe of the client's own
// module, on one server. Each process of dlock and each goroutine of zk.Lock has
// one session.
func BenchmarkLibraries(b *testing.B) {
	e := zookeepertest.Start(b, 1)
	for name, newPairs := range map[string]func(b *testing.B) pairs{
		"dlock": func(b *testing.B) pairs { return dlockPairs(b, e, 0) },
		"store": func(b *testing.B) pairs { return dlockPairs(b, e, dlock.NoLocalHandoffs) },
		"recipe": func(b *testing.B) pairs {
			c := connect(b, e)
			return func(name string) (lock, unlock func() error) {
				l := zk.NewLock(c, "/recipe/"+name, zk.WorldACL(zk.PermAll))
				return l.Lock, l.Unlock
			}
		},
	} {
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprintf("free/%d/%s", goroutines, name), func(b *testing.B) {
				p := newPairs(b)
				b.ResetTimer()
				side(b, goroutines, func(i int) pairs { return p }, func(i int) string { return fmt.Sprint("free", i) })
			})
		}
		b.Run("busy/16/"+name, func(b *testing.B) {
			p := newPairs(b)
			b.ResetTimer()
			side(b, 16, func(int) pairs { return p }, func(int) string { return "busy" })
		})
		b.Run("hands/"+name, func(b *testing.B) { hands(b, newPairs(b), newPairs(b)) })
	}
}

func dlockPairs(b *testing.B, e *zookeepertest.Ensemble, handoffs int) pairs {
	c, err := dlock.New(open(b, e.URL()), &dlock.Options{LocalHandoffs: handoffs})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return func(name string) (lock, unlock func() error) {
		var h *dlock.Hold
		m := c.Mutex(name)
		return func() (err error) { h, err = m.LockContext(b.Context()); return err }, func() error { return h.Unlock() }
	}
}

// side has goroutines lock and unlock until b.N locks were taken in all.
func side(b *testing.B, goroutines int, of func(i int) pairs, name func(i int) string) {
	var running sync.WaitGroup
	for i := range goroutines {
		lock, unlock := of(i)(name(i))
		running.Go(func() {
			for range b.N/goroutines + 1 {
				if err := lock(); err != nil {
					b.Error(err)
					return
				}
				if err := unlock(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

// hands measures from the beginning of an unlock in one session to the end of a
// lock that waits in another.
func hands(b *testing.B, first, second pairs) {
	lockA, unlockA := first("hands")
	lockB, unlockB := second("hands")
	var took []time.Duration
	for range b.N {
		if err := lockA(); err != nil {
			b.Fatal(err)
		}
		got := make(chan time.Time, 1)
		go func() {
			if lockB() == nil {
				got <- time.Now()
			}
		}()
		time.Sleep(20 * time.Millisecond) // B waits by then
		from := time.Now()
		if err := unlockA(); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-got).Sub(from))
		if err := unlockB(); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
}
