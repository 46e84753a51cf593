package promholdfast

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/lockmetrics"
)

// TestHistogramIsTheClients checks that a histogram sends what one of the client
// library does, for durations of all lengths and on the bounds of its buckets, and that
// one with more buckets than are sent keeps every duration in wider ones.
func TestHistogramIsTheClients(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	random := func(n int, length func() time.Duration) (ds []time.Duration) {
		for range n {
			ds = append(ds, length())
		}
		return ds
	}
	edges := []time.Duration{0, 0, 1, 2, 1<<63 - 1, time.Second, time.Second / 2, time.Second / 4, 64 * time.Second}
	for _, bound := range lockmetrics.Buckets {
		d := time.Duration(bound * float64(time.Second))
		edges = append(edges, d-1, d, d+1)
	}
	for name, c := range map[string]struct {
		durations []time.Duration
		wider     bool
	}{
		"none":        {},
		"edges":       {durations: edges},
		"short ones":  {durations: random(2000, func() time.Duration { return time.Duration(rnd.Int64N(int64(time.Millisecond))) })},
		"long ones":   {durations: random(2000, func() time.Duration { return time.Millisecond + time.Duration(rnd.Int64N(int64(10*time.Minute))) })},
		"all lengths": {durations: random(20000, func() time.Duration { return time.Duration(17) << rnd.IntN(58) / 16 }), wider: true},
		"all buckets": {durations: random(50000, func() time.Duration { return time.Duration(rnd.Int64N(2 << rnd.IntN(61))) }), wider: true},
	} {
		t.Run(name, func(t *testing.T) {
			max := uint32(maxNative)
			if c.wider {
				max = 0 // the client keeps all, at its schema
			}
			opts := prometheus.HistogramOpts{Name: "x", Buckets: lockmetrics.Buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: max}
			theirs, ours := prometheus.NewHistogram(opts), newHistogram()
			for _, d := range c.durations {
				theirs.Observe(d.Seconds())
				ours.Observe(d)
			}
			var want, got dto.Metric
			if err := theirs.Write(&want); err != nil {
				t.Fatal(err)
			}
			if err := ours.metric(theirs.Desc()).Write(&got); err != nil {
				t.Fatal(err)
			}
			got.Histogram.CreatedTimestamp, want.Histogram.CreatedTimestamp = nil, nil
			if name == "all buckets" {
				if n := len(got.Histogram.PositiveDelta); n > 2*maxNative || got.Histogram.GetSchema() >= schema {
					t.Errorf("%d native buckets of schema %d", n, got.Histogram.GetSchema())
				}
				if n := total(&got); n != int64(got.Histogram.GetSampleCount()-got.Histogram.GetZeroCount()) {
					t.Errorf("%d durations in native buckets, of %v", n, got.Histogram)
				}
				got.Histogram.Schema, got.Histogram.PositiveSpan, got.Histogram.PositiveDelta = want.Histogram.Schema, want.Histogram.PositiveSpan, want.Histogram.PositiveDelta
			}
			if !proto.Equal(&got, &want) {
				t.Errorf("it sends\n%v\nand the client\n%v", &got, &want)
			}
		})
	}
}

// total returns the sum of the native buckets.
func total(m *dto.Metric) (sum int64) {
	n := int64(0)
	for _, delta := range m.Histogram.PositiveDelta {
		n += delta
		sum += n
	}
	return sum
}
