package otel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// histogram records by the values of its attributes. It keeps the set of each
// combination, because to make a set takes longer than to record by it. It is safe for
// concurrent use.
type histogram struct {
	metric.Float64Histogram
	keys [3]attribute.Key
	sets sync.Map // of values: []metric.RecordOption
}

// values are those of a histogram's attributes, in the order of its keys. An attribute
// with an empty value is left out.
type values [3]string

func (h *histogram) record(ctx context.Context, seconds float64, v values) {
	set, ok := h.sets.Load(v)
	if !ok {
		set, _ = h.sets.LoadOrStore(v, []metric.RecordOption{h.attributes(v)})
	}
	h.Record(ctx, seconds, set.([]metric.RecordOption)...)
}

func (h *histogram) attributes(v values) metric.MeasurementOption {
	var list []attribute.KeyValue
	for i, value := range v {
		if value != "" {
			list = append(list, h.keys[i].String(value))
		}
	}
	return metric.WithAttributes(list...)
}

// measurements collects measurements and records many at once. After a call of a store
// the code that records is in no cache of the CPU, and to load it takes ten times as long
// as to record. A batch is recorded when it is full and when metrics are collected. A
// measurement inside a sampled span is recorded at once. The zero value is empty. It is
// safe for concurrent use.
type measurements struct {
	mu    sync.Mutex
	batch []measurement
}

// measurement is a duration that is to be recorded.
type measurement struct {
	in      *histogram
	seconds float64
	values  values
}

const batchSize = 128

// add records a duration, at once if ctx has a sampled span: the histogram may keep it
// as an exemplar.
func (m *measurements) add(ctx context.Context, in *histogram, seconds float64, v values) {
	if trace.SpanContextFromContext(ctx).IsSampled() {
		in.record(ctx, seconds, v)
		return
	}
	m.mu.Lock()
	if m.batch == nil {
		m.batch = make([]measurement, 0, batchSize)
	}
	m.batch = append(m.batch, measurement{in, seconds, v})
	var full []measurement
	if len(m.batch) == batchSize {
		full, m.batch = m.batch, nil
	}
	m.mu.Unlock()
	record(full)
}

// flush records what was added.
func (m *measurements) flush() {
	m.mu.Lock()
	batch := m.batch
	m.batch = nil
	m.mu.Unlock()
	record(batch)
}

func record(batch []measurement) {
	for _, x := range batch {
		x.in.record(context.Background(), x.seconds, x.values)
	}
}
