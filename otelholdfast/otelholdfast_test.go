package otelholdfast_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

var bg = context.Background()

func locks(tb testing.TB, s *memlock.Store, opts ...holdfast.ClientOption) *holdfast.Client {
	tb.Helper()
	c, err := holdfast.New(memlock.New(s), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// series returns the series of a reader: the value, or the count of a histogram.
func series(t *testing.T, r *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(bg, &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	show := func(m metricdata.Metrics, set attribute.Set) string {
		var parts []string
		for _, kv := range set.ToSlice() {
			parts = append(parts, string(kv.Key)+"="+kv.Value.String())
		}
		return m.Name + " " + m.Unit + " " + strings.Join(parts, " ")
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[show(m, p.Attributes)] = int64(p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[show(m, p.Attributes)] = p.Value
				}
			}
		}
	}
	return got
}

// TestMetrics checks the series of a grant, a refusal, a wait that ends and a
// loss, and that the counters of states return to zero.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		o := otelholdfast.Observer(&otelholdfast.Options{Scheme: "memory", MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		s := memlock.NewStore()
		c, other := locks(t, s, holdfast.WithObserver(o)), locks(t, s)
		h, err := c.Mutex("invoice/42").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, err := c.Mutex("invoice/42").Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := c.Mutex("invoice/42").TryLock(bg); !errors.Is(err, holdfast.ErrHeld) {
			t.Error(err)
		}
		const lock = "holdfast.lock.group=invoice holdfast.lock.kind=mutex"
		const tail = " holdfast.store.scheme=memory"
		want := map[string]int64{
			"holdfast.lock.count {lock} " + lock + " holdfast.lock.state=held" + tail:           1,
			"holdfast.lock.count {lock} " + lock + " holdfast.lock.state=waiting" + tail:        0,
			"holdfast.lock.wait.duration s " + lock + " holdfast.lock.outcome=acquired" + tail:  1,
			"holdfast.lock.wait.duration s " + lock + " holdfast.lock.outcome=held" + tail:      1,
			"holdfast.lock.wait.duration s " + lock + " holdfast.lock.outcome=timed_out" + tail: 1,
		}
		compare(t, series(t, reader), want)
		l, err := other.Inspect(bg, "invoice/42")
		if err == nil {
			err = other.Break(bg, "invoice/42", l.Holders[0].ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = h.Unlock()
		want["holdfast.lock.count {lock} "+lock+" holdfast.lock.state=held"+tail] = 0
		want["holdfast.lock.hold.duration s error.type=gone "+lock+" holdfast.lock.outcome=lost"+tail] = 1
		compare(t, series(t, reader), want)
	})
}

func compare(t *testing.T, got, want map[string]int64) {
	t.Helper()
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d, want %d", name, got[name], n)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: not wanted", name)
		}
	}
}

// TestSpans checks the spans of a call that waits: the hold is the work's
// parent, and a sibling of the lock's span.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := tracetest.NewSpanRecorder()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorded))
		o := otelholdfast.Observer(&otelholdfast.Options{TracerProvider: tracer})
		s := memlock.NewStore()
		c := locks(t, s, holdfast.WithObserver(o))
		h, err := locks(t, s).Mutex("invoice/42").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = h.Unlock() })
		ctx, request := tracer.Tracer("").Start(bg, "request")
		err = c.Do(ctx, "invoice/42", func(ctx context.Context) error {
			_, work := tracer.Tracer("").Start(ctx, "work")
			defer work.End()
			return nil
		})
		request.End()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Do(bg, "invoice/42", func(context.Context) error { return nil }); err != nil { // without a recorded span
			t.Fatal(err)
		}
		names, parents := map[string]string{}, map[string]string{}
		var got []string
		for _, span := range recorded.Ended() {
			names[span.SpanContext().SpanID().String()] = span.Name()
			parents[span.Name()] = span.Parent().SpanID().String()
			got = append(got, span.Name())
			for _, e := range span.Events() {
				got = append(got, fmt.Sprint(e.Name, " ", len(e.Attributes)))
			}
		}
		if want := []string{"lock invoice", "wait 2", "work", "hold invoice", "request"}; !slices.Equal(got, want) {
			t.Fatalf("%q", got)
		}
		for name, parent := range map[string]string{"lock invoice": "request", "hold invoice": "request", "work": "hold invoice"} {
			if got := names[parents[name]]; got != parent {
				t.Errorf("the parent of %q is %q, want %q", name, got, parent)
			}
		}
	})
}

func cycle(tb testing.TB, c *holdfast.Client) func() {
	m := c.Mutex("invoice/42")
	return func() {
		h, err := m.Lock(bg)
		if err == nil {
			err = h.Unlock()
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func observer() *holdfast.Observer {
	return otelholdfast.Observer(&otelholdfast.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))})
}

// TestMetricsAllocateNothing checks that metrics add no allocation to a lock.
func TestMetricsAllocateNothing(t *testing.T) {
	without := testing.AllocsPerRun(500, cycle(t, locks(t, memlock.NewStore())))
	with := testing.AllocsPerRun(500, cycle(t, locks(t, memlock.NewStore(), holdfast.WithObserver(observer()))))
	if with > without {
		t.Errorf("%v allocations with metrics, %v without", with, without)
	}
}

// BenchmarkEvents measures the events of one uncontended lock alone, by the way in
// which they are counted.
func BenchmarkEvents(b *testing.B) {
	for name, o := range map[string]*holdfast.Observer{"instruments": observer(), "producer": otelholdfast.NewProducer(nil).Observer()} {
		b.Run(name, func(b *testing.B) {
			run := events(o)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// BenchmarkRecords measures what OpenTelemetry takes for the two durations of one
// uncontended lock, without any work of this package.
func BenchmarkRecords(b *testing.B) {
	h, err := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter("x").Float64Histogram("x")
	if err != nil {
		b.Fatal(err)
	}
	attrs := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(
		attribute.String("holdfast.lock.group", "invoice"), attribute.String("holdfast.lock.kind", "mutex"),
		attribute.String("holdfast.lock.outcome", "acquired"), attribute.String("holdfast.store.scheme", "redis")))}
	b.ReportAllocs()
	for b.Loop() {
		h.Record(bg, .001, attrs...)
		h.Record(bg, .001, attrs...)
	}
}
