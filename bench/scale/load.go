package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/anylock"
)

// loadTime is the length of a round under load.
const loadTime = time.Second

// loads are the numbers of goroutines.
var loads = []int{1, 8, 64}

// load measures how many locks a second one client takes and releases, by goroutines
// that have a name each.
func (r *run) load(ctx context.Context) (err error) {
	const of = "goroutines"
	locks, err := anylock.Open(ctx, r.store.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()
	for _, n := range loads {
		var rate, server, own []float64
		for range rounds {
			counts := make([]int, n)
			before, ours, began := r.cpu(), ownCPU(), time.Now()
			err := r.eachBy(ctx, n, 0, n, func(ctx context.Context, i int) error {
				name := fmt.Sprintf("scale/load/%d", i)
				for time.Since(began) < loadTime {
					h, err := locks.Mutex(name).Lock(ctx)
					if err != nil {
						return err
					}
					if err := h.Unlock(); err != nil {
						return err
					}
					counts[i]++
				}
				return nil
			})
			if err != nil {
				return err
			}
			took, sum := time.Since(began), 0
			for _, c := range counts {
				sum += c
			}
			rate = append(rate, float64(sum)/took.Seconds())
			server = append(server, float64(r.cpu()-before)/float64(sum)/float64(time.Microsecond))
			own = append(own, float64(ownCPU()-ours)/float64(sum)/float64(time.Microsecond))
		}
		r.add(of, "locks taken and released, a second", "", n, rate...)
		if r.store.CPU != nil {
			r.add(of, "server CPU for each", "µs", n, server...)
		}
		r.add(of, "client CPU for each", "µs", n, own...)
	}
	return nil
}
