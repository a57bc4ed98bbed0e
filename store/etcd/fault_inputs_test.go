package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/etcd"
)

// TTLs at the ends of the range, and those that are no whole seconds, are what
// they are, to the next whole second and what the server is late.
func TestFault86AnyTTL(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	ttls := []time.Duration{
		time.Second, time.Second + 1, 1500 * time.Millisecond, 1999 * time.Millisecond, time.Hour, dlock.MaxTTL - 1, dlock.MaxTTL,
	}
	var handles []*etcd.Store
	for range ttls {
		handles = append(handles, open(t, s.cluster.URL()))
	}
	locktest.InParallel(t, len(ttls), func(i int) error {
		ttl, far := ttls[i], handles[i]
		req := locktest.Request(ttl.String(), i)
		req.TTL, req.WaitTTL = ttl, ttl
		began := time.Now()
		g, err := far.Acquire(t.Context(), req)
		if err != nil || !g.Held || g.TTL > ttl || g.TTL < ttl-time.Since(began) {
			return fmt.Errorf("for %v: got %+v, %w", ttl, g, err)
		}
		if err := far.Renew(t.Context(), []store.Ref{locktest.RefTo(req)})[0]; err != nil {
			return fmt.Errorf("for %v: %w", ttl, err)
		}
		renewed := time.Now()
		whole := (ttl + time.Second - 1).Truncate(time.Second)
		for here := true; here && ttl < time.Hour; time.Sleep(20 * time.Millisecond) {
			state, err := s.direct.Inspect(t.Context(), req.Name)
			if err != nil {
				return err
			}
			here = len(state.Holders) == 1
			switch {
			case !here && time.Since(began) < ttl:
				return fmt.Errorf("for %v: gone after %v", ttl, time.Since(began))
			case here && state.Holders[0].Remaining > whole:
				return fmt.Errorf("for %v: the server has %v", ttl, state.Holders[0].Remaining)
			case time.Since(renewed) > whole+lag+locktest.Late:
				return fmt.Errorf("for %v: there after %v", ttl, time.Since(renewed))
			}
		}
		if ttl < time.Hour {
			return nil
		}
		return far.Release(t.Context(), locktest.RefTo(req))
	})
	c := s.near(dlock.Options{})
	h, err := c.Mutex("a", dlock.WithTTL(dlock.MaxTTL)).LockContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, h)
	s.empty(0)
}
