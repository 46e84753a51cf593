package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// programs is how many are played, and steps how long each of them is.
const programs, steps = 4, 120

var programCases = []Case{
	{Name: "program", Rules: "Driver 6, Join 1, 2, 3, 4, 5, 6, 7, 8, Renew 2, 3, Leave 1, 2, 5, Inspect 1, Names 1, Break 1, 3", Needs: Fair, run: func(w *world) {
		// What a random program does, one request after the other, has the same
		// answers here as in the executable specification.
		for seed := range uint64(programs) {
			if w.Failed() {
				return
			}
			w.program(seed)
		}
	}},
}

// program plays one program here and in memory, step by step.
func (w *world) program(seed uint64) {
	store := memlock.NewStore()
	spec := newWorld(w.T, Harness{Open: func(T) driver.Driver { return memlock.New(store) }})
	defer spec.end()
	here, there := w.player(seed, w.traits), spec.player(seed, w.traits)
	for i := range steps {
		is, want := here.step(), there.step()
		if w.Failed() {
			return
		}
		if is != want {
			w.Fatalf("program %d, step %d: it is\n  %s\nand should be\n  %s\nafter\n  %s",
				seed, i, is, want, strings.Join(there.said[max(0, i-12):i], "\n  "))
			return
		}
	}
}

// A player plays a program. What it does next depends on the seed and on what it
// has done, not on answers, as long as these are as they should be.
type player struct {
	w       *world
	rnd     *rand.Rand
	owners  bool
	names   []string
	clients []*client
	all     []*played
	said    []string
	tokens  map[string][]uint64 // of exclusive grants, in each line, as they were seen
}

// played is a ticket of a program.
type played struct {
	*driver.Ticket
	n    int
	c    *client
	over bool // it has left, or was refused: it does not join again
	held bool // when it was last heard of
}

func (w *world) player(seed uint64, traits driver.Traits) *player {
	p := &player{w: w, rnd: rand.New(rand.NewPCG(seed, 0)), owners: traits.Owner, tokens: map[string][]uint64{}}
	for range 3 {
		p.clients = append(p.clients, w.deaf())
	}
	p.names = []string{"m"}
	if traits.Shared {
		p.names = append(p.names, "rw", "s")
	}
	for i := range p.names {
		p.names[i] = fmt.Sprintf("%s%d", p.names[i], seed)
	}
	return p
}

func (p *player) step() string {
	said := p.any()
	p.said = append(p.said, said)
	return said
}

func (p *player) any() string {
	name := p.names[p.rnd.IntN(len(p.names))]
	switch k := p.rnd.IntN(100); {
	case k < 28:
		return p.join(p.fresh(name), true)
	case k < 38:
		return p.join(p.fresh(name), false)
	case k < 42:
		if x := p.one(func(x *played) bool { return !x.over }); x != nil {
			return p.join(x, p.rnd.IntN(3) > 0)
		}
	case k < 46:
		if x := p.one(func(x *played) bool { return x.held && !x.over && x.Owner == "" }); x != nil {
			y := p.copy(x)
			y.Replaces, x.over = x.Ticket, true
			return p.join(y, true)
		}
	case k < 50:
		x := p.fresh(name)
		x.Limit++
		return p.join(x, true)
	case k < 72:
		if x := p.one(func(x *played) bool { return !x.over }); x != nil {
			return p.leave(x)
		}
	case k < 74:
		if x := p.one(func(x *played) bool { return x.over }); x != nil {
			return p.leave(x)
		}
	case k < 86:
		if x := p.one(func(*played) bool { return true }); x != nil {
			return p.renew(x)
		}
	case k < 91:
		dead := p.rnd.IntN(5) == 0
		if x := p.one(func(x *played) bool { return dead == x.over }); x != nil {
			return p.brk(x)
		}
	case k < 94:
		return p.lines()
	}
	return p.inspect(name)
}

// one draws a ticket for which ok is true, nil if there is none.
func (p *player) one(ok func(*played) bool) *played {
	var xs []*played
	for _, x := range p.all {
		if ok(x) {
			xs = append(xs, x)
		}
	}
	if len(xs) == 0 {
		return nil
	}
	return xs[p.rnd.IntN(len(xs))]
}

func (p *player) fresh(name string) *played {
	units, limit := int64(1), int64(1)
	switch name[0] {
	case 'r':
		limit = driver.RWLimit
		if p.rnd.IntN(2) == 0 {
			units = limit
		}
	case 's':
		limit = 5
		units = 1 + p.rnd.Int64N(5)
	}
	c := p.clients[p.rnd.IntN(len(p.clients))]
	x := &played{Ticket: c.ticket(name, units, limit), n: len(p.all), c: c}
	if k := p.rnd.IntN(6); p.owners && k < 2 {
		x.Owner = fmt.Sprintf("owner %d", k)
	}
	p.all = append(p.all, x)
	return x
}

