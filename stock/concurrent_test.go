package stock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestConcurrentSalesAddUp sells from many goroutines at once, on a store that
// fails, with clients that die and shards that come and go. Every answer is
// true, and the numbers add up.
func TestConcurrentSalesAddUp(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(3)
			clean := over(t, m, nil)
			const units, clients, each = 400, 6, 16
			must(t, clean.Set(t.Context(), "x", units, 5))
			said := make([]map[string]error, clients*each)
			var all sync.WaitGroup
			for c := range clients {
				f := &flakyBackend{backend: m, rate: 0.1, rand: rand.New(rand.NewPCG(seed, uint64(c)))}
				if c > 3 {
					f.left = 100 * c
				}
				s := over(t, f, nil)
				for g := range each {
					r := rand.New(rand.NewPCG(seed, uint64(1000+c*each+g)))
					said[c*each+g] = map[string]error{}
					all.Go(func() {
						for i := range 8 {
							// Goroutines of two clients use the same ids.
							id := fmt.Sprint(c/2, "/", g, "/", i)
							_, err := s.Sell(t.Context(), "x", int64(1+(g+i)%4), id)
							said[c*each+g][id] = err
							time.Sleep(time.Duration(r.IntN(int(20 * time.Millisecond))))
							if r.IntN(20) == 0 {
								_ = s.Rebalance(t.Context(), "x", 1+r.IntN(9))
							}
							if r.IntN(8) == 0 {
								f.deliver()
							}
						}
					})
				}
			}
			busy := 0
			watching := make(chan struct{})
			go func() {
				defer close(watching)
				for range 20 {
					now, err := clean.Total(t.Context(), "x")
					if err != nil || now.Units != units || now.Least > now.Most || now.Least < 0 || now.Most > units {
						t.Errorf("while it is sold, the total is %+v, %v", now, err)
					}
					if now.Least < now.Most {
						busy++
					}
					time.Sleep(5 * time.Millisecond)
				}
			}()
			all.Wait()
			<-watching
			var sold int64
			made := map[string]bool{}
			for _, calls := range said {
				for id, err := range calls {
					r, e := clean.Receipt(t.Context(), "x", id)
					if e != nil && !errors.Is(e, ErrNoSale) {
						t.Fatal(e)
					}
					if err == nil && r.State != Sold {
						t.Errorf("seed %d: %s was sold, and its receipt is %v", seed, id, r)
					}
					if r.State == Sold && !made[id] {
						made[id] = true
						sold += r.Units
					}
				}
			}
			must(t, clean.Rebalance(t.Context(), "x", 0))
			count(t, clean, "x", units, units-sold)
			if sold < units*3/4 {
				t.Errorf("seed %d: %d of %d were sold", seed, sold, units)
			}
		})
	}
}

// TestSoldOutIsAnsweredHere checks that a client answers without a request for
// a product that it knows to be sold out.
func TestSoldOutIsAnsweredHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, m := t.Context(), newMemory(1)
		f := &flakyBackend{backend: m, rand: rand.New(rand.NewPCG(1, 1))}
		s, other := over(t, f, &Options{SoldOutFor: time.Second}), over(t, m, nil)
		must(t, s.Set(ctx, "x", 3, 2))
		_, err := s.Sell(ctx, "x", 2, "a")
		must(t, err)
		if _, err := s.Sell(ctx, "x", 2, "b"); !errors.Is(err, ErrSoldOut) {
			t.Fatal(err)
		}
		f.left = 1 // the next request is its last
		for i := range 1000 {
			_, err := s.Sell(ctx, "x", 2, fmt.Sprint(i))
			if out, ok := errors.AsType[*SoldOutError](err); !ok || out.Left != 1 {
				t.Fatalf("try %d: %v", i, err)
			}
		}
		if f.dead {
			t.Error("the store was asked for what is sold out")
		}
		f.left = 0
		must(t, other.Return(ctx, "x", "a"))
		if _, err := s.Sell(ctx, "x", 1, "c"); err != nil {
			t.Errorf("one is left, and it says %v", err)
		}
		time.Sleep(time.Second)
		if _, err := s.Sell(ctx, "x", 2, "d"); err != nil {
			t.Errorf("what came back is not found: %v", err)
		}
		// A sale of unknown outcome needs a request.
		if _, err := s.Sell(ctx, "x", 1, "e"); !errors.Is(err, ErrSoldOut) {
			t.Fatal(err)
		}
		must(t, s.Return(ctx, "x", "d")) // clears the answer of "sold out"
		f.rate = 1
		s.sender.patience = time.Millisecond
		for {
			if _, err := s.Sell(ctx, "x", 2, "f"); errors.Is(err, ErrUnknown) {
				break
			}
		}
		f.rate = 0
		if r := m.shards; len(r) == 0 {
			t.Fatal("no shards")
		}
		_, err = other.Sell(ctx, "x", 2, "f")
		must(t, err) // by now the sale is made in any case
		s.directories.product("x").empty.Store(&soldOutUntil{time.Now().Add(time.Hour), 0})
		if _, err := s.Sell(ctx, "x", 2, "g"); !errors.Is(err, ErrSoldOut) {
			t.Error(err)
		}
		if r, err := s.Sell(ctx, "x", 2, "f"); err != nil || r.State != Sold {
			t.Errorf("a sale of unknown outcome is answered without asking: %v, %v", r, err)
		}
	})
}

// delayed holds back the first sale, and reports its answer as lost.
type delayed struct {
	backend
	arrive func()
}

func (d *delayed) ask(ctx context.Context, at shard, q request) (answer, error) {
	if q.op == opSell && d.arrive == nil {
		d.arrive = func() { _, _ = d.backend.ask(ctx, at, q) }
		return answer{}, errLost
	}
	return d.backend.ask(ctx, at, q)
}

// TestLateRequestIsNotForgotten checks that a sale whose first request may
// still arrive is not reported as sold out: the request could find units that
// came back.
func TestLateRequestIsNotForgotten(t *testing.T) {
	ctx, m := t.Context(), newMemory(1)
	d := &delayed{backend: m}
	s, other := over(t, d, nil), over(t, m, nil)
	must(t, s.Set(ctx, "x", 1, 3))
	_, err := other.Sell(ctx, "x", 1, "a")
	must(t, err)
	_, err = s.Sell(ctx, "x", 1, "b")
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrSoldOut) {
		t.Errorf("a sale that may yet be made: %v", err)
	}
	must(t, other.Cancel(ctx, "x", "b")) // the caller gives the sale up
	must(t, other.Return(ctx, "x", "a"))
	d.arrive()
	count(t, other, "x", 1, 1)
}
