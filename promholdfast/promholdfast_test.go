package promholdfast_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/lockserver"
	"github.com/holdfast-go/holdfast/memlock"
	"github.com/holdfast-go/holdfast/promholdfast"
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

// TestMetrics checks the series of a grant, a refusal, a wait that ends and a
// loss, and that the gauges return to zero.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promholdfast.New(promholdfast.Options{Scheme: "memory"})
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		s := memlock.NewStore()
		c, other := locks(t, s, holdfast.WithObserver(m.Observer())), locks(t, s)
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
		want := func(state string, n int) string {
			return fmt.Sprintf("holdfast_lock_count{holdfast_lock_group=\"invoice\",holdfast_lock_kind=\"mutex\",holdfast_lock_state=%q,holdfast_store_scheme=\"memory\"} %d\n", state, n)
		}
		head := "# HELP holdfast_lock_count Calls that wait for a lock, and locks held.\n# TYPE holdfast_lock_count gauge\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(head+want("held", 1)+want("waiting", 0)), "holdfast_lock_count"); err != nil {
			t.Error(err)
		}
		l, err := other.Inspect(bg, "invoice/42")
		if err == nil {
			err = other.Break(bg, "invoice/42", l.Holders[0].ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = h.Unlock()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(head+want("held", 0)+want("waiting", 0)), "holdfast_lock_count"); err != nil {
			t.Error(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]uint64{}
		for _, f := range families {
			for _, series := range f.GetMetric() {
				var outcome string
				for _, l := range series.GetLabel() {
					if n := l.GetName(); n == "holdfast_lock_outcome" || n == "error_type" {
						outcome += " " + l.GetValue()
					}
				}
				seen[f.GetName()+outcome] += series.GetHistogram().GetSampleCount()
			}
		}
		for _, name := range []string{"holdfast_lock_wait_duration_seconds  acquired", "holdfast_lock_wait_duration_seconds  held",
			"holdfast_lock_wait_duration_seconds  timed_out", "holdfast_lock_hold_duration_seconds gone lost"} {
			if seen[name] != 1 {
				t.Errorf("%s: %d, want 1; all: %v", name, seen[name], seen)
			}
		}
		problems, err := testutil.GatherAndLint(registry)
		if err != nil || len(problems) != 1 || problems[0].Metric != "holdfast_lock_count" { // OpenTelemetry's name for a number of things
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// TestGroups checks that groups beyond the hundredth are one.
func TestGroups(t *testing.T) {
	m := promholdfast.New(promholdfast.Options{})
	c := locks(t, memlock.NewStore(), holdfast.WithObserver(m.Observer()))
	for i := range 150 {
		if err := c.Do(bg, fmt.Sprintf("group%d/name", i), func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := testutil.CollectAndCount(m, "holdfast_lock_hold_duration_seconds"); n != 101 {
		t.Errorf("%d groups, want 101", n)
	}
}

// TestGroupsOfAnyBytes checks that a Group which cuts names within a letter breaks no
// scrape: U+FFFD stands for what is not valid UTF-8, and one text is one series.
func TestGroupsOfAnyBytes(t *testing.T) {
	m := promholdfast.New(promholdfast.Options{Scheme: "memory", Group: func(name string) string { return name[:min(len(name), 8)] }})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	c := locks(t, memlock.NewStore(), holdfast.WithObserver(m.Observer()))
	for _, name := range []string{"bestellé", "bestellè", "bestellà/1", "commande"} {
		if err := c.Do(bg, name, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	const want = `# HELP holdfast_lock_count Calls that wait for a lock, and locks held.
# TYPE holdfast_lock_count gauge
holdfast_lock_count{holdfast_lock_group="bestell\ufffd",holdfast_lock_kind="mutex",holdfast_lock_state="held",holdfast_store_scheme="memory"} 0
holdfast_lock_count{holdfast_lock_group="bestell\ufffd",holdfast_lock_kind="mutex",holdfast_lock_state="waiting",holdfast_store_scheme="memory"} 0
holdfast_lock_count{holdfast_lock_group="commande",holdfast_lock_kind="mutex",holdfast_lock_state="held",holdfast_store_scheme="memory"} 0
holdfast_lock_count{holdfast_lock_group="commande",holdfast_lock_kind="mutex",holdfast_lock_state="waiting",holdfast_store_scheme="memory"} 0
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(strings.ReplaceAll(want, `\ufffd`, "\ufffd")), "holdfast_lock_count"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(m, "holdfast_lock_hold_duration_seconds"); n != 2 {
		t.Errorf("%d groups, want 2", n)
	}
}

// TestGroupThatPanics checks that the locks for which a Group panics work and are not
// counted, and that the others are.
func TestGroupThatPanics(t *testing.T) {
	m := promholdfast.New(promholdfast.Options{Group: func(name string) string { return strings.SplitN(name, "/", 2)[1] }})
	c := locks(t, memlock.NewStore(), holdfast.WithObserver(m.Observer()))
	ran := 0
	for _, name := range []string{"a/b", "bad", "a/b", "bad", "x/c"} {
		if err := c.Do(bg, name, func(context.Context) error { ran++; return nil }); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Mutex("bad").TryLock(bg); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(m, "holdfast_lock_hold_duration_seconds"); n != 2 || ran != 5 {
		t.Errorf("%d groups, want 2; %d functions ran, want 5", n, ran)
	}
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

// TestMetricsAllocateNothing checks that metrics add no allocation to a lock.
func TestMetricsAllocateNothing(t *testing.T) {
	m := promholdfast.New(promholdfast.Options{})
	without := testing.AllocsPerRun(500, cycle(t, locks(t, memlock.NewStore())))
	with := testing.AllocsPerRun(500, cycle(t, locks(t, memlock.NewStore(), holdfast.WithObserver(m.Observer()))))
	if with > without {
		t.Errorf("%v allocations with metrics, %v without", with, without)
	}
}

// BenchmarkLock measures an uncontended Lock and Unlock in memory. The
// difference is the price of metrics.
func BenchmarkLock(b *testing.B) {
	m := promholdfast.New(promholdfast.Options{})
	for name, opts := range map[string][]holdfast.ClientOption{"without": nil, "with": {holdfast.WithObserver(m.Observer())}} {
		b.Run(name, func(b *testing.B) {
			run := cycle(b, locks(b, memlock.NewStore(), opts...))
			for b.Loop() {
				run()
			}
		})
	}
}

// BenchmarkEvents measures the events of one uncontended lock alone.
func BenchmarkEvents(b *testing.B) {
	event := events(promholdfast.New(promholdfast.Options{}).Observer())
	b.ReportAllocs()
	for b.Loop() {
		event()
	}
}

// events returns a function that sends an Observer the events of one uncontended lock.
func events(o *holdfast.Observer) func() {
	e := holdfast.Event{Name: "invoice/42", Kind: holdfast.KindMutex, Units: 1}
	return func() {
		o.LockStart(bg, holdfast.LockStartInfo{Event: e})
		o.LockDone(bg, holdfast.LockDoneInfo{Event: e, Token: 1, Waited: time.Millisecond})
		o.HoldDone(bg, holdfast.HoldDoneInfo{Event: e, Token: 1, Held: time.Millisecond})
	}
}

// TestLockServersUseTheSameMetrics checks that the metrics that a lock server writes
// without a client library are in the format, and that those of locks have the names,
// types and help of this package's.
func TestLockServersUseTheSameMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := promholdfast.New(promholdfast.Options{Scheme: "memory"}), lockserver.NewMetrics()
		c := locks(t, memlock.NewStore(), holdfast.WithObserver(ours.Observer()), holdfast.WithObserver(theirs.Observer()))
		if _, err := lockserver.New(c, lockserver.Options{Metrics: theirs}); err != nil {
			t.Fatal(err)
		}
		hold, err := c.Mutex("a").Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		if err := hold.Unlock(); err != nil {
			t.Fatal(err)
		}
		page := httptest.NewRecorder()
		theirs.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		text := page.Body.String()
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool { return p.Metric == "holdfast_lock_count" }) // OpenTelemetry's name
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(ours)
		families, err := registry.Gather()
		if err != nil || len(families) == 0 {
			t.Fatal(families, err)
		}
		for _, f := range families {
			head := fmt.Sprintf("# HELP %s %s\n# TYPE %[1]s %[3]s\n", f.GetName(), f.GetHelp(), strings.ToLower(f.GetType().String()))
			if !strings.Contains(text, head) {
				t.Errorf("the server's page has no\n%s", head)
			}
		}
	})
}
