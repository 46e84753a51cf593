package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// buckets are the upper bounds of durations, in seconds; the last bucket has none.
var buckets = lockmetrics.Buckets

// Histogram counts durations. It is safe for concurrent use; NewHistogram makes one.
type Histogram struct {
	counts []atomic.Uint64 // one more than buckets
	sum    atomic.Int64    // nanoseconds
}

// NewHistogram returns an empty Histogram.
func NewHistogram() *Histogram { return &Histogram{counts: make([]atomic.Uint64, len(buckets)+1)} }

// Observe counts a duration.
func (h *Histogram) Observe(d time.Duration) {
	i, _ := slices.BinarySearch(buckets, d.Seconds())
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Write writes the series of h. A histogram that nothing was observed in has none.
func (h *Histogram) Write(t *Text, name string, labels ...string) {
	var total uint64
	with := append(slices.Clone(labels), "le", "+Inf")
	counts := make([]uint64, len(h.counts))
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
		total += counts[i]
	}
	if total == 0 {
		return
	}
	sum := time.Duration(h.sum.Load()).Seconds()
	var below uint64
	for i, bound := range buckets {
		below += counts[i]
		with[len(with)-1] = number(bound)
		t.Sample(name+"_bucket", float64(below), with...)
	}
	with[len(with)-1] = "+Inf"
	t.Sample(name+"_bucket", float64(total), with...)
	t.Sample(name+"_sum", sum, labels...)
	t.Sample(name+"_count", float64(total), labels...)
}
