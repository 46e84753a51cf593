package otelholdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/otelholdfast"
)

// dying returns a store in memory that is dead while dead is set, and that has no rights
// to "denied".
func dying(s *memlock.Store, dead *atomic.Bool) driver.Driver {
	return faults.Passing(memlock.New(s), func(_ context.Context, r *faults.Request) error {
		switch {
		case r.Op == faults.Join && r.Ticket.Name == "denied":
			return driver.Errorf(driver.Refused, "no rights")
		case dead.Load() && (r.Op == faults.Join || r.Op == faults.Renew || r.Op == faults.Leave):
			return driver.Errorf(driver.Unavailable, "the store is dead")
		}
		return nil
	})
}

// scene has events of each kind at a client, which has the Observer o: grants at once
// and after waits of fake time, refusals, waits that end, losses, and errors of the
// store in calls, releases and the background.
func scene(t *testing.T, opts ...holdfast.ClientOption) {
	t.Helper()
	s := memlock.NewStore()
	var dead atomic.Bool
	c, err := holdfast.New(dying(s, &dead), opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	other := locks(t, s)
	work := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-time.After(d):
			case <-ctx.Done():
			}
			return nil
		}
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { _ = c.Do(bg, fmt.Sprintf("invoice/%d", i%3), work(time.Duration(i*i)*700*time.Microsecond)) })
	}
	all.Wait()
	for i := range 3 {
		_ = c.Do(bg, fmt.Sprintf("group%d", i), work(0))
	}
	sem, rw := c.Semaphore("pool/a", 3), c.RWMutex("index")
	_ = sem.Do(bg, 2, work(time.Second))
	_ = rw.RDo(bg, work(time.Minute))
	_ = rw.Do(bg, work(time.Hour))
	_ = c.Do(bg, "report", work(time.Hour), holdfast.WithMaxHold(time.Second))
	_ = c.Do(bg, "denied", work(0))
	held, err := other.Mutex("held").Lock(bg)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Mutex("held").TryLock(bg)
	_ = c.Do(bg, "held", work(0), holdfast.WithMaxWait(3*time.Second))
	if err := held.Unlock(); err != nil {
		t.Fatal(err)
	}
	lost, err := c.Mutex("lost").Lock(bg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Mutex("kept").Lock(bg); err != nil { // held to the end
		t.Fatal(err)
	}
	dead.Store(true)
	_ = c.Do(bg, "dead", work(0), holdfast.WithMaxWait(time.Second))
	time.Sleep(time.Minute)
	if err := lost.Unlock(); !errors.Is(err, holdfast.ErrLost) {
		t.Error(err)
	}
	dead.Store(false)
	if _, err := c.Mutex("kept").Lock(bg); err != nil {
		t.Fatal(err)
	}
}

// collected returns the data of a reader.
func collected(t *testing.T, r *sdkmetric.ManualReader) metricdata.ResourceMetrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(bg, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestGroupsOfAnyBytes checks that no attribute has text that is not valid UTF-8, which
// an exporter would refuse together with all the rest, where a Group cuts names within a
// letter. A Group that panics harms no call.
func TestGroupsOfAnyBytes(t *testing.T) {
	instruments := sdkmetric.NewManualReader()
	o := otelholdfast.Options{
		Scheme: "memory", MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(instruments)),
		Group: func(name string) string { return name[:8] },
	}
	p := otelholdfast.NewProducer(&o)
	produced := sdkmetric.NewManualReader(sdkmetric.WithProducer(p))
	_ = sdkmetric.NewMeterProvider(sdkmetric.WithReader(produced))
	c := locks(t, memlock.NewStore(), holdfast.WithObserver(otelholdfast.Observer(&o)), holdfast.WithObserver(p.Observer()))
	for _, name := range []string{"bestellé", "bestellè", "short"} {
		if err := c.Do(bg, name, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for reader, r := range map[string]*sdkmetric.ManualReader{"instruments": instruments, "producer": produced} {
		counted := int64(0)
		for name, n := range series(t, r) {
			if !utf8.ValidString(name) {
				t.Errorf("%s: %q", reader, name)
			}
			if strings.HasPrefix(name, "holdfast.lock.hold.duration ") && strings.Contains(name, "holdfast.lock.group=bestell\ufffd ") {
				counted += n
			}
		}
		if counted != 2 {
			t.Errorf("%s: %d holds, want 2", reader, counted)
		}
	}
}

// TestProducerHasTheDataOfTheInstruments compares what both report of one scene, but for
// times and exemplars: names, units, descriptions, attributes, buckets and values.
func TestProducerHasTheDataOfTheInstruments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instruments := sdkmetric.NewManualReader()
		o := otelholdfast.Options{Scheme: "memory", MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(instruments))}
		p := otelholdfast.NewProducer(&o)
		produced := sdkmetric.NewManualReader(sdkmetric.WithProducer(p))
		_ = sdkmetric.NewMeterProvider(sdkmetric.WithReader(produced))
		if all := collected(t, produced); len(all.ScopeMetrics) > 0 {
			t.Errorf("before all events: %v", all)
		}
		begun := time.Now()
		time.Sleep(time.Second)
		scene(t, holdfast.WithObserver(otelholdfast.Observer(&o)), holdfast.WithObserver(p.Observer()))
		want, got := collected(t, instruments), collected(t, produced)
		want.Resource, got.Resource = nil, nil
		metricdatatest.AssertEqual(t, want, got, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars())
		if n := len(series(t, instruments)); n < 30 {
			t.Errorf("the scene has only %d series", n)
		}
		for _, m := range got.ScopeMetrics[0].Metrics {
			if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
				for _, point := range data.DataPoints {
					if !point.StartTime.Equal(begun) || !point.Time.Equal(time.Now()) {
						t.Errorf("%s lasts from %v to %v", m.Name, point.StartTime, point.Time)
					}
				}
			}
		}
	})
}

