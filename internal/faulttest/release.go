package faulttest

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/locktest"
	"github.com/dlock-go/dlock/internal/proxytest"
)

// releaseLost: the release never gets through. The holder is out at once, Unlock says that it does
// not know, others get in when the lease is over, and the client gives up trying some time after
// that.
func (s *Site) releaseLost() {
	t := s.T
	var log locktest.Buffer
	o := dlock.Options{TTL: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	proxy := proxytest.Start(t, s.Addr)
	c := locktest.NewClient(t, s.Open(s.URL(proxy.Addr)), o)
	rival := s.client(dlock.Options{TTL: 6 * time.Second, WaitTTL: 6 * time.Second})
	h := locktest.Lock(t, c, "a")
	waits := locktest.Begin(t, rival, "a")
	s.queued("a", 1)
	proxy.Blackhole(true)
	began := time.Now()
	result := make(chan error)
	go func() { result <- h.Unlock() }()
	<-h.Done()
	if took := time.Since(began); took > locktest.Late {
		t.Errorf("the holder was out after %v", took)
	}
	locktest.MustBe(t, <-result, dlock.ErrUnavailable)
	if took := time.Since(began); took > o.TTL/3+locktest.Late {
		t.Errorf("Unlock took %v", took)
	}
	next, _ := waits.Granted(o.TTL + s.Lag + locktest.Late)
	s.holds(next)
	locktest.Poll(t, "it gives up", 3*o.TTL+locktest.Soon, func() bool { return strings.Contains(log.String(), "gave up releasing") })
	s.holds(next)
	locktest.Unlock(t, next)
	s.over("a", o)
	// Nothing is under way any more that would have to be cut off.
	began = time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > locktest.Late {
		t.Errorf("Close took %v", took)
	}
	proxy.Blackhole(false)
}

// releaseAfterTheContextHasEnded: the context of the caller is over when the lock is released, as
// it is in deferred calls. The release has a bound of its own and gets through.
func (s *Site) releaseAfterTheContextHasEnded() {
	t := s.T
	c := s.client(s.patient())
	ctx, cancel := context.WithCancel(t.Context())
	h, err := c.Mutex("a").LockContext(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	locktest.Unlock(t, h)
	s.Empty(0)

	ctx, cancel = context.WithCancel(t.Context())
	err = c.Mutex("a").Do(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	locktest.MustBe(t, err, context.Canceled)
	s.Empty(0)
}
