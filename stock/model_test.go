package stock

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// model is the plain model of a product: its units, and the state of each id.
type model struct {
	units int64
	sales map[string]Receipt
}

// free returns the units that can be sold.
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

// program is a random run of calls by several clients, one call at a time. The
// store loses requests and answers and delivers some of them late, and clients
// die between any two requests. Every answer is compared with the model's. The
// outcome of a call without an answer is looked up.
type program struct {
	*testing.T
	rand    *rand.Rand
	model   model
	clean   *Stock
	make    func() (*Stock, *flakyBackend)
	clients []*Stock
	nets    []*flakyBackend // of live clients; those of dead clients still deliver
	dead    []*flakyBackend
	ids     int
	log     []string
}

// long is a lease that no call outlasts. When time passes, it is more than
// that.
const long = time.Hour

func newProgram(t *testing.T, seed uint64, rate float64, client func(wrap func(backend) backend) *Stock) *program {
	p := &program{T: t, rand: rand.New(rand.NewPCG(seed, 0)), model: model{sales: map[string]Receipt{}}}
	p.clean = client(func(b backend) backend { return b })
	n := uint64(0)
	p.make = func() (*Stock, *flakyBackend) {
		var f *flakyBackend
		n++
		s := client(func(b backend) backend {
			f = &flakyBackend{backend: b, rate: rate, rand: rand.New(rand.NewPCG(seed, n))}
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

// run makes steps. With pass, time passes between some of them.
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

// audit compares the total and each receipt with the model.
func (p *program) audit() {
	p.Helper()
	p.deliverLate()
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

// deliverLate delivers all requests that are still on their way.
func (p *program) deliverLate() {
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

// id returns a new id or a used one.
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
		p.checkSale("sell", id, Receipt{Sold, units}, err)
	case n < 11:
		_, err = s.Reserve(ctx, "x", units, id, long)
		p.checkSale("reserve", id, Receipt{Reserved, units}, err)
	case n < 12:
		err = s.Add(ctx, "x", units, id)
		p.checkSale("add", id, Receipt{Added, units}, err)
	case n < 14:
		p.checkChange("confirm", id, Reserved, Sold, s.Confirm(ctx, "x", id))
	case n < 16:
		p.checkChange("cancel", id, Reserved, Cancelled, s.Cancel(ctx, "x", id))
	case n < 18:
		p.checkChange("return", id, Sold, Returned, s.Return(ctx, "x", id))
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

// unanswered reports whether a call had no answer.
func unanswered(err error) bool {
	return errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) || errors.Is(err, errDead)
}

// checkSale checks the answers of Sell, Reserve and Add.
func (p *program) checkSale(what, id string, want Receipt, err error) {
	p.Helper()
	old, known := p.model.sales[id]
	p.log = append(p.log, fmt.Sprintf("%s %d %s, was %v, free %d: %v", what, want.Units, id, old, p.model.free(), err))
	fits := old == want || what == "reserve" && old == Receipt{Sold, want.Units}
	switch {
	case unanswered(err):
		before := p.receipt(id)
		if p.deliverLate(); !known {
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
		// The product stays sold out. If a late request still sold a unit, the
		// next audit would find it.
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

// checkChange checks the answers of Confirm, Cancel and Return.
func (p *program) checkChange(what, id string, from, to State, err error) {
	p.Helper()
	old, known := p.model.sales[id]
	p.log = append(p.log, fmt.Sprintf("%s %s, was %v: %v", what, id, old, err))
	want := old
	if old.State == from || !known && to == Cancelled {
		want.State = to
	}
	switch {
	case unanswered(err):
		p.deliverLate()
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

func TestModelOnServers(t *testing.T) {
	for _, at := range []place{onRedis, onThree, onCluster, onPostgres, onMariaDB} {
		t.Run(at.name, func(t *testing.T) {
			seeds, steps := uint64(6), 80
			if at.name == onPostgres.name || at.name == onMariaDB.name {
				seeds, steps = 3, 60 // each request is several statements
			}
			for seed := range seeds {
				client := at.open(t)
				p := newProgram(t, seed, 0.05*float64(seed%3), func(wrap func(backend) backend) *Stock {
					s := client(t, &Options{SoldOutFor: -1})
					s.sender.backend = wrap(s.sender.backend)
					return s
				})
				p.run(steps, false)
			}
		})
	}
}
