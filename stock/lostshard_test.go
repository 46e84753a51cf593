package stock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// snapshotShard copies a shard, with the receipts of the given sales, and
// returns a function that puts the copy in the shard's place.
func snapshotShard(t *testing.T, b backend, at shard, sales []string) (restore func()) {
	t.Helper()
	if m, ok := b.(*memory); ok {
		c := m.shards[at].copyOf()
		return func() { m.shards[at] = c.copyOf() }
	}
	if s, ok := b.(*sqlServers); ok {
		return snapshotRows(t, s, at)
	}
	s := b.(*redisServers)
	do := func(command, key string, args ...string) rueidis.RedisResult {
		c := s.clients[at.server]
		return c.Do(t.Context(), c.B().Arbitrary(command).Keys(key).Args(args...).Build())
	}
	keys := keysOf(s, at, sales)
	dumps := map[string]string{}
	for _, key := range keys {
		dump, err := do("DUMP", key).ToString()
		if err == nil {
			dumps[key] = dump
		} else if !rueidis.IsRedisNil(err) {
			t.Fatal(err)
		}
	}
	return func() {
		for _, key := range keys {
			must(t, do("DEL", key).Error())
		}
		for key, dump := range dumps {
			must(t, do("RESTORE", key, "86400000", dump).Error())
		}
	}
}

// lose removes a shard and the receipts of the given sales.
func lose(t *testing.T, b backend, at shard, sales []string) {
	t.Helper()
	if m, ok := b.(*memory); ok {
		delete(m.shards, at)
		return
	}
	if s, ok := b.(*sqlServers); ok {
		loseRows(t, s, at)
		return
	}
	s := b.(*redisServers)
	for _, key := range keysOf(s, at, sales) {
		c := s.clients[at.server]
		must(t, c.Do(t.Context(), c.B().Del().Key(key).Build()).Error())
	}
}

func keysOf(s *redisServers, at shard, sales []string) []string {
	tag := s.tag(at)
	keys := []string{s.prefix + "shard:" + tag, s.prefix + "held:" + tag, s.prefix + "due:" + tag}
	for _, sale := range sales {
		keys = append(keys, s.prefix+"sale:"+tag+":"+sale)
	}
	return keys
}

// limited returns a context for the calls of one case: a call that asks again and again
// ends with it, and says so.
func limited(t *testing.T, what string) (context.Context, context.CancelFunc) {
	const limit = 20 * time.Second
	return context.WithTimeoutCause(t.Context(), limit, fmt.Errorf("%s: the calls have not ended after %v", what, limit))
}

