package stock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSell(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, s := t.Context(), client(t, nil)
		must(t, s.Set(ctx, "phone", 10, 3))
		must(t, s.Set(ctx, "phone", 10, 3)) // a repetition changes nothing
		if err := s.Set(ctx, "phone", 11, 3); !errors.Is(err, ErrExists) {
			t.Errorf("set with another number: %v", err)
		}
		count(t, s, "phone", 10, 10)
		for i := range 10 {
			id := fmt.Sprint("order/", i)
			for range 2 {
				if r, err := s.Sell(ctx, "phone", 1, id); err != nil || r != (Receipt{Sold, 1}) {
					t.Fatalf("sale %d is %v, %v", i, r, err)
				}
			}
		}
		count(t, s, "phone", 10, 0)
		_, err := s.Sell(ctx, "phone", 1, "late")
		if out, ok := errors.AsType[*SoldOutError](err); !ok || !errors.Is(err, ErrSoldOut) || *out != (SoldOutError{"phone", 1, 0}) {
			t.Errorf("the eleventh sale: %v", err)
		}
		if _, err := s.Receipt(ctx, "phone", "late"); !errors.Is(err, ErrNoSale) {
			t.Errorf("the receipt of no sale: %v", err)
		}
		must(t, s.Return(ctx, "phone", "order/3"))
		must(t, s.Return(ctx, "phone", "order/3"))
		count(t, s, "phone", 10, 1)
		if _, err := s.Sell(ctx, "phone", 1, "late"); err != nil {
			t.Errorf("a sale of what was returned: %v", err)
		}
		count(t, s, "phone", 10, 0)
		must(t, s.Add(ctx, "phone", 5, "delivery/1"))
		must(t, s.Add(ctx, "phone", 5, "delivery/1"))
		count(t, s, "phone", 15, 5)
	})
}

// TestGather checks that several shards together supply a sale that no single
// shard could, and that units which do not suffice stay on sale.
func TestGather(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, s := t.Context(), client(t, &Options{SoldOutFor: -1})
		must(t, s.Set(ctx, "tea", 20, 5)) // 4 in each
		if _, err := s.Sell(ctx, "tea", 21, "all and one"); !errors.Is(err, ErrSoldOut) {
			t.Errorf("more than there is: %v", err)
		}
		count(t, s, "tea", 20, 20)
		if _, err := s.Sell(ctx, "tea", 17, "most"); err != nil {
			t.Errorf("17 of 20 in five shards: %v", err)
		}
		count(t, s, "tea", 20, 3)
		_, err := s.Sell(ctx, "tea", 4, "four")
		if out, ok := errors.AsType[*SoldOutError](err); !ok || out.Left != 3 {
			t.Errorf("4 of 3: %v", err)
		}
		if _, err := s.Sell(ctx, "tea", 3, "three"); err != nil {
			t.Errorf("3 of 3: %v", err)
		}
		count(t, s, "tea", 20, 0)
	})
}

