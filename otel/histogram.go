package otel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// histogram records by the values of its attributes. It keeps the set of each
// combination, because to make a set takes longer than to record by it. There are as
// many as time series. It is safe for concurrent use.
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
