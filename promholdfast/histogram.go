package promholdfast

import (
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// The native buckets of a histogram are those of the client library for a factor of
// 1.1: schema 3, eight for each power of two.
const (
	schema    = 3
	perOctave = 1 << schema
	// maxNative bounds the native buckets of a series that are sent. A histogram with
	// more is sent with wider ones.
	maxNative = 160
	// minOctave is the exponent of the shortest duration, a nanosecond in seconds, by
	// math.Frexp; the longest, of 292 years, has the exponent 34.
	minOctave = -29
	octaves   = 34 - minOctave + 1
)

// within are the bounds of the native buckets between 0.5 and 1.
var within = [perOctave]float64{
	0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
	0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711,
}

// bucket has the indexes of the two buckets of a duration.
type bucket struct{ native, classic int }

var (
	nativeBounds = nativeDurations()
	first        = firstBuckets()
)

// nativeDurations returns the longest duration of each native bucket. A bucket's bound
// is in seconds, so a duration may be in the bucket only by the rounding of its seconds.
func nativeDurations() (longest [octaves * perOctave]time.Duration) {
	for i := range longest {
		bound := math.Ldexp(within[i%perOctave], i/perOctave+minOctave)
		if bound >= time.Duration(math.MaxInt64).Seconds() {
			longest[i] = math.MaxInt64
			continue
		}
		d := time.Duration(bound * float64(time.Second))
		for d.Seconds() > bound {
			d--
		}
		for (d + 1).Seconds() <= bound {
			d++
		}
		longest[i] = d
	}
	return longest
}

// firstBuckets returns the buckets of the shortest duration of each number of bits.
func firstBuckets() (first [64]bucket) {
	for n := range first {
		d, at := time.Duration(1)<<max(n-1, 0), &first[n]
		for d > nativeBounds[at.native] {
			at.native++
		}
		for at.classic < len(lockmetrics.Longest) && d > lockmetrics.Longest[at.classic] {
			at.classic++
		}
	}
	return first
}

// histogram counts durations in the buckets of lockmetrics and in native ones. It is a
// histogram of the client library that costs an event less: a mutex keeps the numbers
// of one duration together, and a native bucket is found without a map. It is safe for
// concurrent use.
type histogram struct {
	since time.Time

	mu      sync.Mutex
	count   uint64
	sum     float64
	zero    uint64                      // durations of no length
	classic []uint64                    // one more than the bounds
	native  [octaves]*[perOctave]uint64 // nil for none
}

func newHistogram() *histogram {
	return &histogram{since: time.Now(), classic: make([]uint64, len(lockmetrics.Buckets)+1)}
}

// Observe counts a duration. It allocates nothing, except for the first of a power of
// two.
func (h *histogram) Observe(d time.Duration) {
	at := first[bits.Len64(uint64(max(d, 0)))]
	// Durations of one length are spread over the buckets of an octave at random, which no
	// processor predicts: so all bounds are subtracted, and the signs are counted.
	for _, longest := range nativeBounds[at.native : at.native+perOctave] {
		at.native += int(uint64(longest-d) >> 63)
	}
	for at.classic < len(lockmetrics.Longest) && d > lockmetrics.Longest[at.classic] {
		at.classic++
	}
	seconds := d.Seconds()
	h.mu.Lock()
	h.count++
	h.sum += seconds
	h.classic[at.classic]++
	if d > 0 {
		octave := &h.native[at.native/perOctave]
		if *octave == nil {
			*octave = new([perOctave]uint64)
		}
		(*octave)[at.native%perOctave]++
	} else {
		h.zero++
	}
	h.mu.Unlock()
}

// total returns the number of durations.
func (h *histogram) total() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// metric returns the present values as a metric.
func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := histogramMetric{buckets: make([]*dto.Bucket, len(lockmetrics.Buckets))}
	var below uint64
	for i, bound := range lockmetrics.Buckets {
		below += h.classic[i]
		m.buckets[i] = &dto.Bucket{CumulativeCount: new(below), UpperBound: new(bound)}
	}
	native, as := h.nativeLocked()
	m.Metric = prometheus.MustNewConstNativeHistogram(desc, h.count, h.sum, native, nil, h.zero, as,
		prometheus.DefNativeHistogramZeroThreshold, h.since, labels...)
	return m
}

// nativeLocked returns the native buckets and their schema.
func (h *histogram) nativeLocked() (buckets map[int]int64, as int32) {
	buckets, as = make(map[int]int64), schema
	for octave, counts := range h.native {
		if counts == nil {
			continue
		}
		for i, n := range counts {
			if n > 0 {
				buckets[(octave+minOctave-1)*perOctave+i] += int64(n)
			}
		}
	}
	for len(buckets) > maxNative {
		wider := make(map[int]int64)
		for i, n := range buckets {
			wider[(i+1)>>1] += n
		}
		buckets, as = wider, as-1
	}
	return buckets, as
}

// histogramMetric is a native histogram that has the buckets of lockmetrics as well.
type histogramMetric struct {
	prometheus.Metric
	buckets []*dto.Bucket
}

// Write implements [prometheus.Metric].
func (m histogramMetric) Write(out *dto.Metric) error {
	if err := m.Metric.Write(out); err != nil {
		return err
	}
	out.Histogram.Bucket = m.buckets
	return nil
}