// TestF119_ShardOfLostDataStaysOutOfSale checks that a shard restored from
// before a change stays out of sale, whatever the directory contains: no call
// raises it to a later epoch. When its data is back, every id and unit is where
// it was.
func TestF119_ShardOfLostDataStaysOutOfSale(t *testing.T) {
	lost := []struct {
		name      string
		shard     int // the epoch of the copy of shard 0
		directory int // the epoch of the directory
		next      int // the number of shards after the change in progress
	}{
		{"shard", 2, 3, 0},
		{"older shard", 1, 3, 0},
		{"shard amid a change", 2, 3, 5},
		{"shard and directory", 1, 1, 0},
		{"shard and later directory", 1, 2, 0},
		{"shard and directory amid a change", 1, 1, 3},
	}
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		_, inDatabase := client(t, nil).sender.backend.(*sqlServers)
		for n, l := range lost {
			for _, knows := range []bool{false, true} {
				if inDatabase && knows != (n%2 == 0) {
					continue // each request is several statements; the clients are those of all stores
				}
				sku := fmt.Sprint(l.name, knows)
				ctx, cancel := limited(t, sku)
				defer cancel()
				s := client(t, &Options{SoldOutFor: -1, Patience: time.Second})
				var sales []string
				for i := range 60 {
					sales = append(sales, fmt.Sprint("id", i))
				}
				// Copies of shard 0 and of the directory, by epoch.
				var shards []func()
				var dirs []directory
				must(t, s.Set(ctx, sku, 200, 2))
				var at shard
				for epoch := range 3 {
					if epoch > 0 {
						must(t, s.Rebalance(ctx, sku, 2+epoch))
					}
					k, err := s.directories.readFinished(ctx, sku)
					must(t, err)
					at = k.shard(sku, 0)
					dirs = append(dirs, k.directory)
					if epoch < 2 {
						shards = append(shards, snapshotShard(t, s.sender.backend, at, sales))
					}
					for _, id := range sales[20*epoch : 20*epoch+20] {
						must(t, second(s.Sell(ctx, sku, 1, id)))
					}
				}
				whole := snapshotShard(t, s.sender.backend, at, sales)

				shards[l.shard-1]()
				now, _, err := s.sender.backend.directory(ctx, sku)
				must(t, err)
				if l.directory < 3 || l.next != 0 {
					d := dirs[l.directory-1]
					if l.next != 0 {
						d.Next = l.next
						d.spread(s.sender.backend.servers(), sku, l.next)
					}
					ok, err := s.directories.swap(ctx, sku, now, d)
					if must(t, err); !ok {
						t.Fatal("the directory was not restored")
					}
				}
				before, err := s.sender.backend.ask(ctx, at, request{op: opLook, epoch: 1, keep: 1000})
				must(t, err)

				b := s
				if !knows {
					b = client(t, &Options{SoldOutFor: -1, Patience: time.Second})
				}
				for what, err := range map[string]error{
					"Rebalance": b.Rebalance(ctx, sku, 6),
					"level":     b.Rebalance(ctx, sku, 0),
					"Total":     second(b.Total(ctx, sku)),
				} {
					if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("server %d has gone back to older data", at.server+1)) {
						t.Errorf("%s: %s: %v", sku, what, err)
					}
				}
				for _, id := range sales {
					if r, err := b.Sell(ctx, sku, 1, id); err == nil && r != (Receipt{Sold, 1}) {
						t.Errorf("%s: %s again: %v", sku, id, r)
					}
				}
				must(t, context.Cause(ctx))
				after, err := s.sender.backend.ask(ctx, at, request{op: opLook, epoch: 1, keep: 1000})
				must(t, err)
				if x, y := before.look, after.look; x.epoch != y.epoch || x.free != y.free || x.sold != y.sold {
					t.Errorf("%s: the shard has epoch %d, %d free, %d sold; and then %d, %d, %d", sku, x.epoch, x.free, x.sold, y.epoch, y.free, y.sold)
				}
				if l.directory == 3 && l.next == 0 { // other clients go on
					c := client(t, &Options{SoldOutFor: -1, Patience: time.Second})
					_, k, err := c.directories.find(ctx, sku, nil)
					if must(t, err); k.Epoch != 3 {
						t.Errorf("%s: the refused Rebalance has left epoch %d", sku, k.Epoch)
					}
					for _, id := range sales {
						if k.home(id) != 0 && len(k.former(id)) == 0 {
							must(t, second(c.Sell(ctx, sku, 1, id)))
						}
					}
				}

				whole()
				must(t, b.Rebalance(ctx, sku, 6))
				for _, id := range sales {
					if r, err := b.Sell(ctx, sku, 1, id); err != nil || r != (Receipt{Sold, 1}) {
						t.Errorf("%s: %s when all is back: %v, %v", sku, id, r, err)
					}
				}
				count(t, b, sku, 200, 140)
			}
		}
	})
}

// TestF119_RebalanceMendsDirectoryThatClientKnowsBetter checks that a client
// which remembers the later directory repairs a restored one, in a bounded
// number of requests.
func TestF119_RebalanceMendsDirectoryThatClientKnowsBetter(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		for _, shards := range []int{0, 6} {
			s, sku := client(t, &Options{SoldOutFor: -1}), fmt.Sprint("x", shards)
			ctx, cancel := limited(t, sku)
			defer cancel()
			must(t, s.Set(ctx, sku, 100, 2))
			older, _, err := s.sender.backend.directory(ctx, sku)
			must(t, err)
			must(t, s.Rebalance(ctx, sku, 4))
			must(t, second(s.Sell(ctx, sku, 1, "id")))
			newer, _, err := s.sender.backend.directory(ctx, sku)
			must(t, err)
			if ok, err := s.sender.backend.swap(ctx, sku, newer, older); !ok {
				t.Fatalf("the directory was not restored: %v", err)
			}
			must(t, s.Rebalance(ctx, sku, shards))
			count(t, client(t, nil), sku, 100, 99)
		}
	})
}
