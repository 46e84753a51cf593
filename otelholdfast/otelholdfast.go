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
//
// Observer records with instruments of a MeterProvider, which views can change and
// which have exemplars. A Producer counts by itself and costs less at each lock:
//
//	locks := otelholdfast.NewProducer(nil)
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(locks))
//
// One of the two is enough; with both, readers that have the Producer see each series
// twice.
package otelholdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
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
	// groups, others count as "_other". Bytes that are not valid UTF-8,
	// such as part of a letter, become U+FFFD. Group must be safe for concurrent
	// use. A lock for whose name it panics works, and is not counted.
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
	meters := o.MeterProvider
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	m := &metrics{spans: newTracing(o)}
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
	spans  *tracing
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

// instrument is the name of one, its unit, and what it tells.
type instrument struct{ name, unit, description string }

var (
	waitDuration = instrument{"holdfast.lock.wait.duration", "s", "Duration of calls that take a lock."}
	holdDuration = instrument{"holdfast.lock.hold.duration", "s", "Duration of holds."}
	lockCount    = instrument{"holdfast.lock.count", "{lock}", "Calls that wait for a lock, and locks held."}
	storeErrors  = instrument{"holdfast.store.errors", "{error}", "Requests to the store that failed."}
)

func (m *metrics) create(meter metric.Meter) error {
	var errs [4]error
	buckets := metric.WithExplicitBucketBoundaries(lockmetrics.Buckets...)
	m.wait, errs[0] = meter.Float64Histogram(waitDuration.name, metric.WithUnit(waitDuration.unit), buckets,
		metric.WithDescription(waitDuration.description))
	m.hold, errs[1] = meter.Float64Histogram(holdDuration.name, metric.WithUnit(holdDuration.unit), buckets,
		metric.WithDescription(holdDuration.description))
	_, errs[2] = meter.Int64ObservableUpDownCounter(lockCount.name, metric.WithUnit(lockCount.unit),
		metric.WithDescription(lockCount.description), metric.WithInt64Callback(m.observeCounts))
	m.errors, errs[3] = meter.Int64Counter(storeErrors.name, metric.WithUnit(storeErrors.unit),
		metric.WithDescription(storeErrors.description))
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
	attrs := lockAttributes(m.spans.scheme, group, kind)
	with := func(attrs []attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attrs...))
	}
	in := &instruments{group: group, attrs: attrs,
		onWaiting: with(append(attrs[:3:3], attribute.String("holdfast.lock.state", "waiting"))),
		onHeld:    with(append(attrs[:3:3], attribute.String("holdfast.lock.state", "held")))}
	for i, r := range lockmetrics.Waits {
		in.wait[i] = options{with(resultAttributes(attrs, r))}
	}
	for i, r := range lockmetrics.Holds {
		in.hold[i] = options{with(resultAttributes(attrs, r))}
	}
	return in
}

// lockAttributes returns the three attributes that all metrics of a group and kind have.
func lockAttributes(scheme attribute.KeyValue, group string, kind holdfast.Kind) []attribute.KeyValue {
	return []attribute.KeyValue{scheme, attribute.String("holdfast.lock.group", group), attribute.String("holdfast.lock.kind", string(kind))}
}

// resultAttributes returns the attributes of a duration, those of its lock first.
func resultAttributes(lock []attribute.KeyValue, r lockmetrics.Result) []attribute.KeyValue {
	attrs := append(lock[:3:3], attribute.String("holdfast.lock.outcome", r.Outcome))
	if r.ErrorType != "" {
		attrs = append(attrs, attribute.String("error.type", r.ErrorType))
	}
	return attrs
}

func (m *metrics) lockStart(ctx context.Context, e holdfast.LockStartInfo) context.Context {
	in := m.groups.Of(&e.Event)
	in.waiting.Add(1)
	return m.spans.lockStart(ctx, in.group, &e)
}

func (m *metrics) lockWait(ctx context.Context, e holdfast.LockWaitInfo) {
	if e.Err != nil {
		m.storeError(ctx, m.groups.Of(&e.Event), "acquire", e.Err)
	}
	m.spans.lockWait(ctx, &e)
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
	return m.spans.lockDone(ctx, i, &e)
}

func (m *metrics) holdDone(ctx context.Context, e holdfast.HoldDoneInfo) {
	in := m.groups.Of(&e.Event)
	in.held.Add(-1)
	i := lockmetrics.HoldResult(e.Err)
	m.hold.Record(ctx, e.Held.Seconds(), in.hold[i]...)
	if e.Err != nil {
		m.storeError(ctx, in, "release", e.Err)
	}
	m.spans.holdDone(ctx, i, &e)
}

func (m *metrics) backgroundError(ctx context.Context, e holdfast.BackgroundErrorInfo) {
	m.storeError(ctx, &instruments{attrs: []attribute.KeyValue{m.spans.scheme}}, e.Op, e.Err)
}

// storeError counts err, if it is the store's.
func (m *metrics) storeError(ctx context.Context, in *instruments, op string, err error) {
	if kind := lockmetrics.ErrorType(err); kind != "" {
		m.errors.Add(ctx, 1, metric.WithAttributes(in.attrs...),
			metric.WithAttributes(attribute.String("holdfast.store.operation", op), attribute.String("error.type", kind)))
	}
}
