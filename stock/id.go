package stock

import (
	"context"
	"crypto/rand"
	"strconv"
)

// NewSaleID returns a unique id, for a sale that has no id of its own. Its home
// is the next shard in turn: a client begins with a random shard and goes
// round, so that its sales reach all shards equally often. Ids of the caller's
// own spread by their hash, which is even only over many sales. Store the id
// before the call of Sell: a repetition needs it.
//
// NewSaleID blocks only the first time for a product, for a request that reads
// its directory, and returns ErrNoProduct, ErrUnavailable, ErrClosed, or an
// error about the SKU. After Rebalance the turns include the new shards.
func (s *Stock) NewSaleID(ctx context.Context, sku string) (string, error) {
	if err := s.check(sku, 1, 1); err != nil {
		return "", err
	}
	p, k, err := s.directories.find(ctx, sku, nil)
	if err != nil {
		return "", err
	}
	home := int(p.next.Add(1) % uint64(k.Shards))
	// With n shards, one random id in n has its home there.
	for text, n := rand.Text(), uint64(0); ; n++ {
		if id := text + strconv.FormatUint(n, 36); k.home(id) == home {
			return id, nil
		}
	}
}
