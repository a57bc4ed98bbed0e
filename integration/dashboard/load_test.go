package dashboard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/faultstore"
	"github.com/dlock-go/dlock/otel"
	"github.com/dlock-go/dlock/store/memory"
)

// service is a program that takes locks and shows its metrics.
type service struct {
	client *dlock.Client
	memory *memory.Store
	store  *faultstore.Store // in front of it
	host   string            // of its page of metrics
}

// startService starts a service whose goroutines take locks until the test ends.
func startService(t testing.TB, ttl time.Duration) *service {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	observer, err := otel.New(&otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter)), Store: "memory"})
	require.NoError(t, err)
	s := &service{memory: memory.New()}
	s.store = faultstore.New(s.memory)
	s.store.On(faultstore.Any, faultstore.Every, faultstore.DelayReply(300*time.Microsecond))
	s.client, err = dlock.New(s.store, &dlock.Options{Observer: observer, TTL: ttl})
	require.NoError(t, err)
	stop := observer.Watch(s.client)
	page := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s.host = strings.TrimPrefix(page.URL, "http://")
	ctx, cancel := context.WithCancel(context.Background())
	var workers sync.WaitGroup
	for range 40 {
		workers.Go(func() {
			for ctx.Err() == nil {
				s.order(ctx)
			}
		})
	}
	t.Cleanup(func() { cancel(); workers.Wait(); stop(); page.Close(); s.client.Close() })
	return s
}

// order takes the lock of an article, of which one is in demand, and works for some time.
// It gives up after a second.
func (s *service) order(ctx context.Context) {
	name := "sku/1"
	if rand.IntN(10) > 0 {
		name = fmt.Sprint("sku/", rand.IntN(500))
	}
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	h, err := s.client.Mutex(name).LockContext(wait)
	if err == nil {
		pause(ctx, time.Duration(rand.ExpFloat64()*float64(20*time.Millisecond)))
		_ = h.Unlock() // a loss is what the dashboard is to show
	}
	pause(ctx, time.Duration(rand.ExpFloat64()*float64(100*time.Millisecond)))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// hold takes n locks and keeps them until the test ends. It ignores their loss.
func (s *service) hold(t testing.TB, n int) {
	for i := range n {
		h, err := s.client.Mutex(fmt.Sprint("job/", i)).LockContext(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = h.Unlock() })
	}
}

// outage has the store refuse all calls for some time, and an operator break a lock that
// is held.
func (s *service) outage(t testing.TB, d time.Duration) {
	heal := s.store.Outage(faultstore.DropRequest())
	time.Sleep(d)
	heal()
	s.hold(t, 20)
	broken, err := s.memory.Break(t.Context(), "job/0")
	require.NoError(t, err)
	require.NotZero(t, broken)
}
