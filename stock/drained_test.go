package stock

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// changing begins a change of the number of shards with a client that dies
// then.
func changing(t *testing.T, client func(testing.TB, *Options) *Stock, sku string, shards int) (d directory) {
	t.Helper()
	for left := 1; d.Next == 0; left++ {
		s := client(t, nil)
		s.sender.backend = &dyingBackend{backend: s.sender.backend, left: left, after: true}
		_ = s.Rebalance(t.Context(), sku, shards)
		text, _, err := client(t, nil).sender.backend.directory(t.Context(), sku)
		must(t, err)
		must(t, json.Unmarshal(text, &d))
		if d.Shards == shards {
			t.Fatal("the change has ended")
		}
	}
	return d
}

// TestF119_DrainedShardThatLostItsDataIsNotMadeAnew makes a shard lose its data
// that was drained so long ago that no directory mentions it. The shard is not
// created again when the number of shards grows: its sales, and the numbers of
// its transfers, would be forgotten.
func TestF119_DrainedShardThatLostItsDataIsNotMadeAnew(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, sku := t.Context(), "x"
		s := client(t, &Options{SoldOutFor: -1})
		must(t, s.Set(ctx, sku, 200, 6))
		var sales []string
		for i := range 60 {
			sales = append(sales, fmt.Sprint("id", i))
			must(t, second(s.Sell(ctx, sku, 1, sales[i])))
		}
		must(t, s.Rebalance(ctx, sku, 2))
		k, err := s.directories.readFinished(ctx, sku)
		must(t, err)
		later := k.directory
		later.Past = nil // as it is written when all receipts have ended
		ok, err := s.directories.swap(ctx, sku, k.text, later)
		if must(t, err); !ok {
			t.Fatal("the directory was not written")
		}
		changing(t, client, sku, 6)
		at := k.shard(sku, 4)
		whole := snapshotShard(t, s.sender.backend, at, sales)
		lose(t, s.sender.backend, at, sales)

		b := client(t, &Options{SoldOutFor: -1, Patience: time.Second})
		for what, err := range map[string]error{
			"Rebalance": b.Rebalance(ctx, sku, 6),
			"Total":     second(b.Total(ctx, sku)),
			"Sell":      second(b.Sell(ctx, sku, 1, "new")),
		} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("shard 4 of %q is not there: server %d has lost its data", sku, at.server+1)) {
				t.Errorf("%s: %v", what, err)
			}
		}
		whole()
		must(t, b.Rebalance(ctx, sku, 6))
		count(t, b, sku, 200, 140)
	})
}
