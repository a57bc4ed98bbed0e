package otel

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/otel"
	"github.com/dlock-go/dlock/store/redis"
)

// BenchmarkPair compares Lock and Unlock of a free name on Redis without an observer and
// with one that measures and has no traces. The two take turns of 20 pairs, and each is
// first in every other turn, so that a busy machine slows both down alike. The metric
// with/without is the ratio of the medians of the times of a pair.
func BenchmarkPair(b *testing.B) {
	s := redistest.Start(b)
	observer, err := otel.New(&otel.Options{
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(metric.NewManualReader())),
		TracerProvider: noop.NewTracerProvider(),
	})
	if err != nil {
		b.Fatal(err)
	}
	locks := [2]*dlock.Mutex{mutex(b, s.URL(), new(dlock.Options)), mutex(b, s.URL(), &dlock.Options{Observer: observer})}
	var times [2][]time.Duration
	first := 0
	for b.Loop() {
		for _, k := range []int{first, 1 - first} {
			for range 20 {
				start := time.Now()
				h, err := locks[k].LockContext(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Unlock(); err != nil {
					b.Fatal(err)
				}
				times[k] = append(times[k], time.Since(start))
			}
		}
		first = 1 - first
	}
	b.ReportMetric(float64(median(times[0]).Nanoseconds()), "without-ns")
	b.ReportMetric(float64(median(times[1]).Nanoseconds()), "with-ns")
	b.ReportMetric(float64(median(times[1]))/float64(median(times[0])), "with/without")
}

// mutex returns a lock of a client and a store of its own.
func mutex(b *testing.B, url string, opts *dlock.Options) *dlock.Mutex {
	s, err := redis.Open(url)
	if err != nil {
		b.Fatal(err)
	}
	c, err := dlock.New(s, opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c.Mutex("m")
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
