package redis_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/redis"
)

// A call that has learnt that its name is indexed is not misled by others, who found the name
// free at that moment.
func TestIndexedWhileOthersFindItFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openIndexed(t, server.URL())
	var done atomic.Bool
	var others sync.WaitGroup
	others.Go(func() {
		for !done.Load() {
			redis.ForgetForm(s, "a")
			time.Sleep(50 * time.Microsecond) // other tests need the processor
		}
	})
	defer func() { done.Store(true); others.Wait() }()
	for range 1000 {
		for n := range 3 {
			r := long(want("a", 1+n))
			r.Mode = store.Shared
			_, err := s.Acquire(bounded(t), r)
			require.NoError(t, err)
		}
		for n := range 3 {
			r := long(want("a", 1+n))
			r.Mode = store.Shared
			require.NoError(t, s.Release(bounded(t), of(r)))
		}
	}
}
