package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/otelholdfast"
	"github.com/holdfast-go/holdfast/promholdfast"
)

// jobs are the processes of the scene, by the module that reports their locks; the
// last has the Producer of otelholdfast.
var jobs = []string{"promholdfast", "otelholdfast", "otelholdfast-producer"}

// The times of the scene, from its beginning.
const (
	lasts      = 45 * time.Minute
	interval   = 15 * time.Second // between scrapes
	broken     = 5 * time.Minute  // an operator breaks the lock of a process that leads
	stuckFrom  = 8 * time.Minute  // a process that reports nothing keeps a lock
	stuckUntil = 22 * time.Minute
	deadFrom   = 25 * time.Minute // the store does not answer
	deadUntil  = 28 * time.Minute
	maxHold    = 5 * time.Minute
)

// scrape is what an endpoint answered.
type scrape struct {
	job         string
	at          time.Time
	contentType string
	text        []byte
}

// store returns a driver of a store in memory that is dead while dead is set, and that
// refuses names of the group "denied".
func store(s *memlock.Store, dead *atomic.Bool) driver.Driver {
	return faults.Passing(memlock.New(s), func(_ context.Context, r *faults.Request) error {
		switch {
		case dead.Load() && (r.Op == faults.Join || r.Op == faults.Renew || r.Op == faults.Leave):
			return driver.Errorf(driver.Unavailable, "the store is dead")
		case r.Op == faults.Join && r.Ticket.Name == "denied/x":
			return driver.Errorf(driver.Refused, "no rights")
		}
		return nil
	})
}

// reported returns an Observer of a process of the scene, and the endpoint of what it
// reports.
func reported(t *testing.T, job string) (*holdfast.Observer, http.Handler) {
	t.Helper()
	registry := prometheus.NewRegistry()
	endpoint := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	if job == "promholdfast" {
		m := promholdfast.New(promholdfast.Options{Scheme: "memory"})
		registry.MustRegister(m)
		return m.Observer(), endpoint
	}
	produced := otelholdfast.NewProducer(&otelholdfast.Options{Scheme: "memory"})
	opts := []otelprometheus.Option{otelprometheus.WithRegisterer(registry)}
	if job == "otelholdfast-producer" {
		opts = append(opts, otelprometheus.WithProducer(produced))
	}
	reader, err := otelprometheus.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	if job == "otelholdfast-producer" {
		_ = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
		return produced.Observer(), endpoint
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	return otelholdfast.Observer(&otelholdfast.Options{Scheme: "memory", MeterProvider: meters}), endpoint
}

// play plays the scene, and returns the scrapes of all processes in their order.
func play(t *testing.T) []scrape {
	t.Helper()
	var scrapes []scrape
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		memory, dead := memlock.NewStore(), &atomic.Bool{}
		client := func(opts ...holdfast.ClientOption) *holdfast.Client {
			c, err := holdfast.New(store(memory, dead), opts...)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		endpoints := map[string]http.Handler{}
		clients := []*holdfast.Client{client()}
		var all sync.WaitGroup
		for _, job := range jobs {
			observer, endpoint := reported(t, job)
			c := client(holdfast.WithObserver(observer))
			endpoints[job], clients = endpoint, append(clients, c)
			process(ctx, &all, c, job)
		}
		all.Go(func() { disturb(ctx, t, clients[0], dead) })
		for begun := time.Now(); time.Since(begun) < lasts; time.Sleep(interval) {
			for _, job := range jobs {
				page := httptest.NewRecorder()
				endpoints[job].ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				scrapes = append(scrapes, scrape{job, time.Now(), page.Header().Get("Content-Type"), page.Body.Bytes()})
			}
		}
		all.Wait()
		for _, c := range clients {
			_ = c.Close()
		}
	})
	return scrapes
}

