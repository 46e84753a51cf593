package metrics

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Counters are the counters of one name, by the values of their labels. It is safe for
// concurrent use; NewCounters makes one.
type Counters struct {
	labels []string
	mu     sync.Mutex
	counts map[string]uint64 // by the values, joined
}

// between separates values in keys; none of them has it.
const between = "\x00"

// NewCounters returns Counters with these labels.
func NewCounters(labels ...string) *Counters {
	return &Counters{labels: labels, counts: make(map[string]uint64)}
}

// Add counts one event. It has a value for each label.
func (c *Counters) Add(values ...string) {
	key := strings.Join(values, between)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[key]++
}

// Write writes the series, with more labels before those of c.
func (c *Counters) Write(t *Text, name, help string, more ...string) {
	c.mu.Lock()
	counts := maps.Clone(c.counts)
	c.mu.Unlock()
	t.Family(name, "counter", help)
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		labels := slices.Clone(more)
		for i, value := range strings.SplitN(key, between, len(c.labels)) {
			labels = append(labels, c.labels[i], value)
		}
		t.Sample(name, float64(counts[key]), labels...)
	}
}
