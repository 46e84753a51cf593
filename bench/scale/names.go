package scale

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// names measures names that were locked once and are idle.
func (r *run) names(ctx context.Context) error {
	const of = "names"
	name := func(i int) string { return fmt.Sprintf("scale/names/%07d", i) }
	var fresh int
	kinds := func(n int) map[string]func() string {
		return map[string]func() string{
			"of an idle name": func() string { return name(rand.IntN(n)) },
			"of a new name":   func() string { fresh++; return fmt.Sprintf("scale/fresh/%07d", fresh) },
		}
	}
	empty, made := r.bytes(), 0
	for _, n := range r.Names {
		if err := r.each(ctx, made, n, func(ctx context.Context, i int) error {
			_, err := r.cycle(ctx, name(i))
			return err
		}); err != nil {
			return fmt.Errorf("%d names: %w", n, err)
		}
		if kept := r.bytes(); kept > 0 {
			r.add(of, "kept for each", "bytes", n, (kept-empty)/float64(n+fresh))
		}
		made = n
		if err := r.probe(ctx, of, n, kinds(n)); err != nil {
			return err
		}
		us, err := timed(func() error {
			for found, err := range r.drv.Names(ctx, "") {
				if err != nil {
					return err
				}
				return fmt.Errorf("%s is not idle", found)
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.add(of, "list of all locks in use, of which there are none", "ms", n, us/1000)
	}
	return nil
}
