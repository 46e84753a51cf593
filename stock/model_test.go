package stock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The plain model of a product: what there was, and what became of each id.
type model struct {
	units int64
	sales map[string]Receipt
}

// free is what can be sold.
func (m *model) free() int64 {
	n := m.units
	for _, r := range m.sales {
		switch r.State {
		case Sold, Reserved:
			n -= r.Units
		case Added:
			n += r.Units
		}
	}
	return n
}

// program is a random run of calls by several clients, one call at a time, on
// a store that loses requests and answers, delivers some of them late, and whose
// clients die between any two requests. Every answer is compared with the
// model's; what became of a call without an answer is looked up.
type program struct {
	*testing.T
	rand    *rand.Rand
	model   model
	clean   *Stock
	make    func() (*Stock, *flaky)
	clients []*Stock
	nets    []*flaky // of the living; those of the dead deliver still
	dead    []*flaky
	ids     int
	log     []string
}

// long is a lease that no call outlasts; time passes by more than that.
const long = time.Hour

func newProgram(t *testing.T, seed uint64, rate float64, client func(wrap func(backend) backend) *Stock) *program {
	p := &program{T: t, rand: rand.New(rand.NewPCG(seed, 0)), model: model{sales: map[string]Receipt{}}}
	p.clean = client(func(b backend) backend { return b })
	n := uint64(0)
	p.make = func() (*Stock, *flaky) {
		var f *flaky
		n++
		s := client(func(b backend) backend {
			f = &flaky{backend: b, rate: rate, rand: rand.New(rand.NewPCG(seed, n))}
			return f
		})
		return s, f
	}
	for range 3 {
		s, f := p.make()
		p.clients, p.nets = append(p.clients, s), append(p.nets, f)
	}
	p.model.units = p.rand.Int64N(40)
	must(t, p.clean.Set(t.Context(), "x", p.model.units, 1+p.rand.IntN(6)))
	return p
}

func (p *program) failf(format string, args ...any) {
	p.Helper()
	for _, line := range p.log {
		p.Log(line)
	}
	p.Fatalf(format, args...)
}

// run makes steps; with pass, time passes between some of them.
func (p *program) run(steps int, pass bool) {
	for i := range steps {
		p.step()
		for _, f := range slices.Concat(p.nets, p.dead) {
			if p.rand.IntN(4) == 0 {
				f.deliver()
			}
		}
		if pass && i%20 == 19 {
			time.Sleep(2 * long)
			for id, r := range p.model.sales {
				if r.State == Reserved {
					p.model.sales[id] = Receipt{Lapsed, r.Units}
				}
			}
		}
		if p.rand.IntN(10) == 0 {
			p.audit()
		}
	}
	p.audit()
}

// audit compares everything: the total, and each receipt.
func (p *program) audit() {
	p.Helper()
	p.calm()
	t, err := p.clean.Total(p.Context(), "x")
	var left, reserved, added int64
	for _, r := range p.model.sales {
		switch r.State {
		case Reserved:
			reserved += r.Units
		case Added:
			added += r.Units
		}
	}
	left = p.model.free() + reserved
	units := p.model.units + added
	if want := (Total{units, units - left, left, left, reserved, true}); err != nil || t != want {
		p.failf("the total is %+v, %v; want %+v", t, err, want)
	}
	for id, want := range p.model.sales {
		if got := p.receipt(id); got != want {
			p.failf("%s is %v, want %v", id, got, want)
		}
	}
}

// calm lets everything arrive that is still on its way.
func (p *program) calm() {
	for _, f := range slices.Concat(p.nets, p.dead) {
		f.deliver()
	}
}

func (p *program) receipt(id string) Receipt {
	r, err := p.clean.Receipt(p.Context(), "x", id)
	if err != nil && !errors.Is(err, ErrNoSale) {
		p.failf("receipt of %s: %v", id, err)
	}
	return r
}

