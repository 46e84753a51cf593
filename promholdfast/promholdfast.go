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
	// groups, others count as "_other".
	Group func(name string) string
}

// Metrics is a prometheus.Collector of the events of the clients that have its
// Observer. It is safe for concurrent use.
type Metrics struct {
	wait   *prometheus.HistogramVec
	hold   *prometheus.HistogramVec
	count  *prometheus.Desc
	errors *prometheus.CounterVec
	groups *lockmetrics.Groups[instruments]
}

// instruments are the series of one group and kind. They are looked up once, so
// that events allocate nothing.
type instruments struct {
	group, kind   string
	waiting, held atomic.Int64
	wait          [len(lockmetrics.Waits)]atomic.Pointer[prometheus.Observer]
	hold          [len(lockmetrics.Holds)]atomic.Pointer[prometheus.Observer]
}

// New returns Metrics, to be registered once. It does not block.
func New(o Options) *Metrics {
	constant := prometheus.Labels{"holdfast_store_scheme": o.Scheme}
	lock := []string{"holdfast_lock_group", "holdfast_lock_kind"}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, ConstLabels: constant, Buckets: lockmetrics.Buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
			NativeHistogramMinResetDuration: time.Hour,
		}, append(lock[:2:2], "holdfast_lock_outcome", "error_type"))
	}
	m := &Metrics{
		wait: histogram("holdfast_lock_wait_duration_seconds", "Duration of calls that take a lock."),
		hold: histogram("holdfast_lock_hold_duration_seconds", "Duration of holds."),
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
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
}

// Collect sends the present values.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.groups.Each(func(in *instruments) {
		ch <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(in.waiting.Load()), in.group, in.kind, "waiting")
		ch <- prometheus.MustNewConstMetric(m.count, prometheus.GaugeValue, float64(in.held.Load()), in.group, in.kind, "held")
	})
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.wait, m.hold, m.errors}
}

// Observer returns an Observer for holdfast.WithObserver. Several clients may
// have it.
func (m *Metrics) Observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockStart: m.lockStart, LockWait: m.lockWait, LockDone: m.lockDone,
		HoldDone: m.holdDone, BackgroundError: m.backgroundError,
	}
}

func (m *Metrics) lockStart(_ context.Context, e holdfast.LockStartInfo) context.Context {
	m.groups.Of(&e.Event).waiting.Add(1)
	return nil
}

func (m *Metrics) lockWait(_ context.Context, e holdfast.LockWaitInfo) {
	if e.Err != nil {
		m.storeError(m.groups.Of(&e.Event), "acquire", e.Err)
	}
}

func (m *Metrics) lockDone(_ context.Context, e holdfast.LockDoneInfo) context.Context {
	in := m.groups.Of(&e.Event)
	in.waiting.Add(-1)
	i := lockmetrics.WaitResult(e.Err)
	observe(&in.wait[i], &lockmetrics.Waits[i], m.wait, in, e.Waited)
	if e.Err == nil {
		in.held.Add(1)
	} else {
		m.storeError(in, "acquire", e.Err)
	}
	return nil
}

func (m *Metrics) holdDone(_ context.Context, e holdfast.HoldDoneInfo) {
	in := m.groups.Of(&e.Event)
	in.held.Add(-1)
	i := lockmetrics.HoldResult(e.Err)
	observe(&in.hold[i], &lockmetrics.Holds[i], m.hold, in, e.Held)
	if e.Err != nil {
		m.storeError(in, "release", e.Err)
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

// observe adds a duration to the series of a result, which it creates if
// necessary.
func observe(at *atomic.Pointer[prometheus.Observer], r *lockmetrics.Result, vec *prometheus.HistogramVec, in *instruments, d time.Duration) {
	o := at.Load()
	if o == nil {
		made := vec.WithLabelValues(in.group, in.kind, r.Outcome, r.ErrorType)
		o = &made
		at.Store(o)
	}
	(*o).Observe(d.Seconds())
}