func (p *player) copy(of *played) *played {
	x := &played{Ticket: of.c.ticket("", of.Units, of.Limit), n: len(p.all), c: of.c}
	x.Name = of.Name
	p.all = append(p.all, x)
	return x
}

func (p *player) join(x *played, wait bool) string {
	ctx, cancel := p.w.limit()
	defer cancel()
	does := fmt.Sprintf("client %d: Join(%d of %s, %d/%d units, owner %q, wait=%v)",
		slices.Index(p.clients, x.c), x.n, p.bare(x.Name), x.Units, x.Limit, x.Owner, wait)
	if x.Replaces != nil {
		does += fmt.Sprintf(" for %d", p.number(x.Replaces.ID))
	}
	a, err := x.c.d.Join(ctx, x.Ticket, wait)
	if err != nil || a.State == driver.Gone {
		x.over = true
	}
	return does + ": " + p.answer(x, a, err)
}

func (p *player) leave(x *played) string {
	does := fmt.Sprintf("Leave(%d)", x.n)
	a := x.c.leaveAll([]driver.Ref{{Ticket: x.Ticket, State: state(x)}})[0]
	x.over, x.held = true, false
	a.Token = 0 // need not be told
	return does + ": " + a.State.String()
}

func (p *player) renew(x *played) string {
	does := fmt.Sprintf("Renew(%d)", x.n)
	return does + ": " + p.answer(x, x.c.renewAll([]driver.Ref{{Ticket: x.Ticket, State: state(x)}})[0], nil)
}

func state(x *played) driver.State {
	if x.held {
		return driver.Held
	}
	return driver.Waiting
}

// answer puts into words what must be the same: not the token itself, but how it
// stands to those before it.
func (p *player) answer(x *played, a driver.Place, err error) string {
	if err != nil {
		return p.refusal(err)
	}
	x.held = a.State == driver.Held
	said := a.State.String()
	if a.State == driver.Waiting && a.Ahead == 0 {
		said += " with nobody ahead"
	}
	if !x.held || !x.Exclusive() || !p.w.traits.Fencing {
		return said
	}
	seen := p.tokens[x.Name]
	i, was := slices.BinarySearch(seen, a.Token)
	if !was {
		p.tokens[x.Name] = slices.Insert(seen, i, a.Token)
	}
	return fmt.Sprintf("%s, token %d of %d", said, i+1, len(p.tokens[x.Name]))
}

// refusal tells errors apart as callers do.
func (p *player) refusal(err error) string {
	var limit *driver.LimitError
	switch {
	case errors.As(err, &limit):
		return fmt.Sprintf("the line has the limit %d, not %d", limit.Have, limit.Want)
	case errors.Is(err, driver.ErrUpgrade):
		return "no upgrade"
	case errors.Is(err, driver.ErrNoTicket):
		return "no such ticket"
	}
	p.w.Errorf("%v", err)
	return err.Error()
}

func (p *player) brk(x *played) string {
	ctx, cancel := p.w.limit()
	defer cancel()
	said := fmt.Sprintf("Break(%d): ", x.n)
	if err := x.c.d.Break(ctx, x.Name, x.ID); err != nil {
		return said + p.refusal(err)
	}
	return said + "done"
}

// inspect lists holders by their numbers, and waiters in their order; which of an
// owner's tickets comes first in their place is open.
func (p *player) inspect(name string) string {
	name = p.w.name(name)
	l := p.w.lineOf(name)
	var held, waiting []int
	for _, e := range l.Tickets {
		n := p.number(e.ID)
		if n < 0 || e.Owner != p.all[n].Owner || e.Units != p.all[n].Units && e.Owner == "" {
			p.w.Errorf("Inspect: %d, %s, has %d units and the owner %q", n, e.ID, e.Units, e.Owner)
			continue
		}
		if e.State == driver.Held {
			held = append(held, n)
			continue
		}
		waiting = append(waiting, n)
		for i := len(waiting) - 1; i > 0 && e.Owner != "" && p.all[waiting[i-1]].Owner == e.Owner && waiting[i-1] > n; i-- {
			waiting[i-1], waiting[i] = n, waiting[i-1]
		}
	}
	slices.Sort(held)
	return fmt.Sprintf("Inspect(%s): limit %d, held by %v, wait %v", p.bare(name), l.Limit, held, waiting)
}

func (p *player) lines() string {
	ctx, cancel := context.WithTimeout(context.Background(), p.w.patience())
	defer cancel()
	var names []string
	for name, err := range p.w.witness().d.Names(ctx, p.w.tag) {
		if err != nil {
			return "Names: " + p.refusal(err)
		}
		if name = p.bare(name); slices.Contains(p.names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("Names: %v", names)
}

func (p *player) bare(name string) string { return strings.TrimPrefix(name, p.w.tag) }

func (p *player) number(id string) int {
	return slices.IndexFunc(p.all, func(x *played) bool { return x.ID == id })
}
