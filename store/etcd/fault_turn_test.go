package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// A request for a lease is never answered, and its caller has time for longer than the lease lasts. Another
// call that needs the lease sends a request of its own before half of the lease is over.
func TestFault40UnansweredRequestHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"LeaseKeepAlive", "LeaseGrant"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 1)
			far := s.wire.store(t, s.cluster.Endpoints())
			reqs := []store.Request{locktest.Request("a", 1), locktest.Request("b", 2)}
			for n := range reqs {
				reqs[n].TTL = 4 * time.Second
			}
			call := func(ctx context.Context, req store.Request) error {
				_, err := far.Acquire(ctx, req)
				return err
			}
			if method == "LeaseKeepAlive" {
				for _, req := range reqs { // both on one lease
					locktest.Hold(t, far, req)
				}
				call = func(ctx context.Context, req store.Request) error {
					return far.Renew(ctx, []store.Ref{locktest.RefTo(req)})[0]
				}
			}
			s.wire.on(method, mute, 1)
			first := make(chan error, 1)
			go func() { first <- call(t.Context(), reqs[0]) }()
			locktest.Poll(t, "the request", locktest.Patience, func() bool { return s.wire.requests(method) == 1 })
			ctx, cancel := context.WithTimeout(t.Context(), reqs[1].TTL/2)
			defer cancel()
			locktest.MustBe(t, call(ctx, reqs[1]), nil)
			if err := <-first; err == nil || errors.Is(err, store.ErrLost) {
				t.Errorf("the first call returned %v, want an unknown outcome", err)
			}
		})
	}
}
