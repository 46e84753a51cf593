// Package otelholdfast reports the events of a client's locks to OpenTelemetry,
// as metrics and spans.
//
//	locks, err := holdfast.New(driver, holdfast.WithObserver(otelholdfast.Observer(nil)))
//
// The instruments:
//
//	holdfast.lock.wait.duration  histogram, s: how long calls took, by holdfast.lock.outcome
//	holdfast.lock.hold.duration  histogram, s: how long locks were held, by holdfast.lock.outcome
//	holdfast.lock.count          up-down counter, {lock}: calls that wait, and holds, by holdfast.lock.state
//	holdfast.store.errors        counter, {error}: requests that failed, by holdfast.store.operation
//
// All have the attributes holdfast.lock.group, holdfast.lock.kind and
// holdfast.store.scheme; group and kind are absent for errors of requests about
// several locks. error.type says why something failed or was lost. No attribute
// of a metric has a name, an owner, a token or a host.
//
// A span "lock GROUP" lasts for the call that takes a lock; its event "wait" has
// the holder. A span "hold GROUP" lasts until the hold has ended, and is the
// parent of the work's spans; it has the lock's name and token. A call whose
// context has no span that is recorded has none either, and allocates nothing.
package otelholdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// Options are the settings of an Observer. The zero value, like nil, is usable.
type Options struct {
	// Scheme is the value of holdfast.store.scheme: the scheme of the store's
	// URL, such as "redis".
	Scheme string
	// Group returns the group of a lock, from its name. Nil is the part of the
	// name before its first slash, or the whole name without one. After 100
	// groups, others count as "_other".
	Group func(name string) string
	// MeterProvider and TracerProvider receive the metrics and the spans. Nil is
	// the global provider.
	MeterProvider  metric.MeterProvider
	TracerProvider trace.TracerProvider
}

const scope = "github.com/holdfast-go/holdfast/otelholdfast"

// Observer returns an Observer for holdfast.WithObserver. It does not block, and
// passes an error of the meter to otel.Handle. Several clients may have it.
func Observer(o *Options) *holdfast.Observer {
	if o == nil {
		o = &Options{}
	}
	meters, tracers := o.MeterProvider, o.TracerProvider
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	m := &metrics{tracer: tracers.Tracer(scope), scheme: attribute.String("holdfast.store.scheme", o.Scheme)}
	m.groups = lockmetrics.NewGroups(o.Group, m.newInstruments)
	if err := m.create(meters.Meter(scope)); err != nil {
		otel.Handle(fmt.Errorf("otelholdfast: %w", err))
	}
	return &holdfast.Observer{
		LockStart: m.lockStart, LockWait: m.lockWait, LockDone: m.lockDone,
		HoldDone: m.holdDone, BackgroundError: m.backgroundError,
	}
}

// metrics records events.
type metrics struct {
	tracer trace.Tracer
	scheme attribute.KeyValue
	groups *lockmetrics.Groups[instruments]
	wait   metric.Float64Histogram
	hold   metric.Float64Histogram
	errors metric.Int64Counter
}

// instruments has what one group and kind need, made once, so that events
// allocate nothing.
type instruments struct {
	group         string
	attrs         []attribute.KeyValue
	waiting, held atomic.Int64
	onWaiting     metric.MeasurementOption
	onHeld        metric.MeasurementOption
	wait          [len(lockmetrics.Waits)]options
	hold          [len(lockmetrics.Holds)]options
}

// options are the options of one series.
type options []metric.RecordOption

func (m *metrics) create(meter metric.Meter) error {
	var errs [4]error
	buckets := metric.WithExplicitBucketBoundaries(lockmetrics.Buckets...)
	m.wait, errs[0] = meter.Float64Histogram("holdfast.lock.wait.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("Duration of calls that take a lock."))
	m.hold, errs[1] = meter.Float64Histogram("holdfast.lock.hold.duration", metric.WithUnit("s"), buckets,
		metric.WithDescription("Duration of holds."))
	_, errs[2] = meter.Int64ObservableUpDownCounter("holdfast.lock.count", metric.WithUnit("{lock}"),
		metric.WithDescription("Calls that wait for a lock, and locks held."), metric.WithInt64Callback(m.observeCounts))
	m.errors, errs[3] = meter.Int64Counter("holdfast.store.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Requests to the store that failed."))
	return errors.Join(errs[:]...)
}

func (m *metrics) observeCounts(_ context.Context, o metric.Int64Observer) error {
	m.groups.Each(func(in *instruments) {
		o.Observe(in.waiting.Load(), in.onWaiting)
		o.Observe(in.held.Load(), in.onHeld)
	})
	return nil
}

