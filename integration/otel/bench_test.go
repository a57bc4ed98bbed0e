package otel

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/otel"
	"github.com/dlock-go/dlock/store/redis"
)

// Lock and unlock of a free name on Redis without an observer, and with one that
// measures and has no traces. docs/observability.md has the ratio.
func BenchmarkPair(b *testing.B) {
	s := redistest.Start(b)
	for _, with := range []bool{false, true} {
		name := "without"
		opts := new(dlock.Options)
		if with {
			name = "with"
			observer, err := otel.New(&otel.Options{
				MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
				TracerProvider: noop.NewTracerProvider(),
			})
			if err != nil {
				b.Fatal(err)
			}
			opts.Observer = observer
		}
		b.Run(name, func(b *testing.B) {
			redis, err := redis.Open(s.URL())
			if err != nil {
				b.Fatal(err)
			}
			defer redis.Close()
			c, err := dlock.New(redis, opts)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			m := c.Mutex("m")
			for b.Loop() {
				h, err := m.LockContext(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Unlock(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
