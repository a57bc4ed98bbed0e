package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/store"
)

// A renewal is never answered, and its caller has time for longer than the lease lasts. Another renewal
// that needs the lease is sent before half of the lease is over.
func TestFault40UnansweredRequestHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1)
	far := s.wire.store(t, s.cluster.Endpoints())
	reqs := []store.Request{locktest.Request("a", 1), locktest.Request("b", 2)}
	for n := range reqs { // both on one lease
		reqs[n].TTL = 4 * time.Second
		locktest.Hold(t, far, reqs[n])
	}
	renew := func(ctx context.Context, req store.Request) error {
		return far.Renew(ctx, []store.Ref{locktest.RefTo(req)})[0]
	}
	s.wire.on("LeaseKeepAlive", mute, 1)
	first := make(chan error, 1)
	go func() { first <- renew(t.Context(), reqs[0]) }()
	locktest.Poll(t, "the request", locktest.Patience, func() bool { return s.wire.requests("LeaseKeepAlive") == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), reqs[1].TTL/2)
	defer cancel()
	locktest.MustBe(t, renew(ctx, reqs[1]), nil)
	if err := <-first; err == nil || errors.Is(err, store.ErrLost) {
		t.Errorf("the first renewal returned %v, want an unknown outcome", err)
	}
}