// id is a new one, or one that was used.
func (p *program) id() string {
	if p.rand.IntN(3) > 0 && len(p.model.sales) > 0 {
		ids := slices.Sorted(maps.Keys(p.model.sales))
		return ids[p.rand.IntN(len(ids))]
	}
	p.ids++
	return fmt.Sprint("id", p.ids)
}

func (p *program) step() {
	i := p.rand.IntN(len(p.clients))
	if p.rand.IntN(12) == 0 {
		p.nets[i].mu.Lock()
		p.nets[i].left = 1 + p.rand.IntN(8)
		p.nets[i].mu.Unlock()
	}
	s, ctx, id := p.clients[i], p.Context(), p.id()
	units := 1 + p.rand.Int64N(6)
	old, known := p.model.sales[id]
	if known && old.State != Cancelled && p.rand.IntN(4) > 0 {
		units = old.Units
	}
	var err error
	switch n := p.rand.IntN(20); {
	case n < 8:
		_, err = s.Sell(ctx, "x", units, id)
		p.sold("sell", id, Receipt{Sold, units}, err)
	case n < 11:
		_, err = s.Reserve(ctx, "x", units, id, long)
		p.sold("reserve", id, Receipt{Reserved, units}, err)
	case n < 12:
		err = s.Add(ctx, "x", units, id)
		p.sold("add", id, Receipt{Added, units}, err)
	case n < 14:
		p.became("confirm", id, Reserved, Sold, s.Confirm(ctx, "x", id))
	case n < 16:
		p.became("cancel", id, Reserved, Cancelled, s.Cancel(ctx, "x", id))
	case n < 18:
		p.became("return", id, Sold, Returned, s.Return(ctx, "x", id))
	case n < 19:
		shards := p.rand.IntN(8)
		p.log = append(p.log, fmt.Sprintf("rebalance %d: %v", shards, s.Rebalance(ctx, "x", shards)))
	default:
		t, err := s.Total(ctx, "x")
		p.log = append(p.log, fmt.Sprintf("total %+v: %v", t, err))
		if errors.Is(err, ErrUnbalanced) {
			p.failf("%v", err)
		}
	}
	if p.nets[i].dead {
		p.dead = append(p.dead, p.nets[i])
		p.clients[i], p.nets[i] = p.make()
	}
}

// vague says that a call has no answer.
func vague(err error) bool {
	return errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) || errors.Is(err, errDead)
}

// sold judges Sell, Reserve and Add.
func (p *program) sold(what, id string, want Receipt, err error) {
	p.Helper()
	old, known := p.model.sales[id]
	p.log = append(p.log, fmt.Sprintf("%s %d %s, was %v, free %d: %v", what, want.Units, id, old, p.model.free(), err))
	fits := old == want || what == "reserve" && old == Receipt{Sold, want.Units}
	switch {
	case vague(err):
		before := p.receipt(id)
		if p.calm(); !known {
			got := p.receipt(id)
			if got != (Receipt{}) && got != want || before != (Receipt{}) && got != before {
				p.failf("%s of unknown outcome became %v, then %v", id, before, got)
			}
			if errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) && got != (Receipt{}) {
				p.failf("%s was not done, and is %v", id, got)
			}
			if got != (Receipt{}) {
				p.model.sales[id] = got
			}
		}
	case known && fits:
		if err != nil {
			p.failf("repeated: %v", err)
		}
	case known:
		if c, ok := errors.AsType[*ConflictError](err); !ok || c.Receipt != old {
			p.failf("%s is %v, and the answer %v", id, old, err)
		}
	case what != "add" && p.model.free() < want.Units:
		if out, ok := errors.AsType[*SoldOutError](err); !ok || out.Left != p.model.free() {
			p.failf("%d are left: %v", p.model.free(), err)
		}
		// What is sold out stays so: a request that arrives late would be found
		// by the next audit.
	default:
		if err != nil {
			p.failf("%d are left: %v", p.model.free(), err)
		}
		p.model.sales[id] = want
	}
	if p.model.free() < 0 {
		p.failf("%d units are left", p.model.free())
	}
}

