package otel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/dlock-go/dlock"
)

// The attributes. Names follow the OpenTelemetry conventions: a namespace of our own,
// and error.type where the conventions have one.
const (
	attrOp      = attribute.Key("dlock.operation")
	attrName    = attribute.Key("dlock.name")
	attrGroup   = attribute.Key("dlock.group")
	attrOutcome = attribute.Key("dlock.outcome")
	attrMode    = attribute.Key("dlock.mode")
	attrCause   = attribute.Key("dlock.loss.cause")
	attrStore   = attribute.Key("dlock.store")
	attrError   = attribute.Key("error.type")
)

// metrics are the instruments of an Observer.
type metrics struct {
	meter metric.Meter
	measurements

	wait, hold, call histogram
	losses, renewals metric.Int64Counter
	groups           sync.Map // the groups whose losses are counted

	holds, waiters, places, releases metric.Int64ObservableUpDownCounter
}

// Buckets in seconds. A free lock takes some 50 µs, and a wait may take minutes.
var (
	callBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	waitBuckets = []float64{.0001, .001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300}
)

func (m *metrics) make(meter metric.Meter) error {
	m.meter = meter
	var errs []error
	seconds := func(h *histogram, name, text string, buckets []float64, keys ...attribute.Key) {
		var err error
		h.Float64Histogram, err = meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		copy(h.keys[:], keys)
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, text string) metric.Int64ObservableUpDownCounter {
		g, err := meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return g
	}
	seconds(&m.wait, "dlock.lock.wait.duration", "How long lock calls took until they had the lock or gave up.", waitBuckets,
		attrOp, attrOutcome, attrGroup)
	seconds(&m.hold, "dlock.hold.duration", "How long locks were held, without nested holds.", waitBuckets, attrMode, attrGroup)
	seconds(&m.call, "dlock.store.call.duration", "How long calls of the store took.", callBuckets, attrOp, attrError, attrStore)
	m.losses = counter("dlock.hold.losses", "{hold}", "Holds that were lost before they were released.")
	m.renewals = counter("dlock.hold.renewals", "{renewal}", "Renewals of holds.")
	m.holds = gauge("dlock.holds", "{hold}", "Holds at the store.")
	m.waiters = gauge("dlock.waiters", "{call}", "Calls that wait for a lock or for the store's first answer.")
	m.places = gauge("dlock.places", "{place}", "Requests in the background: queued, or without a known answer.")
	m.releases = gauge("dlock.releases.pending", "{release}", "Releases that the store has not confirmed.")
	_, err := meter.RegisterCallback(func(context.Context, metric.Observer) error {
		m.flush()
		return nil
	}, m.holds, m.waiters, m.places, m.releases) // one that no View drops has it called; it observes nothing
	return errors.Join(append(errs, err)...)
}

// countLosses begins the counters of a group's losses at zero, when its first lock is
// taken. A counter that begins with its first loss shows no increase to Prometheus.
func (m *metrics) countLosses(group string) {
	if _, known := m.groups.Load(group); known {
		return
	}
	m.groups.Store(group, true)
	for _, cause := range []dlock.LossCause{dlock.LostDeadline, dlock.LostFixed, dlock.LostMaxHold, dlock.LostGone} {
		m.losses.Add(context.Background(), 0, lossAttributes(cause, group))
	}
}

func lossAttributes(cause dlock.LossCause, group string) metric.AddOption {
	attrs := []attribute.KeyValue{attrCause.String(string(cause))}
	if group != "" {
		attrs = append(attrs, attrGroup.String(group))
	}
	return metric.WithAttributes(attrs...)
}

func (m *metrics) watch(c *dlock.Client) (stop func()) {
	r, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := c.Stats()
		o.ObserveInt64(m.holds, int64(s.Holds))
		o.ObserveInt64(m.waiters, int64(s.Waiters))
		o.ObserveInt64(m.places, int64(s.Places))
		o.ObserveInt64(m.releases, int64(s.Releases))
		return nil
	}, m.holds, m.waiters, m.places, m.releases)
	if err != nil { // only for instruments of another meter
		panic(err)
	}
	return func() { _ = r.Unregister() }
}
