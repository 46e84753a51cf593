package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Rebalance spreads the remaining units of a product evenly over the given
// number of shards, while sales go on; 0 keeps the number of shards. New shards
// go to the servers with the fewest, including servers that were added at the
// end of Open's list. Shards beyond the number are drained: they no longer
// sell, but keep their receipts, and sales can still be returned there. Their
// servers are needed as before.
//
// Rebalance blocks for a few requests to each shard. A call that fails, or is
// stopped, does no harm, and can be repeated.
func (s *Stock) Rebalance(ctx context.Context, sku string, shards int) error {
	if err := s.check(sku, 0, 0); err != nil {
		return err
	}
	if shards < 0 || shards > MaxShards {
		return fmt.Errorf("stock: %d shards, and not from 0 to %d", shards, MaxShards)
	}
	for {
		err := s.rebalance(ctx, sku, shards)
		later, ok := errors.AsType[*outdatedError](err)
		if !ok {
			return err
		}
		if err := s.directories.raiseEpoch(ctx, sku, later.knownDirectory); err != nil {
			return err
		}
	}
}

func (s *Stock) rebalance(ctx context.Context, sku string, shards int) error {
	k, err := s.directories.readFinished(ctx, sku)
	for ; err == nil && shards != 0 && k.Shards != shards; k, err = s.directories.readFinished(ctx, sku) {
		// A change that cannot be finished stops all sales. So check first that
		// every shard is there and has the epoch of this directory.
		if _, err := s.sender.readAllShards(ctx, sku, k); err != nil {
			return err
		}
		d := k.directory
		d.Next, d.Made = shards, len(d.At)
		d.spread(s.sender.backend.servers(), sku, shards)
		if _, err := s.directories.swap(ctx, sku, k.text, d); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	for range 3 { // sales go on, and leave little unevenness
		moved, err := s.level(ctx, sku, k)
		if err != nil || !moved {
			return err
		}
	}
	return nil
}

// level moves units from shards that have more than their part to shards that
// have less, and reports whether it moved any.
func (s *Stock) level(ctx context.Context, sku string, k *knownDirectory) (some bool, err error) {
	if err := s.sender.finish(ctx, sku, k); err != nil {
		return false, err
	}
	all, err := s.sender.readAllShards(ctx, sku, k)
	if err != nil {
		return false, err
	}
	var sum int64
	for _, l := range all {
		sum += l.free
	}
	lack := make([]int64, len(all)) // negative: too many
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
			n, err := s.sender.transfer(ctx, sku, k, from, to, min(-lack[from], lack[to]))
			if err != nil {
				return some, err
			}
			if n == 0 { // sold meanwhile; other shards lack more
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

// transfer moves up to n units, and returns the number moved.
func (s *sender) transfer(ctx context.Context, sku string, k *knownDirectory, from, to int, n int64) (int64, error) {
	a, err := s.ask(ctx, k.shard(sku, from), request{op: opPull, epoch: k.Epoch, peer: to, units: n, keep: k.Keep})
	if err != nil || a.status == isShort {
		return 0, err
	}
	return a.move.units, s.deliver(ctx, sku, k, from, to, a.move)
}

// deliver ends a transfer that any client has begun.
func (s *sender) deliver(ctx context.Context, sku string, k *knownDirectory, from, to int, m moved) error {
	if to >= len(k.At) {
		return nil // shards were added since; the client that added them ends it
	}
	in := moved{from, m.seq, m.units}
	if _, err := s.ask(ctx, k.shard(sku, to), request{op: opAccept, epoch: k.Epoch, in: in}); err != nil {
		return err
	}
	_, err := s.ask(ctx, k.shard(sku, from), request{op: opClear, epoch: k.Epoch, peer: to, seq: m.seq})
	return err
}

// finish ends all transfers in progress, whichever client began them.
func (s *sender) finish(ctx context.Context, sku string, k *knownDirectory) error {
	all, err := s.readAllShards(ctx, sku, k)
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
