package stock

import (
	"context"
	"crypto/rand"
	"strconv"
)

// NewSaleID makes an id that nobody else has, for a sale that has none of its
// own. Its home is the shard whose turn it is: a client begins with a random one
// and goes round, so that its sales reach all shards equally often, where ids of
// the caller's own spread by their hash, and evenly only over many. Keep the id
// before Sell is called: it is what a repetition needs.
//
// It blocks only the first time for a product, for a request that reads its
// directory, and returns ErrNoProduct, ErrUnavailable, ErrClosed, or what is
// wrong with the SKU. After Rebalance the turns go by the new shards.
func (s *Stock) NewSaleID(ctx context.Context, sku string) (string, error) {
	if err := s.check(sku, 1, 1); err != nil {
		return "", err
	}
	p, k, err := s.find(ctx, sku, nil)
	if err != nil {
		return "", err
	}
	home := int(p.next.Add(1) % uint64(k.Shards))
	// One in so many ids as there are shards is at home there.
	for text, n := rand.Text(), uint64(0); ; n++ {
		if id := text + strconv.FormatUint(n, 36); k.home(id) == home {
			return id, nil
		}
	}
}