func TestReserve(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, s := t.Context(), client(t, &Options{SoldOutFor: -1})
		must(t, s.Set(ctx, "seat", 4, 2))
		for _, id := range []string{"a", "b"} {
			for range 2 {
				if r, err := s.Reserve(ctx, "seat", 1, id, time.Hour); err != nil || r != (Receipt{Reserved, 1}) {
					t.Fatalf("reserve: %v, %v", r, err)
				}
			}
		}
		if _, err := s.Reserve(ctx, "seat", 2, "c", 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Sell(ctx, "seat", 1, "d"); err != nil && !errors.Is(err, ErrSoldOut) {
			t.Fatal(err)
		}
		must(t, s.Confirm(ctx, "seat", "a"))
		must(t, s.Confirm(ctx, "seat", "a"))
		must(t, s.Cancel(ctx, "seat", "b"))
		must(t, s.Cancel(ctx, "seat", "b"))
		if err := s.Cancel(ctx, "seat", "a"); !errors.Is(err, ErrConflict) {
			t.Errorf("cancel of what is sold: %v", err)
		}
		if err := s.Confirm(ctx, "seat", "b"); !errors.Is(err, ErrConflict) {
			t.Errorf("confirm of what was cancelled: %v", err)
		}
		if err := s.Confirm(ctx, "seat", "nobody"); !errors.Is(err, ErrNoSale) {
			t.Errorf("confirm of nothing: %v", err)
		}
		// The lease of c ends, and its units can be sold.
		for sold := 0; sold < 3; {
			_, err := s.Sell(ctx, "seat", 1, fmt.Sprint("e", sold))
			if err == nil {
				sold++
			} else if !errors.Is(err, ErrSoldOut) {
				t.Fatal(err)
			}
			if sold == 2 {
				if _, err := s.Receipt(ctx, "seat", "d"); err == nil {
					break // it got the third unit
				}
			}
			if ctx.Err() != nil {
				t.Fatal("the lease does not end")
			}
		}
		err := s.Confirm(ctx, "seat", "c")
		if c, ok := errors.AsType[*ConflictError](err); !ok || c.Receipt != (Receipt{Lapsed, 2}) {
			t.Errorf("confirm of what has lapsed: %v", err)
		}
		must(t, s.Cancel(ctx, "seat", "c"))
		if _, err := s.Sell(ctx, "seat", 2, "c"); !errors.Is(err, ErrConflict) {
			t.Errorf("a sale under an id that has lapsed: %v", err)
		}
		count(t, s, "seat", 4, 0)
	})
}

// TestCancelBarsUnknownSale checks that an id cancelled before its first use is
// barred.
func TestCancelBarsUnknownSale(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, s := t.Context(), client(t, nil)
		must(t, s.Set(ctx, "x", 3, 3))
		must(t, s.Cancel(ctx, "x", "id"))
		_, err := s.Sell(ctx, "x", 1, "id")
		if c, ok := errors.AsType[*ConflictError](err); !ok || c.Receipt.State != Cancelled {
			t.Errorf("a sale under a barred id: %v", err)
		}
		if _, err := s.Sell(ctx, "x", 1, "other"); err != nil {
			t.Error(err)
		}
		if _, err := s.Sell(ctx, "x", 2, "other"); !errors.Is(err, ErrConflict) {
			t.Errorf("the same id for another number: %v", err)
		}
		if err := s.Add(ctx, "x", 1, "other"); !errors.Is(err, ErrConflict) {
			t.Errorf("the id of a sale for an addition: %v", err)
		}
		count(t, s, "x", 3, 2)
	})
}

// TestRebalance adds and removes shards while ids are used again: each sale is
// made once.
func TestRebalance(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, s, old := t.Context(), client(t, nil), client(t, nil)
		must(t, s.Set(ctx, "x", 100, 2))
		count(t, old, "x", 100, 100) // old has read the directory
		for i, shards := range []int{7, 3, 3, 16, 1, 0, 5} {
			must(t, s.Rebalance(ctx, "x", shards))
			k, err := s.directories.readFinished(ctx, "x")
			must(t, err)
			all, err := s.sender.readAllShards(ctx, "x", k)
			must(t, err)
			for j, l := range all {
				least := (100 - int64(5*i)) / int64(k.Shards)
				if j >= k.Shards && l.free != 0 || j < k.Shards && (l.free < least || l.free > least+1) {
					t.Errorf("with %d shards, shard %d has %d of %d", k.Shards, j, l.free, 100-5*i)
				}
			}
			for j := range 5 * i { // all ids that were ever sold, again
				if r, err := old.Sell(ctx, "x", 1, fmt.Sprint(j)); err != nil || r.State != Sold {
					t.Fatalf("with %d shards, sale %d again: %v, %v", shards, j, r, err)
				}
			}
			for j := 5 * i; j < 5*i+5; j++ {
				if _, err := old.Sell(ctx, "x", 1, fmt.Sprint(j)); err != nil {
					t.Fatal(err)
				}
			}
			count(t, s, "x", 100, 100-int64(5*i+5))
		}
		for j := range 35 {
			must(t, old.Return(ctx, "x", fmt.Sprint(j)))
		}
		count(t, s, "x", 100, 100)
		if _, err := s.Sell(ctx, "x", 100, "everything"); err != nil {
			t.Errorf("what was returned to drained shards is not found: %v", err)
		}
		count(t, s, "x", 100, 0)
	})
}

