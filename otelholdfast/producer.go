package otelholdfast

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// Producer counts the events of locks itself, and hands the result to the readers of
// the SDK that have it as their metric.WithProducer. Its data are those of the
// instruments of the package's Observer, cumulative since NewProducer, for less time at
// each lock. Views, exemplars, and a reader's choice of temporality and aggregation
// have no effect on them. It is safe for concurrent use.
type Producer struct {
	spans   *tracing
	counted *lockmetrics.Aggregate
	since   time.Time
}

// NewProducer returns a Producer. The MeterProvider of the Options has no effect on it.
// It does not block.
func NewProducer(o *Options) *Producer {
	if o == nil {
		o = &Options{}
	}
	return &Producer{spans: newTracing(o), counted: lockmetrics.NewAggregate(o.Group), since: time.Now()}
}

// Observer returns an Observer for holdfast.WithObserver, which counts, and makes the
// spans of the package's Observer. Several clients may have it.
func (p *Producer) Observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockStart: func(ctx context.Context, e holdfast.LockStartInfo) context.Context {
			return p.spans.lockStart(ctx, p.counted.LockStart(&e).Group, &e)
		},
		LockWait: func(ctx context.Context, e holdfast.LockWaitInfo) {
			p.counted.LockWait(&e)
			p.spans.lockWait(ctx, &e)
		},
		LockDone: func(ctx context.Context, e holdfast.LockDoneInfo) context.Context {
			_, result := p.counted.LockDone(&e)
			return p.spans.lockDone(ctx, result, &e)
		},
		HoldDone: func(ctx context.Context, e holdfast.HoldDoneInfo) {
			p.spans.holdDone(ctx, p.counted.HoldDone(&e), &e)
		},
		BackgroundError: func(_ context.Context, e holdfast.BackgroundErrorInfo) { p.counted.BackgroundError(&e) },
	}
}

// Produce returns the present values, for a reader of the SDK. It does not block.
func (p *Producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	var wait, hold []metricdata.HistogramDataPoint[float64]
	var count, failed []metricdata.DataPoint[int64]
	number := func(n int64, attrs ...attribute.KeyValue) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{Attributes: attribute.NewSet(attrs...), StartTime: p.since, Time: now, Value: n}
	}
	p.counted.Each(func(s *lockmetrics.Series) {
		attrs := p.attributes(s.Group, s.Kind)
		state := func(state string) []attribute.KeyValue {
			return append(attrs[:3:3], attribute.String("holdfast.lock.state", state))
		}
		waiting, held := s.Now()
		count = append(count, number(waiting, state("waiting")...), number(held, state("held")...))
		for i := range s.Wait {
			wait = p.appendDurations(wait, now, &s.Wait[i], resultAttributes(attrs, lockmetrics.Waits[i]))
		}
		for i := range s.Hold {
			hold = p.appendDurations(hold, now, &s.Hold[i], resultAttributes(attrs, lockmetrics.Holds[i]))
		}
	})
	for of, n := range p.counted.Errors() {
		attrs := []attribute.KeyValue{p.spans.scheme}
		if of.Kind != "" {
			attrs = p.attributes(of.Group, of.Kind)
		}
		failed = append(failed, number(int64(n), append(attrs,
			attribute.String("holdfast.store.operation", of.Operation), attribute.String("error.type", of.Type))...))
	}
	all := []metricdata.Metrics{
		waitDuration.of(metricdata.Histogram[float64]{DataPoints: wait, Temporality: metricdata.CumulativeTemporality}, len(wait)),
		holdDuration.of(metricdata.Histogram[float64]{DataPoints: hold, Temporality: metricdata.CumulativeTemporality}, len(hold)),
		lockCount.of(metricdata.Sum[int64]{DataPoints: count, Temporality: metricdata.CumulativeTemporality}, len(count)),
		storeErrors.of(metricdata.Sum[int64]{DataPoints: failed, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}, len(failed)),
	}
	all = slices.DeleteFunc(all, func(m metricdata.Metrics) bool { return m.Data == nil })
	if len(all) == 0 {
		return nil, nil
	}
	return []metricdata.ScopeMetrics{{Scope: instrumentation.Scope{Name: scope}, Metrics: all}}, nil
}

// attributes returns the attributes that all metrics of a group and kind have.
func (p *Producer) attributes(group string, kind holdfast.Kind) []attribute.KeyValue {
	return lockAttributes(p.spans.scheme, group, kind)
}

// appendDurations appends the data of a histogram that has counted something.
func (p *Producer) appendDurations(points []metricdata.HistogramDataPoint[float64], now time.Time, h *lockmetrics.Histogram, attrs []attribute.KeyValue) []metricdata.HistogramDataPoint[float64] {
	d := h.Distribution()
	if d.Count == 0 {
		return points
	}
	return append(points, metricdata.HistogramDataPoint[float64]{
		Attributes: attribute.NewSet(attrs...), StartTime: p.since, Time: now,
		Count: d.Count, Bounds: slices.Clone(lockmetrics.Buckets), BucketCounts: d.Counts,
		Sum: d.Sum, Min: metricdata.NewExtrema(d.Min), Max: metricdata.NewExtrema(d.Max),
	})
}

// of returns an instrument with data, of n points. Without any it has no data, as the
// SDK reports no instrument without points.
func (i instrument) of(data metricdata.Aggregation, n int) metricdata.Metrics {
	if n == 0 {
		data = nil
	}
	return metricdata.Metrics{Name: i.name, Description: i.description, Unit: i.unit, Data: data}
}
