package lockmetrics

import (
	"sync"
	"time"
)

// Histogram counts durations in Buckets. It is safe for concurrent use, and its zero
// value is empty. A mutex keeps its numbers together: the count, the sum and the
// buckets of a Distribution are those of the same durations.
type Histogram struct {
	mu sync.Mutex
	d  distribution
}

// distribution keeps the numbers of a Histogram.
type distribution struct {
	counts        [len(bounds) + 1]uint64
	count         uint64
	sum, min, max float64
}

// Distribution has the numbers of a Histogram, in seconds.
type Distribution struct {
	Counts        []uint64 // one more than Buckets: the last bucket has no bound
	Count         uint64
	Sum, Min, Max float64
}

// Observe counts a duration. It allocates nothing.
func (h *Histogram) Observe(d time.Duration) {
	i := 0 // most durations are short
	for i < len(Longest) && d > Longest[i] {
		i++
	}
	seconds := d.Seconds()
	h.mu.Lock()
	if h.d.count == 0 || seconds < h.d.min {
		h.d.min = seconds
	}
	h.d.max = max(h.d.max, seconds)
	h.d.sum += seconds
	h.d.counts[i]++
	h.d.count++
	h.mu.Unlock()
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.d.count
}

// Distribution returns what was counted.
func (h *Histogram) Distribution() Distribution {
	h.mu.Lock()
	d := h.d
	h.mu.Unlock()
	return Distribution{Counts: d.counts[:], Count: d.count, Sum: d.sum, Min: d.min, Max: d.max}
}