func (m *metrics) newInstruments(group string, kind holdfast.Kind) *instruments {
	attrs := []attribute.KeyValue{m.scheme, attribute.String("holdfast.lock.group", group), attribute.String("holdfast.lock.kind", string(kind))}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(attrs[:3:3], more...)...))
	}
	in := &instruments{group: group, attrs: attrs,
		onWaiting: with(attribute.String("holdfast.lock.state", "waiting")),
		onHeld:    with(attribute.String("holdfast.lock.state", "held"))}
	result := func(r lockmetrics.Result) options {
		outcome := attribute.String("holdfast.lock.outcome", r.Outcome)
		if r.ErrorType == "" {
			return options{with(outcome)}
		}
		return options{with(outcome, attribute.String("error.type", r.ErrorType))}
	}
	for i, r := range lockmetrics.Waits {
		in.wait[i] = result(r)
	}
	for i, r := range lockmetrics.Holds {
		in.hold[i] = result(r)
	}
	return in
}

func (m *metrics) lockStart(ctx context.Context, e holdfast.LockStartInfo) context.Context {
	in := m.groups.Of(&e.Event)
	in.waiting.Add(1)
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return nil
	}
	ctx, lock := m.tracer.Start(ctx, "lock "+in.group, trace.WithAttributes(in.attrs...),
		trace.WithAttributes(attribute.String("holdfast.lock.name", e.Name)))
	return context.WithValue(ctx, m, &spans{parent: parent, lock: lock})
}

// spans are the spans of one call. They are in the contexts of its events, by
// the key of their metrics.
type spans struct{ parent, lock, hold trace.Span }

// spansOf returns the spans of a call, or nil without any.
func (m *metrics) spansOf(ctx context.Context) *spans {
	s, _ := ctx.Value(m).(*spans)
	return s
}

func (m *metrics) lockWait(ctx context.Context, e holdfast.LockWaitInfo) {
	s := m.spansOf(ctx)
	switch {
	case e.Err != nil:
		m.storeError(ctx, m.groups.Of(&e.Event), "acquire", e.Err)
		if s != nil {
			s.lock.AddEvent("wait", trace.WithAttributes(attribute.String("error.type", lockmetrics.ErrorType(e.Err))))
		}
	case s != nil:
		s.lock.AddEvent("wait", trace.WithAttributes(
			attribute.String("holdfast.holder.host", e.Holder.Host), attribute.Int("holdfast.holder.pid", e.Holder.PID)))
	}
}

func (m *metrics) lockDone(ctx context.Context, e holdfast.LockDoneInfo) context.Context {
	in := m.groups.Of(&e.Event)
	in.waiting.Add(-1)
	i := lockmetrics.WaitResult(e.Err)
	m.wait.Record(ctx, e.Waited.Seconds(), in.wait[i]...)
	if e.Err == nil {
		in.held.Add(1)
	} else {
		m.storeError(ctx, in, "acquire", e.Err)
	}
	s := m.spansOf(ctx)
	if s == nil {
		return nil
	}
	end(s.lock, lockmetrics.Waits[i], e.Err)
	if e.Err != nil {
		return nil
	}
	ctx, s.hold = m.tracer.Start(trace.ContextWithSpan(ctx, s.parent), "hold "+in.group, trace.WithAttributes(in.attrs...),
		trace.WithAttributes(attribute.String("holdfast.lock.name", e.Name), attribute.Int64("holdfast.lock.token", int64(e.Token))))
	return ctx
}

func (m *metrics) holdDone(ctx context.Context, e holdfast.HoldDoneInfo) {
	in := m.groups.Of(&e.Event)
	in.held.Add(-1)
	i := lockmetrics.HoldResult(e.Err)
	m.hold.Record(ctx, e.Held.Seconds(), in.hold[i]...)
	if e.Err != nil {
		m.storeError(ctx, in, "release", e.Err)
	}
	if s := m.spansOf(ctx); s != nil {
		end(s.hold, lockmetrics.Holds[i], e.Err)
	}
}

// end ends a span with its result. A refused Try and a wait that ended are
// results, no errors.
func end(s trace.Span, r lockmetrics.Result, err error) {
	s.SetAttributes(attribute.String("holdfast.lock.outcome", r.Outcome))
	if r.ErrorType != "" {
		s.SetAttributes(attribute.String("error.type", r.ErrorType))
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

func (m *metrics) backgroundError(ctx context.Context, e holdfast.BackgroundErrorInfo) {
	m.storeError(ctx, &instruments{attrs: []attribute.KeyValue{m.scheme}}, e.Op, e.Err)
}

// storeError counts err, if it is the store's.
func (m *metrics) storeError(ctx context.Context, in *instruments, op string, err error) {
	if kind := lockmetrics.ErrorType(err); kind != "" {
		m.errors.Add(ctx, 1, metric.WithAttributes(in.attrs...),
			metric.WithAttributes(attribute.String("holdfast.store.operation", op), attribute.String("error.type", kind)))
	}
}
