package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// counted is a backend that counts a client's requests.
type counted struct {
	backend
	n atomic.Int64
}

func (c *counted) ask(ctx context.Context, at shard, q request) (answer, error) {
	c.n.Add(1)
	return c.backend.ask(ctx, at, q)
}

// TestF119_DirectoryOlderThanItsShards restores a directory from before a
// Rebalance. The next call restores the later directory from the shards, in a
// few requests, and every id and unit is where it was.
func TestF119_DirectoryOlderThanItsShards(t *testing.T) {
	onEveryBackend(t, func(t *testing.T, client func(testing.TB, *Options) *Stock) {
		ctx := t.Context()
		calls := map[string]func(s *Stock, sku string) error{
			"Sell":      func(s *Stock, sku string) error { return second(s.Sell(ctx, sku, 1, "new")) },
			"Receipt":   func(s *Stock, sku string) error { return second(s.Receipt(ctx, sku, "id7")) },
			"Return":    func(s *Stock, sku string) error { return s.Return(ctx, sku, "id7") },
			"Total":     func(s *Stock, sku string) error { return second(s.Total(ctx, sku)) },
			"Rebalance": func(s *Stock, sku string) error { return s.Rebalance(ctx, sku, 6) },
			"level":     func(s *Stock, sku string) error { return s.Rebalance(ctx, sku, 0) },
		}
		a := client(t, &Options{SoldOutFor: -1})
		for name, call := range calls {
			sku := "x of " + name
			must(t, a.Set(ctx, sku, 100, 2))
			older, _, err := a.sender.backend.directory(ctx, sku)
			must(t, err)
			sell := func(s *Stock, i int) (Receipt, error) { return s.Sell(ctx, sku, 1, fmt.Sprint("id", i)) }
			for i := range 20 {
				must(t, second(sell(a, i)))
			}
			must(t, a.Rebalance(ctx, sku, 3))
			must(t, a.Rebalance(ctx, sku, 4))
			for i := 20; i < 40; i++ {
				must(t, second(sell(a, i)))
			}
			newer, _, err := a.sender.backend.directory(ctx, sku)
			must(t, err)
			ok, err := a.sender.backend.swap(ctx, sku, newer, older)
			if must(t, err); !ok {
				t.Fatal("the directory was not restored")
			}
			b := client(t, &Options{SoldOutFor: -1, Patience: time.Second})
			n := &counted{backend: b.sender.backend}
			b.sender.backend = n
			if err := call(b, sku); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if n := n.n.Load(); n > 80 {
				t.Errorf("%s took %d requests", name, n)
			}
			c := client(t, &Options{SoldOutFor: -1})
			for i := range 40 {
				if name == "Return" && i == 7 {
					continue
				}
				if r, err := sell(c, i); err != nil || r != (Receipt{Sold, 1}) {
					t.Errorf("%s: id %d again: %v, %v", name, i, r, err)
				}
			}
			left := int64(60)
			switch name {
			case "Sell":
				left--
			case "Return":
				left++
			}
			count(t, c, sku, 100, left)
		}
	})
}

// copyOf returns a deep copy of a shard.
func (c *memoryShard) copyOf() *memoryShard {
	d := *c
	d.look.out, d.look.in = maps.Clone(c.look.out), maps.Clone(c.look.in)
	d.seq, d.held, d.book = maps.Clone(c.seq), maps.Clone(c.held), maps.Clone(c.book)
	d.ends = slices.Clone(c.ends)
	return &d
}

// longRun is a random run over two months: long reservations, changes of the number
// of shards, and restores of the directory or of one shard.
type longRun struct {
	*testing.T
	m      *memory
	s      *Stock
	rand   *rand.Rand
	units  int64
	ids    int
	sales  map[string]*sale
	older  [][]byte                 // older directories
	shards map[shard][]*memoryShard // older shards
}

type sale struct {
	Receipt
	changed time.Time
	due     time.Time
}

const keepDays = 24 * time.Hour

