package stock

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock"
)

var (
	turns  = flag.Int("sales.rounds", 1, "how often each way of selling is measured")
	window = flag.Duration("sales.window", 200*time.Millisecond, "for how long at a time")
	only   = flag.String("sales.only", "", "part of the names of the ways to measure")
	svg    = flag.String("sales.svg", "", "file to draw the plot into")
)

// buyers is the number of buying goroutines, if a way has no other.
const buyers = 64

// A way is one way of selling.
type way struct {
	name            string
	shards, servers int // 0 shards: a sale without package stock
	sell            func(ctx context.Context, buyer, n int) error
	buyers          int                        // goroutines
	busy            func(testing.TB) []float64 // the processor seconds that each server has used
	rates, costs    []float64                  // for each round: sales per s, µs of the busiest server's processor per sale
}

// BenchmarkSales sells one product in every way, in turns, so that other load
// on the machine affects all ways alike. Other load only slows a round down: of
// many short rounds the benchmark reports the best, and the middle one beside
// it.
//
//	go test ./stock -run '^$' -bench Sales -benchtime 1x -sales.rounds 40 -sales.window 150ms -sales.svg docs/stock.svg
func BenchmarkSales(b *testing.B) {
	var started []*servers.RedisServer
	var urls []string
	for range 3 {
		s := servers.Redis(b, servers.RedisOptions{})
		started, urls = append(started, s), append(urls, s.URL(""))
	}
	ways := []*way{locked(b, started[0]), decrement(b, started[0])}
	for _, n := range []int{1, 3} {
		st, err := Open(b.Context(), &Options{Prefix: fmt.Sprintf("s%d_", n)}, urls[:n]...)
		must(b, err)
		b.Cleanup(func() { st.Close() })
		for _, shards := range []int{1, 2, 5, 16} {
			sku := fmt.Sprint("phone", shards)
			must(b, st.Set(b.Context(), sku, MaxUnits/2, shards))
			ways = append(ways, &way{
				name: fmt.Sprintf("%d shards on %d", shards, n), shards: shards, servers: n, buyers: buyers, busy: processors(started[:n]),
				sell: func(ctx context.Context, buyer, n int) error {
					_, err := st.Sell(ctx, sku, 1, "order/"+strconv.Itoa(buyer)+"/"+strconv.Itoa(n))
					return err
				},
			})
		}
	}
	measure(b, ways)
	if *svg != "" {
		must(b, os.WriteFile(*svg, plot(ways), 0o644))
	}
}

// measure measures ways in turns, and prints a table.
func measure(b *testing.B, ways []*way) {
	ways = slices.DeleteFunc(ways, func(w *way) bool { return !strings.Contains(w.name, *only) })
	next := make([]int, 256) // numbers of orders go on from round to round
	for range b.N {
		for range *turns {
			for _, w := range ways {
				w.round(b, next)
			}
		}
	}
	fmt.Println("| way | best sales/s | middle | µs of the busiest server per sale, best | middle |\n|---|---|---|---|---|")
	for _, w := range ways {
		rate, cost := spread(w.rates), spread(w.costs)
		b.ReportMetric(rate.most, strings.ReplaceAll(w.name, " ", "-")+"/s")
		fmt.Printf("| %s | %.0f | %.0f | %.1f | %.1f |\n", w.name, rate.most, rate.mid, cost.least, cost.mid)
	}
}

// round sells for the length of a window.
func (w *way) round(b *testing.B, next []int) {
	before := w.busy(b)
	var sold atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(*window)
	began := time.Now()
	for buyer := range w.buyers {
		all.Go(func() {
			n := int64(0)
			for time.Now().Before(end) {
				next[buyer]++
				if err := w.sell(b.Context(), buyer, next[buyer]); err != nil {
					b.Error(w.name, err)
					return
				}
				n++
			}
			sold.Add(n)
		})
	}
	all.Wait()
	took := time.Since(began)
	var most float64
	for i, after := range w.busy(b) {
		most = max(most, after-before[i])
	}
	w.rates = append(w.rates, float64(sold.Load())/took.Seconds())
	w.costs = append(w.costs, most*1e6/float64(max(1, sold.Load())))
}

// processors returns a function that reads the processor seconds of servers.
func processors(started []*servers.RedisServer) func(testing.TB) []float64 {
	return func(b testing.TB) (used []float64) {
		for _, s := range started {
			var sum float64
			for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
				x, err := strconv.ParseFloat(s.Info(b, "cpu", field), 64)
				must(b, err)
				sum += x
			}
			used = append(used, sum)
		}
		return used
	}
}

func plainClient(b *testing.B, s *servers.RedisServer) rueidis.Client {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	must(b, err)
	b.Cleanup(c.Close)
	return c
}

// locked sells under a lock on the product: read, compare, write.
func locked(b *testing.B, s *servers.RedisServer) *way {
	d, err := redislock.Open(b.Context(), s.URL(""))
	must(b, err)
	locks, err := holdfast.New(d)
	must(b, err)
	b.Cleanup(func() { locks.Close() })
	c := plainClient(b, s)
	must(b, c.Do(b.Context(), c.B().Set().Key("left").Value("1000000000").Build()).Error())
	return &way{name: "lock", servers: 1, buyers: buyers, busy: processors([]*servers.RedisServer{s}), sell: func(ctx context.Context, _, _ int) error {
		return locks.Do(ctx, "phone", func(ctx context.Context) error {
			left, err := c.Do(ctx, c.B().Get().Key("left").Build()).AsInt64()
			if err != nil || left < 1 {
				return fmt.Errorf("%d are left: %w", left, err)
			}
			return c.Do(ctx, c.B().Set().Key("left").Value(strconv.FormatInt(left-1, 10)).Build()).Error()
		})
	}}
}

// decrement sells with a script on one key, without ids: when it is repeated
// after a lost answer it sells again.
func decrement(b *testing.B, s *servers.RedisServer) *way {
	c := plainClient(b, s)
	must(b, c.Do(b.Context(), c.B().Set().Key("count").Value("1000000000").Build()).Error())
	run := rueidis.NewLuaScript(`
if tonumber(redis.call('GET', KEYS[1])) < tonumber(ARGV[1]) then return 0 end
redis.call('DECRBY', KEYS[1], ARGV[1])
return 1`)
	keys, args := []string{"count"}, []string{"1"}
	return &way{name: "decrement", servers: 1, buyers: buyers, busy: processors([]*servers.RedisServer{s}), sell: func(ctx context.Context, _, _ int) error {
		n, err := run.Exec(ctx, c, keys, args).AsInt64()
		if n != 1 {
			return fmt.Errorf("answer %d: %w", n, err)
		}
		return nil
	}}
}

type spreading struct{ least, mid, most float64 }

func spread(xs []float64) spreading {
	xs = slices.Sorted(slices.Values(xs))
	return spreading{xs[0], xs[len(xs)/2], xs[len(xs)-1]}
}

func byShards(a, b *way) int { return cmp.Compare(a.shards, b.shards) }
