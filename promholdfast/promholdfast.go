// Package promholdfast counts the events of a client's locks for Prometheus.
//
//	metrics := promholdfast.New(promholdfast.Options{Scheme: "redis"})
//	prometheus.MustRegister(metrics)
//	locks, err := holdfast.New(driver, holdfast.WithObserver(metrics.Observer()))
//
// The metrics, with the names that OpenTelemetry's translation gives those of
// package otelholdfast:
//
//	holdfast_lock_wait_duration_seconds  histogram: how long calls took, by outcome
//	holdfast_lock_hold_duration_seconds  histogram: how long locks were held, by outcome
//	holdfast_lock_count                  gauge: calls that wait, and holds, by state
//	holdfast_store_errors_total          counter: requests that failed, by operation
//
// All have the labels holdfast_lock_group, holdfast_lock_kind and
// holdfast_store_scheme; group and kind are empty for errors of requests about
// several locks. No label has a name, an owner, a token or a host. Histograms
// have buckets from 0.5 ms to 600 s, and native ones for servers that scrape
// them.
package promholdfast

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// Options are the settings of Metrics. The zero value is usable.
type Options struct {
	// Scheme is the value of holdfast_store_scheme: the scheme of the store's
	// URL, such as "redis".
	Scheme string
	// Group returns the group of a lock, from its name. Nil is the part of the
	// name before its first slash, or the whole name without one. After 100
	// groups, others count as "_other". Bytes that are not valid UTF-8,
	// such as part of a letter, become U+FFFD. Group must be safe for concurrent
	// use. A lock for whose name it panics works, and is not counted.
	Group func(name string) string
}

// Metrics is a prometheus.Collector of the events of the clients that have its
// Observer. It is safe for concurrent use.
type Metrics struct {
	wait   *prometheus.Desc
	hold   *prometheus.Desc
	count  *prometheus.Desc
	errors *prometheus.CounterVec
	groups *lockmetrics.Groups[instruments]
}

// instruments are the series of one group and kind. They are looked up once, so
// that events allocate nothing.
type instruments struct {
	group, kind string
	starts      atomic.Uint64
	wait        [len(lockmetrics.Waits)]atomic.Pointer[histogram]
	hold        [len(lockmetrics.Holds)]atomic.Pointer[histogram]
}

// New returns Metrics, to be registered once. It does not block.
func New(o Options) *Metrics {
	constant := prometheus.Labels{"holdfast_store_scheme": o.Scheme}
	lock := []string{"holdfast_lock_group", "holdfast_lock_kind"}
	durations := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(lock[:2:2], "holdfast_lock_outcome", "error_type"), constant)
	}
	m := &Metrics{
		wait: durations("holdfast_lock_wait_duration_seconds", "Duration of calls that take a lock."),
		hold: durations("holdfast_lock_hold_duration_seconds", "Duration of holds."),
		count: prometheus.NewDesc("holdfast_lock_count", "Calls that wait for a lock, and locks held.",
			append(lock[:2:2], "holdfast_lock_state"), constant),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "holdfast_store_errors_total",
			Help: "Requests to the store that failed.", ConstLabels: constant}, append(lock[:2:2], "holdfast_store_operation", "error_type")),
	}
	m.groups = lockmetrics.NewGroups(o.Group, func(group string, kind holdfast.Kind) *instruments {
		return &instruments{group: group, kind: string(kind)}
	})
	return m
}

// Describe sends the descriptions of the metrics.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.count
	ch <- m.wait
	ch <- m.hold
	m.errors.Describe(ch)
}

// Collect sends the present values.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.groups.Each(func(in *instruments) {
		waiting, held := lockmetrics.Unfinished(&in.starts, in.wait[:], in.hold[:], counted)
		ch <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(waiting), in.group, in.kind, "waiting")
		ch <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(held), in.group, in.kind, "held")
		collect := func(desc *prometheus.Desc, h *histogram, r lockmetrics.Result) {
			if h != nil {
				ch <- h.metric(desc, in.group, in.kind, r.Outcome, r.ErrorType)
			}
		}
		for i := range in.wait {
			collect(m.wait, in.wait[i].Load(), lockmetrics.Waits[i])
		}
		for i := range in.hold {
			collect(m.hold, in.hold[i].Load(), lockmetrics.Holds[i])
		}
	})
	m.errors.Collect(ch)
}

// Observer returns an Observer for holdfast.WithObserver. Several clients may
// have it.
func (m *Metrics) Observer() *holdfast.Observer {
	return &holdfast.Observer{ // functions, not methods as values, which would copy each event once more
		LockStart: func(_ context.Context, e holdfast.LockStartInfo) context.Context {
			m.groups.Of(&e.Event).starts.Add(1)
			return nil
		},
		LockWait: func(_ context.Context, e holdfast.LockWaitInfo) {
			if e.Err != nil {
				m.storeError(m.groups.Of(&e.Event), "acquire", e.Err)
			}
		},
		LockDone: func(_ context.Context, e holdfast.LockDoneInfo) context.Context {
			in := m.groups.Of(&e.Event)
			observe(&in.wait[lockmetrics.WaitResult(e.Err)], e.Waited)
			if e.Err != nil {
				m.storeError(in, "acquire", e.Err)
			}
			return nil
		},
		HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
			in := m.groups.Of(&e.Event)
			observe(&in.hold[lockmetrics.HoldResult(e.Err)], e.Held)
			if e.Err != nil {
				m.storeError(in, "release", e.Err)
			}
		},
		BackgroundError: m.backgroundError,
	}
}

func (m *Metrics) backgroundError(_ context.Context, e holdfast.BackgroundErrorInfo) {
	m.storeError(&instruments{}, e.Op, e.Err)
}

// storeError counts err, if it is the store's.
func (m *Metrics) storeError(in *instruments, op string, err error) {
	if kind := lockmetrics.ErrorType(err); kind != "" {
		m.errors.WithLabelValues(in.group, in.kind, op, kind).Inc()
	}
}

// counted returns the number of durations of a result.
func counted(at *atomic.Pointer[histogram]) uint64 {
	if h := at.Load(); h != nil {
		return h.total()
	}
	return 0
}

// observe adds a duration to the histogram of a result, which it creates if necessary.
func observe(at *atomic.Pointer[histogram], d time.Duration) {
	h := at.Load()
	if h == nil {
		at.CompareAndSwap(nil, newHistogram())
		h = at.Load()
	}
	h.Observe(d)
}