// now returns the state of a sale, and the time at which its receipt last
// changed.
func (x *sale) now() (r Receipt, ends time.Time) {
	r, ends = x.Receipt, x.changed.Add(keepDays)
	if r.State == Reserved {
		if ends = x.due.Add(keepDays); !time.Now().Before(x.due) {
			r.State = Lapsed
		}
	}
	return r, ends
}

func (d *longRun) left() (free, reserved int64) {
	free = d.units
	for _, x := range d.sales {
		switch r, _ := x.now(); r.State {
		case Sold:
			free -= r.Units
		case Reserved:
			free -= r.Units
			reserved += r.Units
		}
	}
	return free, reserved
}

func (d *longRun) step() {
	ctx := d.Context()
	if d.rand.IntN(3) == 0 {
		d.s = over(d.T, d.m, &Options{SoldOutFor: -1, Patience: time.Second})
	}
	known := slices.Sorted(maps.Keys(d.sales))
	known = slices.DeleteFunc(known, func(id string) bool {
		_, ends := d.sales[id].now()
		return !time.Now().Before(ends)
	})
	switch n := d.rand.IntN(16); {
	case n < 3 || len(known) == 0:
		d.ids++
		id, units := fmt.Sprint("id", d.ids), 1+d.rand.Int64N(3)
		free, _ := d.left()
		x := &sale{Receipt{Sold, units}, time.Now(), time.Time{}}
		var err error
		if lease := time.Duration(d.rand.Int64N(int64(maxLease))); d.rand.IntN(2) == 0 {
			x.State, x.due = Reserved, time.Now().Add(lease.Truncate(time.Millisecond))
			_, err = d.s.Reserve(ctx, "x", units, id, lease)
		} else {
			_, err = d.s.Sell(ctx, "x", units, id)
		}
		if free >= units {
			must(d, err)
			d.sales[id] = x
		} else if !errors.Is(err, ErrSoldOut) {
			d.Fatalf("%d of %d: %v", units, free, err)
		}
	case n < 7: // an id that was sold before
		id := known[d.rand.IntN(len(known))]
		want, _ := d.sales[id].now()
		r, err := d.s.Sell(ctx, "x", want.Units, id)
		if c, ok := errors.AsType[*ConflictError](err); ok {
			r = c.Receipt
		} else if err != nil {
			d.Fatalf("%s, which is %v: %v", id, want, err)
		}
		if r != want {
			d.Fatalf("%s is %v, and was sold again: %v", id, want, r)
		}
	case n < 11:
		id := known[d.rand.IntN(len(known))]
		x := d.sales[id]
		r, _ := x.now()
		what := []struct {
			from, to State
			do       func(context.Context, string, string) error
		}{{Reserved, Sold, d.s.Confirm}, {Reserved, Cancelled, d.s.Cancel}, {Sold, Returned, d.s.Return}}[d.rand.IntN(3)]
		err := what.do(ctx, "x", id)
		switch {
		case r.State == what.from:
			must(d, err)
			x.Receipt, x.changed = Receipt{what.to, r.Units}, time.Now()
		case r.State == what.to, what.to == Cancelled && r.State == Lapsed:
			must(d, err)
		case !errors.Is(err, ErrConflict):
			d.Fatalf("%s, which is %v, is to be %v: %v", id, r, what.to, err)
		}
	case n < 13:
		must(d, d.s.Rebalance(ctx, "x", 1+d.rand.IntN(6)))
	case n < 14:
		d.older = append(d.older, bytes.Clone(d.m.dirs["x"]))
		for at, c := range d.m.shards {
			d.shards[at] = append(d.shards[at], c.copyOf())
		}
	case n < 15 && len(d.older) > 0:
		d.m.dirs["x"] = d.older[d.rand.IntN(len(d.older))]
	default:
		d.restoreOlderShard(known)
	}
}