// became judges Confirm, Cancel and Return.
func (p *program) became(what, id string, from, to State, err error) {
	p.Helper()
	old, known := p.model.sales[id]
	p.log = append(p.log, fmt.Sprintf("%s %s, was %v: %v", what, id, old, err))
	want := old
	if old.State == from || !known && to == Cancelled {
		want.State = to
	}
	switch {
	case vague(err):
		p.calm()
		got := p.receipt(id)
		if got != old && got != want {
			p.failf("%s was %v and is %v", id, old, got)
		}
		want = got
	case !known && to != Cancelled:
		if !errors.Is(err, ErrNoSale) {
			p.failf("nothing is known of %s: %v", id, err)
		}
	case want.State == to || to == Cancelled && want.State == Lapsed:
		if err != nil {
			p.failf("it was %v: %v", old, err)
		}
	default:
		if c, ok := errors.AsType[*ConflictError](err); !ok || c.Receipt != old {
			p.failf("%s is %v, and the answer %v", id, old, err)
		}
	}
	if want != (Receipt{}) {
		p.model.sales[id] = want
	}
}

func TestModelInMemory(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(1 + int(seed%3))
				rate := []float64{0, 0.05, 0.3}[seed%3]
				p := newProgram(t, seed, rate, func(wrap func(backend) backend) *Stock {
					return over(t, wrap(m), &Options{SoldOutFor: -1, Keep: 1e4 * long})
				})
				p.run(120, true)
			})
		})
	}
}

func TestModelOnRedis(t *testing.T) {
	for _, at := range []place{onRedis, onThree, onCluster} {
		t.Run(at.name, func(t *testing.T) {
			for seed := range uint64(6) {
				client := at.open(t)
				p := newProgram(t, seed, 0.05*float64(seed%3), func(wrap func(backend) backend) *Stock {
					s := client(t, &Options{SoldOutFor: -1})
					s.backend = wrap(s.backend)
					return s
				})
				p.run(80, false)
			}
		})
	}
}

// Many at once, on a store that fails, with clients that die and shards that
// come and go: what was said is true, and the numbers add up.
func TestTogether(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(3)
			clean := over(t, m, nil)
			const units, clients, each = 400, 6, 16
			must(t, clean.Set(t.Context(), "x", units, 5))
			said := make([]map[string]error, clients*each)
			var all sync.WaitGroup
			for c := range clients {
				f := &flaky{backend: m, rate: 0.1, rand: rand.New(rand.NewPCG(seed, uint64(c)))}
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

// What is known to be sold out is not asked for, until it may have come back.
func TestSoldOutIsAnsweredHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, m := t.Context(), newMemory(1)
		f := &flaky{backend: m, rand: rand.New(rand.NewPCG(1, 1))}
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
		// A sale of unknown outcome is asked for.
		if _, err := s.Sell(ctx, "x", 1, "e"); !errors.Is(err, ErrSoldOut) {
			t.Fatal(err)
		}
		must(t, s.Return(ctx, "x", "d")) // forgets that it is sold out
		f.rate = 1
		s.o.Patience = time.Millisecond
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
		must(t, err) // by now it is sold in any case
		s.product("x").empty.Store(&emptied{time.Now().Add(time.Hour), 0})
		if _, err := s.Sell(ctx, "x", 2, "g"); !errors.Is(err, ErrSoldOut) {
			t.Error(err)
		}
		if r, err := s.Sell(ctx, "x", 2, "f"); err != nil || r.State != Sold {
			t.Errorf("a sale of unknown outcome is answered without asking: %v, %v", r, err)
		}
	})
}

// delayed keeps back the first sale that is sent, and says that its answer was
// lost.
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

// A request that may still arrive is not called sold out: it could find units
// that came back.
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
	must(t, other.Cancel(ctx, "x", "b")) // the caller gives it up
	must(t, other.Return(ctx, "x", "a"))
	d.arrive()
	count(t, other, "x", 1, 1)
}
