// Package otel observes a dlock client with OpenTelemetry: metrics of lock calls,
// holds and calls of the store, and a span for each lock call and each call of the
// store. It needs only the API of OpenTelemetry; the program chooses the SDK.
//
//	observer, err := otel.New(nil)
//	...
//	client, err := dlock.New(store, &dlock.Options{Observer: observer})
//	...
//	defer observer.Watch(client)()
//
// docs/observability.md lists the metrics and what to alert on.
package otel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/dlock-go/dlock"
)

const scope = "github.com/dlock-go/dlock/otel"

// Options say where an Observer reports to. The zero value of a field is its default.
type Options struct {
	// MeterProvider gets the metrics. Default otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// TracerProvider gets the spans. Default otel.GetTracerProvider(). With the one of
	// package trace/noop no span is begun, which saves a third of the observer's time.
	TracerProvider trace.TracerProvider
	// Group returns what stands for a lock's name in metrics, for example "sku" for
	// "sku/4711". Each result is a time series, so there should be few. Default: no
	// name in metrics. Spans have the name, but for renewals of several.
	Group func(name string) string
	// Store is the kind of store, an attribute of the metrics of its calls, such as
	// "redis". Default none.
	Store string
}

// Observer is a dlock.Observer. It is safe for concurrent use, and several clients
// may share it.
type Observer struct {
	opts    Options
	tracer  trace.Tracer // nil: no spans
	metrics metrics
}

var _ dlock.Observer = (*Observer)(nil)

// New returns an Observer, with the defaults for nil opts. Its error is one of the
// MeterProvider, which could not make an instrument.
func New(opts *Options) (*Observer, error) {
	o := new(Observer)
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.MeterProvider == nil {
		o.opts.MeterProvider = otel.GetMeterProvider()
	}
	if o.opts.TracerProvider == nil {
		o.opts.TracerProvider = otel.GetTracerProvider()
	}
	if _, none := o.opts.TracerProvider.(noop.TracerProvider); !none {
		o.tracer = o.opts.TracerProvider.Tracer(scope)
	}
	err := o.metrics.make(o.opts.MeterProvider.Meter(scope))
	if err != nil {
		return nil, err
	}
	return o, nil
}

// BeginLock starts the span of a lock call, as a child of the span in ctx.
func (o *Observer) BeginLock(ctx context.Context, op, name string) context.Context {
	if o.tracer == nil {
		return ctx
	}
	ctx, _ = o.tracer.Start(ctx, "dlock "+op, trace.WithAttributes(attrOp.String(op), attrName.String(name)))
	return ctx
}

// EndLock ends that span and measures how long the call took.
func (o *Observer) EndLock(ctx context.Context, e dlock.LockEvent) {
	outcome := outcomeOf(e.Err)
	if o.tracer != nil {
		trace.SpanFromContext(ctx).SetAttributes(attrOutcome.String(outcome))
		endSpan(ctx, e.Err)
	}
	group := o.group(e.Name)
	o.metrics.add(ctx, &o.metrics.wait, e.Took.Seconds(), values{e.Op, outcome, group})
	if e.Err == nil {
		o.metrics.countLosses(group)
	}
}

// EndHold measures how long the lock was held, and counts a loss.
func (o *Observer) EndHold(e dlock.HoldEvent) {
	if e.Nested {
		return
	}
	ctx, group := context.Background(), o.group(e.Name)
	o.metrics.add(ctx, &o.metrics.hold, e.Held.Seconds(), values{mode(e.Shared), group})
	if e.Lost != "" {
		o.metrics.losses.Add(ctx, 1, lossAttributes(e.Lost, group))
	}
}

// BeginCall starts the span of a call of the store. The first one of a lock call is a
// child of that call's span; later ones have no parent.
func (o *Observer) BeginCall(ctx context.Context, op, name string) context.Context {
	if o.tracer == nil {
		return ctx
	}
	attrs := []attribute.KeyValue{attrOp.String(op)}
	if name != "" {
		attrs = append(attrs, attrName.String(name))
	}
	ctx, _ = o.tracer.Start(ctx, "dlock.store "+op, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx
}

// EndCall ends that span, measures how long the call took and counts renewals.
func (o *Observer) EndCall(ctx context.Context, e dlock.CallEvent) {
	failure := ""
	if failed(e.Err) {
		failure = outcomeOf(e.Err)
	}
	if o.tracer != nil {
		endSpan(ctx, e.Err)
	}
	o.metrics.add(ctx, &o.metrics.call, e.Took.Seconds(), values{e.Op, failure, o.opts.Store})
	if e.Op == "renew" {
		o.metrics.renewals.Add(ctx, int64(e.Names-e.Failed), metric.WithAttributes(attrOutcome.String("renewed")))
		o.metrics.renewals.Add(ctx, int64(e.Failed), metric.WithAttributes(attrOutcome.String("failed")))
	}
}

// endSpan ends the span in ctx, which Begin has put there.
func endSpan(ctx context.Context, err error) {
	span := trace.SpanFromContext(ctx)
	if failed(err) {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Watch reports what the client holds and waits for, each time that metrics are
// collected, until stop is called. Its figures are those of Client.Stats.
func (o *Observer) Watch(c *dlock.Client) (stop func()) { return o.metrics.watch(c) }

// group is what stands for a lock's name in metrics.
func (o *Observer) group(name string) string {
	if o.opts.Group == nil {
		return ""
	}
	return o.opts.Group(name)
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}

// failed reports whether err is a failure. That another owner holds the lock is none.
func failed(err error) bool { return err != nil && !errors.Is(err, dlock.ErrHeld) }

// outcomeOf is the class of an error: one of few words, for an attribute.
func outcomeOf(err error) string {
	if err == nil {
		return "granted"
	}
	for _, x := range []struct {
		is   error
		word string
	}{
		{dlock.ErrHeld, "held"},
		{dlock.ErrLost, "lost"},
		{dlock.ErrUpgrade, "upgrade"},
		{dlock.ErrClosed, "closed"},
		{dlock.ErrUnavailable, "unavailable"},
		{dlock.ErrForeignKey, "foreign_key"},
		{dlock.ErrRefused, "refused"},
		{dlock.ErrTooManyWaiters, "too_many_waiters"},
		{context.DeadlineExceeded, "deadline_exceeded"},
		{context.Canceled, "canceled"},
	} {
		if errors.Is(err, x.is) {
			return x.word
		}
	}
	return "_OTHER"
}
