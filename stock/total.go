package stock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Total is the sum of a product's units.
type Total struct {
	Units int64 // set and added
	Sold  int64 // sold and not returned
	// Least and Most are bounds of the units left, in stock or reserved, at one
	// moment during the call. They are equal if Exact.
	Least, Most int64
	// Reserved is the number of the units left that were seen reserved.
	Reserved int64
	// Exact means that all shards were seen in their state at one moment.
	Exact bool
}

// tries is the number of times that Total looks for a moment without a change.
const tries = 3

// Total counts a product's units. While nothing changes the result is exact,
// and Total checks the sum: ErrUnbalanced means that the store has lost or
// changed data. While sales go on, the result has bounds: Total reads every
// shard twice, and the growth between the two is the uncertainty. It blocks for
// two to four requests to each shard.
func (s *Stock) Total(ctx context.Context, sku string) (Total, error) {
	if err := s.check(sku, 0, 0); err != nil {
		return Total{}, err
	}
	var before []shardState
	var t Total
	var bad *outdatedError
	for try := 0; ; try++ {
		_, k, err := s.directories.find(ctx, sku, bad)
		if err != nil {
			return Total{}, err
		}
		now, err := s.sender.readAllShards(ctx, sku, k)
		if later, ok := errors.AsType[*outdatedError](err); ok {
			before, bad, try = nil, later, -1
			continue
		}
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
		// The directory is read again before the second look. At that moment
		// there were no other shards than those of the first look.
		before, bad = now, &outdatedError{knownDirectory: k, epoch: k.Epoch}
	}
}

// readAllShards reads all shards, drained ones included. It fails with an
// outdatedError if one has a later directory.
func (s *sender) readAllShards(ctx context.Context, sku string, k *knownDirectory) ([]shardState, error) {
	all := make([]shardState, len(k.At))
	errs := make([]error, len(k.At))
	var asking sync.WaitGroup
	for i := range k.At {
		asking.Go(func() {
			var a answer
			a, errs[i] = s.ask(ctx, k.shard(sku, i), request{op: opLook, epoch: k.Epoch, keep: k.Keep})
			all[i] = a.look
		})
	}
	asking.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, err
		}
		if all[i].epoch > k.Epoch {
			return nil, &outdatedError{k, i, all[i].epoch}
		}
	}
	return all, nil
}

// total computes the Total of two looks at all shards. The first look at every
// shard was before the second look at any. At a moment between the two, each
// counter was at least its first value and at most its second.
func (k *knownDirectory) total(before, now []shardState) (t Total) {
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

// balanced checks that the units in shards and in transfers add up.
func (k *knownDirectory) balanced(sku string, t Total, all []shardState) error {
	var there int64
	for i, l := range all {
		there += l.free + l.held
		for to, m := range l.out {
			if to < len(all) && all[to].in[i] < m.seq {
				there += m.units // in transfer
			}
		}
	}
	if there != t.Least || there < 0 {
		return fmt.Errorf("%w: %q has %d units, of which %d are sold, and there are %d", ErrUnbalanced, sku, t.Units, t.Sold, there)
	}
	return nil
}
