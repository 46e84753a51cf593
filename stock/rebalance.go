package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Rebalance spreads what is left of a product evenly over so many shards, while
// it is sold; 0 leaves their number as it is. New shards are put where there are
// fewest, also on servers that were added at the end of Open's list. Shards that
// are one too many are drained: they sell no more, but keep their receipts, and
// what is returned there is found. Their servers are needed as before.
//
// It blocks for a few requests to each shard. One that fails, or is stopped,
// leaves nothing undone that matters, and can be repeated.
func (s *Stock) Rebalance(ctx context.Context, sku string, shards int) error {
	if err := s.check(sku, 0, 0); err != nil {
		return err
	}
	if shards < 0 || shards > MaxShards {
		return fmt.Errorf("stock: %d shards, and not from 0 to %d", shards, MaxShards)
	}
	k, err := s.settled(ctx, sku)
	for ; err == nil && shards != 0 && k.Shards != shards; k, err = s.settled(ctx, sku) {
		d := k.directory
		d.Next = shards
		d.spread(s.backend.servers(), sku, shards)
		if _, err := s.swap(ctx, sku, k.text, d); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	for range 3 { // sales go on; what they leave uneven is little
		moved, err := s.level(ctx, sku, k)
		if err != nil || !moved {
			return err
		}
	}
	return nil
}

// level moves units from shards that have more than their part to those that
// have less, and says whether it moved any.
func (s *Stock) level(ctx context.Context, sku string, k *known) (some bool, err error) {
	if err := s.finish(ctx, sku, k); err != nil {
		return false, err
	}
	all, err := s.looks(ctx, sku, k)
	if err != nil {
		return false, err
	}
	var sum int64
	for _, l := range all {
		sum += l.free
	}
	lack := make([]int64, len(all)) // less than nothing: too many
	for i, l := range all {
		lack[i] = -l.free
		if n := int64(k.Shards); i < k.Shards {
			lack[i] += sum / n
			if int64(i) < sum%n {
				lack[i]++
			}
		}
	}
	for from := range lack {
		for lack[from] < 0 {
			to := slices.IndexFunc(lack, func(n int64) bool { return n > 0 })
			n, err := s.transfer(ctx, sku, k, from, to, min(-lack[from], lack[to]))
			if err != nil {
				return some, err
			}
			if n == 0 { // it was sold meanwhile, and others lack more
				lack[from] = 0
				break
			}
			some = true
			lack[from] += n
			lack[to] -= n
		}
	}
	return some, nil
}

// transfer moves up to n units, and says how many.
func (s *Stock) transfer(ctx context.Context, sku string, k *known, from, to int, n int64) (int64, error) {
	a, err := s.ask(ctx, k.shard(sku, from), request{op: opPull, peer: to, units: n, keep: k.Keep})
	if err != nil || a.status == isShort {
		return 0, err
	}
	return a.move.units, s.deliver(ctx, sku, k, from, to, a.move)
}

// deliver ends a transfer that somebody has begun.
func (s *Stock) deliver(ctx context.Context, sku string, k *known, from, to int, m moved) error {
	if to >= len(k.At) {
		return nil // shards were added since, and who did will see to it
	}
	in := moved{from, m.seq, m.units}
	if _, err := s.ask(ctx, k.shard(sku, to), request{op: opAccept, in: in}); err != nil {
		return err
	}
	_, err := s.ask(ctx, k.shard(sku, from), request{op: opClear, peer: to, seq: m.seq})
	return err
}

// finish ends all transfers that somebody has begun and not ended.
func (s *Stock) finish(ctx context.Context, sku string, k *known) error {
	all, err := s.looks(ctx, sku, k)
	if err != nil {
		return err
	}
	var errs []error
	for from, l := range all {
		for to, m := range l.out {
			errs = append(errs, s.deliver(ctx, sku, k, from, to, m))
		}
	}
	return errors.Join(errs...)
}