// restoreOlderShard replaces a shard by one from before a change of their
// number. Every call that needs it is refused, and no other call is affected.
// Then the shard comes back.
func (d *longRun) restoreOlderShard(known []string) {
	for at, olds := range d.shards {
		c, old := d.m.shards[at], olds[d.rand.IntN(len(olds))]
		if old.epoch == c.epoch {
			continue // its later sales cannot be known
		}
		d.m.shards[at] = old.copyOf()
		s := over(d.T, d.m, &Options{SoldOutFor: -1, Patience: time.Second})
		ctx := d.Context()
		refused := func(err error) bool {
			return err != nil && (strings.Contains(err.Error(), "gone back to older data"))
		}
		for range 5 {
			id := known[d.rand.IntN(len(known))]
			want, _ := d.sales[id].now()
			r, err := s.Sell(ctx, "x", want.Units, id)
			if c, ok := errors.AsType[*ConflictError](err); ok {
				r, err = c.Receipt, nil
			}
			if !refused(err) && (err != nil || r != want) {
				d.Fatalf("shard %d is of epoch %d, the product of %d: %s is %v, and then %v, %v", at.i, old.epoch, c.epoch, id, want, r, err)
			}
		}
		if _, err := s.Total(ctx, "x"); !refused(err) {
			d.Fatalf("the total: %v", err)
		}
		if err := s.Rebalance(ctx, "x", 1+d.rand.IntN(6)); !refused(err) {
			d.Fatalf("the rebalance: %v", err)
		}
		d.m.shards[at] = c
		return
	}
}

// TestF119_RestoredPartsOverTwoMonths runs two months of sales, changes and
// restores.
//
// Covers: F120.
func TestF119_RestoredPartsOverTwoMonths(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(1 + int(seed%3))
			d := &longRun{
				T: t, m: m, rand: rand.New(rand.NewPCG(seed, 0)), units: 60,
				sales: map[string]*sale{}, shards: map[shard][]*memoryShard{},
			}
			d.s = over(t, m, &Options{SoldOutFor: -1, Keep: keepDays})
			must(t, d.s.Set(t.Context(), "x", d.units, 1+d.rand.IntN(4)))
			for begun := time.Now(); time.Since(begun) < 60*24*time.Hour; {
				d.step()
				free, reserved := d.left()
				total, err := d.s.Total(t.Context(), "x")
				if want := (Total{d.units, d.units - free - reserved, free + reserved, free + reserved, reserved, true}); err != nil || total != want {
					t.Fatalf("seed %d: the total is %+v, %v; want %+v", seed, total, err, want)
				}
				time.Sleep(time.Duration(d.rand.Int64N(int64(6 * time.Hour))))
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestF120_LongReservationsOutliveRebalance checks that reservations outlive the
// Rebalance that removes their home: they can be confirmed for as long as they
// last, and nothing is sold twice within Keep.
func TestF120_LongReservationsOutliveRebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m := newMemory(2)
		a := over(t, m, &Options{SoldOutFor: -1})
		must(t, a.Set(ctx, "x", 100, 2))
		id := func(i int) string { return fmt.Sprint("id", i) }
		for i := range 40 {
			must(t, second(a.Reserve(ctx, "x", 1, id(i), 48*time.Hour)))
		}
		must(t, a.Rebalance(ctx, "x", 6))
		time.Sleep(20 * time.Hour)
		for i := range 20 {
			must(t, a.Confirm(ctx, "x", id(i)))
		}
		time.Sleep(6 * time.Hour)
		for _, s := range []*Stock{a, over(t, m, &Options{SoldOutFor: -1})} {
			for i := range 20 {
				if r, err := s.Sell(ctx, "x", 1, id(i)); err != nil || r != (Receipt{Sold, 1}) {
					t.Errorf("%s again: %v, %v", id(i), r, err)
				}
			}
			count(t, s, "x", 100, 80)
		}
		for i := 20; i < 40; i++ {
			must(t, a.Confirm(ctx, "x", id(i)))
		}
		count(t, a, "x", 100, 60)
		// In the end, the earlier numbers of shards are forgotten.
		time.Sleep(48*time.Hour + 2*24*time.Hour)
		if _, k, err := over(t, m, nil).directories.find(ctx, "x", nil); err != nil || len(k.Past) != 0 {
			t.Errorf("the past is %+v, %v", k.Past, err)
		}
	})
}
