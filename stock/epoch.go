package stock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxLease is the longest lease of a reservation.
const maxLease = 30 * 24 * time.Hour

// advance makes one step of a change. It returns true if there was none to
// make. Before clients can read a directory with another number of shards,
// every shard has its epoch, and refuses clients with the epoch before. So no
// sale has two homes at once. Each shard keeps the directory of its epoch: if
// the product's own is restored from an older copy, it is repaired from there.
func (s *directories) advance(ctx context.Context, sku string, k *knownDirectory) (bool, error) {
	d := k.directory
	switch {
	case !d.Filled:
		d.Filled = true
		_, err := s.tellShards(ctx, sku, k.directory, d, 0)
		if err != nil {
			return false, s.adoptLater(ctx, sku, k, err)
		}
	case d.Next != 0:
		// A client that finds this copy does not know when the last reservation
		// ends, so the copy has the latest possible time.
		n := len(d.Past)
		d.Epoch++
		d.Past = append(d.Past[:n:n], earlierShards{d.Shards, k.now + maxLease.Milliseconds()})
		d.Shards, d.Next = d.Next, 0
		ends, err := s.tellShards(ctx, sku, d, d, d.earlierCount())
		if err != nil {
			return false, s.adoptLater(ctx, sku, k, err)
		}
		d.Past = slices.Clone(d.Past)
		d.Past[n].Ended = max(k.now, ends)
	default:
		return true, nil
	}
	_, err := s.swap(ctx, sku, k.text, d)
	return false, err
}

// earlierCount returns a number of shards that certainly existed before the
// last change.
func (d *directory) earlierCount() (n int) {
	n = d.Made
	for _, p := range d.Past {
		n = max(n, p.Shards)
	}
	return n
}

// laterDirectoryError is the directory of a shard that differs from the one it
// was told.
type laterDirectoryError struct{ directory }

// Error names its epoch.
func (e *laterDirectoryError) Error() string {
	return fmt.Sprintf("a shard goes by the directory of epoch %d", e.Epoch)
}

// tellShards tells all shards of a directory its epoch, and to keep a copy,
// kept. It creates missing shards, except the first ones, up to were, which
// existed before. If d is not filled, it fills the shards that it creates. It
// returns the time at which the last of their reservations ends.
//
// A trial run asks all shards before any is told. A shard that has lost its
// sales shows that only by its epoch. So no epoch is raised if another shard is
// lost, or knows a later directory, which would have to be told instead.
func (s *directories) tellShards(ctx context.Context, sku string, d, kept directory, were int) (ends int64, err error) {
	text, err := json.Marshal(kept)
	if err != nil {
		return 0, err
	}
	if d.Epoch > 1 {
		if _, err := s.placeAll(ctx, sku, d, text, were, true); err != nil {
			return 0, err
		}
	}
	return s.placeAll(ctx, sku, d, text, were, false)
}

// placeAll sends the requests of tellShards. With try they change nothing.
func (s *directories) placeAll(ctx context.Context, sku string, d directory, text []byte, were int, try bool) (ends int64, err error) {
	for i := range d.At {
		q := request{op: opPlace, epoch: d.Epoch, dir: text, must: i < were, try: try}
		if !d.Filled && i < d.First {
			q.flag = true
			q.units = d.Units / int64(d.First)
			if int64(i) < d.Units%int64(d.First) {
				q.units++
			}
		}
		a, err := s.sender.ask(ctx, d.shard(sku, i), q)
		if err != nil {
			return 0, err
		}
		ends = max(ends, a.ends)
		if a.epoch < d.Epoch {
			continue
		}
		var has directory
		if len(a.dir) > 0 {
			if err := json.Unmarshal(a.dir, &has); err != nil {
				return 0, fmt.Errorf("stock: the directory in shard %d of %q: %w", i, sku, err)
			}
		}
		switch {
		case len(a.dir) == 0 && a.epoch > d.Epoch:
			return 0, fmt.Errorf("stock: the directory of %q is of epoch %d, older than its shard %d of epoch %d, which has no copy of its own", sku, d.Epoch, i, a.epoch)
		case len(a.dir) == 0, has.Epoch == d.Epoch && has.Shards == d.Shards && slices.Equal(has.At, d.At):
		default:
			return 0, &laterDirectoryError{has}
		}
	}
	return ends, nil
}

// adoptLater adopts the directory of a shard if err is a laterDirectoryError,
// and returns other errors.
func (s *directories) adoptLater(ctx context.Context, sku string, k *knownDirectory, err error) error {
	for {
		later, ok := errors.AsType[*laterDirectoryError](err)
		if !ok {
			return err
		}
		d := later.directory
		if d.Epoch <= k.Epoch && d.Shards == k.Shards && slices.Equal(d.At, k.At) {
			return err
		}
		if _, err = s.tellShards(ctx, sku, d, d, d.earlierCount()); err == nil {
			_, err = s.swap(ctx, sku, k.text, d)
			return err
		}
		if next, ok := errors.AsType[*laterDirectoryError](err); ok && next.Epoch <= d.Epoch {
			return fmt.Errorf("stock: shards of %q go by different directories of epoch %d", sku, d.Epoch)
		}
	}
}

// raiseEpoch raises a directory to the epoch of its shards.
func (s *directories) raiseEpoch(ctx context.Context, sku string, k *knownDirectory) error {
	_, err := s.tellShards(ctx, sku, k.directory, k.directory, len(k.At))
	return s.adoptLater(ctx, sku, k, err)
}
