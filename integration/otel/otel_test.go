// Package otel tests the observer of dlock's package otel against the SDK of
// OpenTelemetry, which users of dlock need not compile.
package otel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/otel"
	"github.com/dlock-go/dlock/store"
	"github.com/dlock-go/dlock/store/memory"
)

// watched is a client with an observer, and what that has reported.
type watched struct {
	*dlock.Client
	reader *metric.ManualReader
	spans  *tracetest.InMemoryExporter
	tracer *trace.TracerProvider
}

func watch(t *testing.T, s store.Store, opts *otel.Options, client dlock.Options, tracing ...trace.TracerProviderOption) *watched {
	w := &watched{reader: metric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	w.tracer = trace.NewTracerProvider(append(tracing, trace.WithSyncer(w.spans))...)
	opts.MeterProvider = metric.NewMeterProvider(metric.WithReader(w.reader))
	opts.TracerProvider = w.tracer
	observer, err := otel.New(opts)
	require.NoError(t, err)
	client.Observer = observer
	w.Client, err = dlock.New(s, &client)
	require.NoError(t, err)
	stop := observer.Watch(w.Client)
	t.Cleanup(func() { stop(); w.Close() })
	return w
}

// points returns the data points of each metric by attributes: counts of histograms,
// values of the others.
func (w *watched) points(t *testing.T) map[string]map[string]float64 {
	var all metricdata.ResourceMetrics
	require.NoError(t, w.reader.Collect(context.Background(), &all))
	points := make(map[string]map[string]float64)
	for _, m := range all.ScopeMetrics[0].Metrics {
		assert.NotEmpty(t, m.Description, m.Name)
		assert.NotEmpty(t, m.Unit, m.Name)
		by := make(map[string]float64)
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				by[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Count)
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				by[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
			}
		}
		points[m.Name] = by
	}
	return points
}

func TestMetrics(t *testing.T) {
	group := func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind }
	w := watch(t, memory.New(), &otel.Options{Group: group, Store: "memory"}, dlock.Options{})
	h, err := w.Mutex("sku/1").LockContext(t.Context())
	require.NoError(t, err)
	_, err = w.RWMutex("sku/1").TryRLockContext(t.Context())
	require.ErrorIs(t, err, dlock.ErrHeld)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = w.Mutex("sku/1").LockContext(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	points := w.points(t)
	assert.Equal(t, 1.0, points["dlock.holds"][""])
	assert.Equal(t, map[string]float64{
		"dlock.group=sku,dlock.operation=lock,dlock.outcome=granted":           1,
		"dlock.group=sku,dlock.operation=tryrlock,dlock.outcome=held":          1,
		"dlock.group=sku,dlock.operation=lock,dlock.outcome=deadline_exceeded": 1,
	}, points["dlock.lock.wait.duration"])
	assert.Empty(t, points["dlock.hold.duration"])

	require.NoError(t, h.Unlock())
	points = w.points(t)
	assert.Equal(t, map[string]float64{"dlock.group=sku,dlock.mode=exclusive": 1}, points["dlock.hold.duration"])
	assert.Equal(t, 0.0, points["dlock.holds"][""])
	calls := points["dlock.store.call.duration"]
	assert.GreaterOrEqual(t, calls["dlock.operation=acquire,dlock.store=memory"], 3.0)
	assert.GreaterOrEqual(t, calls["dlock.operation=release,dlock.store=memory"], 1.0)
}

// The counter of a loss is there, with zero, before the first loss: otherwise an increase
// over some minutes, which is what alerts ask for, does not see that loss.
func TestLossesBeginAtZero(t *testing.T) {
	group := func(name string) string { kind, _, _ := strings.Cut(name, "/"); return kind }
	w := watch(t, memory.New(), &otel.Options{Group: group}, dlock.Options{})
	h, err := w.Mutex("sku/1").LockContext(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]float64{
		"dlock.group=sku,dlock.loss.cause=deadline": 0,
		"dlock.group=sku,dlock.loss.cause=fixed":    0,
		"dlock.group=sku,dlock.loss.cause=gone":     0,
		"dlock.group=sku,dlock.loss.cause=max_hold": 0,
	}, w.points(t)["dlock.hold.losses"])
	require.NoError(t, h.Unlock())
}

func TestLossesAndRenewals(t *testing.T) {
	s := memory.New()
	w := watch(t, s, &otel.Options{}, dlock.Options{TTL: time.Second})
	h, err := w.Mutex("m").LockContext(t.Context())
	require.NoError(t, err)
	assert.Eventually(t, func() bool {
		return w.points(t)["dlock.hold.renewals"]["dlock.outcome=renewed"] >= 2
	}, 10*time.Second, 10*time.Millisecond)
	_, err = w.Break(t.Context(), "m")
	require.NoError(t, err)
	<-h.Done()
	assert.Eventually(t, func() bool {
		return w.points(t)["dlock.hold.losses"]["dlock.loss.cause=gone"] == 1
	}, 10*time.Second, 10*time.Millisecond)
	assert.GreaterOrEqual(t, w.points(t)["dlock.hold.renewals"]["dlock.outcome=failed"], 1.0)
	require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
}

// broken is a store of which every call to acquire fails.
type broken struct{ store.Store }

func (broken) Acquire(context.Context, store.Request) (store.Grant, error) {
	return store.Grant{}, errors.New("connection refused")
}

