package stock

import (
	"context"
	"fmt"
	"sync"
)

// Total is what a product has.
type Total struct {
	Units int64 // that were set and added
	Sold  int64 // and not returned
	// Least and Most are the units left, in stock or reserved: not fewer and not
	// more, at one moment while Total was asking. They are equal when Exact.
	Least, Most int64
	// Reserved are of those left the ones that are reserved, as seen.
	Reserved int64
	// Exact says that all shards were seen as they were at one moment.
	Exact bool
}

// tries is how often Total looks for a moment without a change.
const tries = 3

// Total counts a product's units. While nothing changes it is exact, and checks
// the sum: ErrUnbalanced means that the store has lost or changed data. While
// there are sales it says between which bounds the numbers are: it looks at
// every shard twice, and what has grown between the two is what is not known. It
// blocks for two to four requests to each shard.
func (s *Stock) Total(ctx context.Context, sku string) (Total, error) {
	if err := s.check(sku, 0, 0); err != nil {
		return Total{}, err
	}
	var before []look
	var t Total
	var bad *known
	for try := 0; ; try++ {
		_, k, err := s.find(ctx, sku, bad)
		if err != nil {
			return Total{}, err
		}
		now, err := s.looks(ctx, sku, k)
		if err != nil {
			return Total{}, err
		}
		if len(now) == len(before) { // otherwise shards were added
			if t = k.total(before, now); t.Exact {
				return t, k.balanced(sku, t, now)
			}
			if try >= tries {
				return t, nil
			}
		}
		// The directory is read again before the second look: at that moment
		// there were no other shards than those that the first look has seen.
		before, bad = now, k
	}
}

// looks looks at all shards, those that sell and those that do not any more.
func (s *Stock) looks(ctx context.Context, sku string, k *known) ([]look, error) {
	all := make([]look, len(k.At))
	errs := make([]error, len(k.At))
	var asking sync.WaitGroup
	for i := range k.At {
		asking.Go(func() {
			var a answer
			a, errs[i] = s.ask(ctx, k.shard(sku, i), request{op: opLook, keep: k.Keep})
			all[i] = a.look
		})
	}
	asking.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// total reads two looks at all shards. Every shard was seen for the first time
// before any was seen for the second: between the two is a moment at which each
// counter was neither less than at first nor more than at last.
func (k *known) total(before, now []look) (t Total) {
	t.Exact = true
	var soldLeast, soldMost, moreLeast, moreMost int64
	for i := range now {
		t.Exact = t.Exact && before[i].version == now[i].version
		t.Reserved += now[i].held
		soldLeast += before[i].sold - now[i].back
		soldMost += now[i].sold - before[i].back
		moreLeast += before[i].more
		moreMost += now[i].more
	}
	t.Units, t.Sold = k.Units+moreMost, soldMost
	t.Least, t.Most = k.Units+moreLeast-soldMost, k.Units+moreMost-soldLeast
	return t
}

// balanced counts the units that are there, wherever they are.
func (k *known) balanced(sku string, t Total, all []look) error {
	var there int64
	for i, l := range all {
		there += l.free + l.held
		for to, m := range l.out {
			if to < len(all) && all[to].in[i] < m.seq {
				there += m.units // under way
			}
		}
	}
	if there != t.Least || there < 0 {
		return fmt.Errorf("%w: %q has %d units, of which %d are sold, and there are %d", ErrUnbalanced, sku, t.Units, t.Sold, there)
	}
	return nil
}