// TestProducerMakesSpans checks that a Producer's Observer makes the spans of the
// package's Observer.
func TestProducerMakesSpans(t *testing.T) {
	spansOf := func(observer func(*otelholdfast.Options) *holdfast.Observer) (got []string) {
		synctest.Test(t, func(t *testing.T) {
			recorded := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorded))
			s := memlock.NewStore()
			c := locks(t, s, holdfast.WithObserver(observer(&otelholdfast.Options{Scheme: "memory", TracerProvider: tracer})))
			h, err := locks(t, s).Mutex("invoice/42").Lock(bg)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() { _ = h.Unlock() })
			ctx, request := tracer.Tracer("").Start(bg, "request")
			defer request.End()
			if err := c.Do(ctx, "invoice/42", func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			for _, span := range recorded.Ended() {
				got = append(got, fmt.Sprint(span.Name(), span.Attributes()))
				for _, e := range span.Events() {
					got = append(got, fmt.Sprint(e.Name, e.Attributes))
				}
			}
		})
		return got
	}
	want := spansOf(otelholdfast.Observer)
	got := spansOf(func(o *otelholdfast.Options) *holdfast.Observer { return otelholdfast.NewProducer(o).Observer() })
	if len(want) != 3 || fmt.Sprint(want) != fmt.Sprint(got) {
		t.Errorf("the Producer has\n%q, want\n%q", got, want)
	}
}

// TestProducerAllocatesNothing checks that the events of an uncontended lock allocate
// nothing, and that a lock has no allocation more.
func TestProducerAllocatesNothing(t *testing.T) {
	o := otelholdfast.NewProducer(nil).Observer()
	if n := testing.AllocsPerRun(500, events(o)); n != 0 {
		t.Errorf("%v allocations", n)
	}
	without := testing.AllocsPerRun(500, cycle(t, locks(t, memlock.NewStore())))
	with := testing.AllocsPerRun(500, cycle(t, locks(t, memlock.NewStore(), holdfast.WithObserver(o))))
	if with > without {
		t.Errorf("%v allocations with metrics, %v without", with, without)
	}
}

// TestProducerOfManyGoroutines checks that no event is missing, and that a distribution
// read meanwhile has the count of its buckets.
func TestProducerOfManyGoroutines(t *testing.T) {
	p := otelholdfast.NewProducer(nil)
	const goroutines, each = 8, 2_000
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			event := events(p.Observer())
			for range each {
				event()
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	for last := false; !last; {
		select {
		case <-ended:
			last = true
		default:
		}
		scopes, err := p.Produce(bg)
		if err != nil {
			t.Fatal(err)
		}
		for _, scope := range scopes {
			for _, m := range scope.Metrics {
				data, ok := m.Data.(metricdata.Histogram[float64])
				if !ok {
					continue
				}
				var sum uint64
				for _, n := range data.DataPoints[0].BucketCounts {
					sum += n
				}
				if n := data.DataPoints[0].Count; sum != n || last && n != goroutines*each {
					t.Fatalf("%s: %d in the buckets, count %d", m.Name, sum, n)
				}
			}
		}
	}
}

// events returns the events of one uncontended lock.
func events(o *holdfast.Observer) func() {
	e := holdfast.Event{Name: "invoice/42", Kind: holdfast.KindMutex, Units: 1}
	return func() {
		o.LockStart(bg, holdfast.LockStartInfo{Event: e})
		o.LockDone(bg, holdfast.LockDoneInfo{Event: e, Token: 1, Waited: time.Millisecond})
		o.HoldDone(bg, holdfast.HoldDoneInfo{Event: e, Token: 1, Held: time.Millisecond})
	}
}
