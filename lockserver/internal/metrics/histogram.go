package metrics

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// Histogram counts durations. It is safe for concurrent use, and its zero value is
// empty.
type Histogram struct{ lockmetrics.Histogram }

// Write writes the series of h. A histogram that nothing was observed in has none.
func (h *Histogram) Write(t *Text, name string, labels ...string) {
	writeHistogram(&h.Histogram, t, name, labels...)
}

func writeHistogram(h *lockmetrics.Histogram, t *Text, name string, labels ...string) {
	d := h.Distribution()
	if d.Count == 0 {
		return
	}
	with := append(slices.Clone(labels), "le", "")
	var below uint64
	for i, bound := range lockmetrics.Buckets {
		below += d.Counts[i]
		with[len(with)-1] = number(bound)
		t.Sample(name+"_bucket", float64(below), with...)
	}
	with[len(with)-1] = "+Inf"
	t.Sample(name+"_bucket", float64(d.Count), with...)
	t.Sample(name+"_sum", d.Sum, labels...)
	t.Sample(name+"_count", float64(d.Count), labels...)
}