func TestReceiptsEndAfterKeep(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx, s := t.Context(), client(t, &Options{Keep: time.Second})
		must(t, s.Set(ctx, "x", 10, 2))
		_, err := s.Sell(ctx, "x", 1, "a")
		must(t, err)
		for err == nil {
			if _, err = s.Receipt(ctx, "x", "a"); ctx.Err() != nil {
				t.Fatal("it does not end")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if !errors.Is(err, ErrNoSale) {
			t.Error(err)
		}
		count(t, s, "x", 10, 9)
	})
}

func TestBadInput(t *testing.T) {
	ctx := t.Context()
	s, err := Open(ctx, nil, "memory:")
	must(t, err)
	defer s.Close()
	must(t, s.Set(ctx, "x", 1, 1))
	long := strings.Repeat("x", 257)
	for what, err := range map[string]error{
		"no SKU":         s.Set(ctx, "", 1, 1),
		"long SKU":       s.Set(ctx, long, 1, 1),
		"units":          s.Set(ctx, "y", -1, 1),
		"too many units": s.Set(ctx, "y", MaxUnits+1, 1),
		"no shards":      s.Set(ctx, "y", 1, 0),
		"many shards":    s.Set(ctx, "y", 1, MaxShards+1),
		"sell none":      second(s.Sell(ctx, "x", 0, "a")),
		"sell less":      second(s.Sell(ctx, "x", -1, "a")),
		"no id":          second(s.Sell(ctx, "x", 1, "")),
		"long id":        second(s.Sell(ctx, "x", 1, long)),
		"id of no SKU":   second(s.NewSaleID(ctx, "")),
		"no lease":       second(s.Reserve(ctx, "x", 1, "a", 0)),
		"rebalance":      s.Rebalance(ctx, "x", -1),
	} {
		if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrSoldOut) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Sell(ctx, "none", 1, "a"); !errors.Is(err, ErrNoProduct) {
		t.Errorf("no product: %v", err)
	}
	if _, err := s.NewSaleID(ctx, "none"); !errors.Is(err, ErrNoProduct) {
		t.Errorf("an id for no product: %v", err)
	}
	for _, o := range []*Options{{Keep: time.Millisecond}, {Patience: -1}, {Prefix: "{"}} {
		if _, err := Open(ctx, o, "memory:"); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	for _, urls := range [][]string{nil, {"http://x"}, {"redis://u:secret word@%zz"}, {"redis://:secret@localhost/x"}, {"redis://:secret@127.0.0.1:1"}} {
		_, err := Open(ctx, nil, urls...)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", urls, err)
		}
	}
	must(t, s.Close())
	if _, err := s.Sell(ctx, "x", 1, "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	s, err = Open(ctx, nil, "memory:")
	must(t, err)
	defer s.Close()
	if err := s.Set(ended, "x", 1, 1); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// TestNewSaleIDSpreadsOverShards checks that clients begin at random shards and
// go round, so that no shard receives more than its part.
func TestNewSaleIDSpreadsOverShards(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx := t.Context()
		must(t, client(t, nil).Set(ctx, "x", 1000, 5))
		begun, ids := map[int]int{}, map[string]bool{}
		for range 12 {
			s := client(t, nil)
			had := make([]int, 5)
			for i := range 50 {
				id, err := s.NewSaleID(ctx, "x")
				must(t, err)
				home := s.directories.product("x").dir.Load().home(id)
				if i == 0 {
					begun[home]++
				}
				had[home]++
				if ids[id] {
					t.Fatalf("%q again", id)
				}
				ids[id] = true
				if i < 5 {
					_, err := s.Sell(ctx, "x", 1, id)
					must(t, err)
				}
			}
			for i, n := range had {
				if n != 10 {
					t.Errorf("shard %d had %d turns of 50 in 5 shards", i, n)
				}
			}
			must(t, s.Close())
		}
		// All 12 begin at the same shard with probability 1 in 5^11.
		if len(begun) == 1 {
			t.Errorf("every client began at shard %v", begun)
		}
		count(t, client(t, nil), "x", 1000, 940)
	})
}

func second[T any](_ T, err error) error { return err }