// The span of a lock call is a child of the caller's span. The span of a store call is a child of the lock call's.
func TestSpans(t *testing.T) {
	w := watch(t, memory.New(), &otel.Options{}, dlock.Options{})
	ctx, parent := w.tracer.Tracer("test").Start(t.Context(), "checkout")
	h, err := w.Mutex("sku/1").LockContext(ctx)
	require.NoError(t, err)
	require.NoError(t, h.Unlock())
	parent.End()

	spans := make(map[string]tracetest.SpanStub)
	for _, s := range w.spans.GetSpans() {
		spans[s.Name] = s
	}
	lock, call := spans["dlock lock"], spans["dlock.store acquire"]
	require.Contains(t, spans, "dlock.store release")
	assert.Equal(t, spans["checkout"].SpanContext.SpanID(), lock.Parent.SpanID())
	assert.Equal(t, lock.SpanContext.SpanID(), call.Parent.SpanID())
	assert.Contains(t, lock.Attributes, attribute.String("dlock.name", "sku/1"))
	assert.Contains(t, lock.Attributes, attribute.String("dlock.outcome", "granted"))

	failing := watch(t, broken{memory.New()}, &otel.Options{}, dlock.Options{StoreTimeout: 50 * time.Millisecond})
	_, err = failing.Mutex("m").TryLockContext(t.Context())
	require.ErrorIs(t, err, dlock.ErrUnavailable)
	var last tracetest.SpanStub
	for _, span := range failing.spans.GetSpans() {
		if span.Name == "dlock trylock" {
			last = span
		}
	}
	assert.Contains(t, last.Attributes, attribute.String("dlock.outcome", "unavailable"))
	assert.Contains(t, last.Status.Description, "connection refused")
	assert.Contains(t, failing.points(t)["dlock.store.call.duration"], "dlock.operation=acquire,error.type=_OTHER")
}

var lostOne = regexp.MustCompile(`(?m)^dlock_hold_losses_total\{.*\} 1$`)

// prometheusPage is what Prometheus scrapes of a client that has seen everything.
func prometheusPage(t *testing.T) string {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	observer, err := otel.New(&otel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(exporter))})
	require.NoError(t, err)
	c, err := dlock.New(memory.New(), &dlock.Options{Observer: observer, TTL: 100 * time.Millisecond})
	require.NoError(t, err)
	defer c.Close()
	defer observer.Watch(c)()
	h, err := c.Mutex("m").LockContext(t.Context())
	require.NoError(t, err)
	_, err = c.Break(t.Context(), "m")
	require.NoError(t, err)
	<-h.Done() // with its next renewal
	require.ErrorIs(t, h.Unlock(), dlock.ErrLost)
	observer.EndCall(t.Context(), dlock.CallEvent{Op: "acquire", Err: errors.New("refused")})

	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	var page string
	assert.Eventually(t, func() bool { // the end of the hold is told on another goroutine
		reply, err := http.Get(server.URL)
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		page = string(text)
		return err == nil && strings.Contains(page, "dlock_hold_duration_seconds_sum") && lostOne.MatchString(page)
	}, 10*time.Second, 10*time.Millisecond)
	return page
}

func TestPrometheusPage(t *testing.T) {
	page := prometheusPage(t)
	for _, name := range []string{
		"dlock_lock_wait_duration_seconds_bucket{", "dlock_hold_duration_seconds_sum{",
		"dlock_store_call_duration_seconds_count{", "dlock_hold_losses_total{", "dlock_holds{", "dlock_waiters{",
	} {
		assert.Contains(t, page, name)
	}
}

// The document and the dashboard name no metric that the page has not.
func TestNamesInDocuments(t *testing.T) {
	page := prometheusPage(t)
	for _, file := range []string{"../../docs/observability.md", "../../docs/grafana/dlock.json"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names := regexp.MustCompile(`\bdlock_[a-z_]+\b`).FindAllString(string(text), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			assert.Contains(t, page, name, "%s names it", file)
		}
	}
}

// Measurements are recorded in batches. None is lost: neither those of full batches, nor the last ones.
func TestBatchesLoseNothing(t *testing.T) {
	const each, goroutines = 500, 4
	w := watch(t, memory.New(), &otel.Options{}, dlock.Options{}, trace.WithSampler(trace.NeverSample()))
	errs := make(chan error, goroutines)
	for i := range goroutines {
		go func() {
			var err error
			for range each {
				err = errors.Join(err, w.Mutex("m"+strconv.Itoa(i)).Do(context.Background(), func(context.Context) error { return nil }))
			}
			errs <- err
		}()
	}
	for range goroutines {
		require.NoError(t, <-errs)
	}
	points := w.points(t)
	assert.Equal(t, map[string]float64{"dlock.operation=lock,dlock.outcome=granted": each * goroutines}, points["dlock.lock.wait.duration"])
	assert.Equal(t, map[string]float64{"dlock.mode=exclusive": each * goroutines}, points["dlock.hold.duration"])
}

// A measurement inside a sampled trace is an exemplar: it leads from the histogram to the trace.
func TestExemplarsOfSampledTraces(t *testing.T) {
	w := watch(t, memory.New(), &otel.Options{}, dlock.Options{})
	ctx, span := w.tracer.Tracer("test").Start(t.Context(), "checkout")
	require.NoError(t, w.Mutex("m").Do(ctx, func(context.Context) error { return nil }))
	span.End()
	var all metricdata.ResourceMetrics
	require.NoError(t, w.reader.Collect(t.Context(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "dlock.lock.wait.duration" {
			continue
		}
		exemplars := m.Data.(metricdata.Histogram[float64]).DataPoints[0].Exemplars
		require.Len(t, exemplars, 1)
		want := span.SpanContext().TraceID()
		assert.Equal(t, want[:], exemplars[0].TraceID)
		return
	}
	t.Error("no metric of waits")
}