// process starts the work of a process, which ends with ctx. Its calls fail as the
// scene wants it, which the metrics tell.
func process(ctx context.Context, all *sync.WaitGroup, locks *holdfast.Client, job string) {
	every := func(pause time.Duration, do func()) {
		all.Go(func() {
			for ctx.Err() == nil {
				do()
				sleep(ctx, pause)
			}
		})
	}
	work := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error { return sleep(ctx, d) }
	}
	for i := range 3 { // nine at one lock
		every(2*time.Second, func() {
			_ = locks.Do(ctx, "invoice/42", work(time.Duration(200+100*i)*time.Millisecond))
		})
	}
	every(21*time.Second, func() { // is refused, mostly
		if hold, err := locks.Mutex("invoice/42").TryLock(ctx); err == nil {
			_ = hold.Unlock()
		}
	})
	every(27*time.Second, func() { // keeps nobody waiting
		if hold, err := locks.Mutex("cache/" + job).TryLock(ctx); err == nil {
			_ = hold.Unlock()
		}
	})
	every(33*time.Second, func() { // gives up, mostly
		_ = locks.Do(ctx, "invoice/42", work(time.Second), holdfast.WithMaxWait(50*time.Millisecond))
	})
	every(time.Minute, func() { _ = locks.Do(ctx, "denied/x", work(time.Second)) })
	every(time.Minute, func() { _ = locks.Do(ctx, "leader/"+job, work(lasts)) }) // loses its lock
	reports := 0
	every(time.Minute, func() { // has more to do each time, until it does not end in time
		reports++
		_ = locks.Do(ctx, "report/"+job, work(time.Duration(reports)*time.Minute), holdfast.WithMaxHold(maxHold))
	})
	all.Go(func() { // waits behind a process that hangs
		sleep(ctx, stuckFrom+time.Minute)
		_ = locks.Do(ctx, "import/all", work(time.Second))
	})
}

// disturb lets the faults of the scene happen.
func disturb(ctx context.Context, t *testing.T, operator *holdfast.Client, dead *atomic.Bool) {
	sleep(ctx, broken)
	for _, job := range jobs {
		seen, err := operator.Inspect(ctx, "leader/"+job)
		if err == nil && len(seen.Holders) != 1 {
			err = fmt.Errorf("%d processes lead", len(seen.Holders))
		}
		if err == nil {
			err = operator.Break(ctx, "leader/"+job, seen.Holders[0].ID)
		}
		if err != nil {
			t.Error(err)
		}
	}
	sleep(ctx, stuckFrom-broken)
	if err := operator.Do(ctx, "import/all", func(ctx context.Context) error {
		return sleep(ctx, stuckUntil-stuckFrom)
	}); err != nil {
		t.Error(err)
	}
	sleep(ctx, deadFrom-stuckUntil)
	dead.Store(true)
	sleep(ctx, deadUntil-deadFrom)
	dead.Store(false)
}

// sleep returns early, with the cause, when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// TestSceneHasEachResult checks that the scene has what its name says, in all
// processes.
func TestSceneHasEachResult(t *testing.T) {
	for _, job := range jobs {
		for _, series := range []string{
			`holdfast_lock_wait_duration_seconds_count{holdfast_lock_outcome="acquired"}`,
			`holdfast_lock_wait_duration_seconds_count{holdfast_lock_outcome="held"}`,
			`holdfast_lock_wait_duration_seconds_count{holdfast_lock_outcome="timed_out"}`,
			`holdfast_lock_wait_duration_seconds_count{holdfast_lock_outcome="failed", error_type="unavailable"}`,
			`holdfast_lock_wait_duration_seconds_count{holdfast_lock_outcome="failed", error_type="refused"}`,
			`holdfast_lock_hold_duration_seconds_count{holdfast_lock_outcome="released"}`,
			`holdfast_lock_hold_duration_seconds_count{holdfast_lock_outcome="lost", error_type="gone"}`,
			`holdfast_lock_hold_duration_seconds_count{holdfast_lock_outcome="lost", error_type="expired"}`,
			`holdfast_lock_hold_duration_seconds_count{holdfast_lock_outcome="lost", error_type="max_hold"}`,
			`holdfast_store_errors_total{holdfast_store_operation="renew", error_type="unavailable"}`,
		} {
			if got := scene(t).evaluate(t, of(t, series, job)); len(got) == 0 {
				t.Errorf("%s: the scene has no %s", job, series)
			}
		}
	}
}
