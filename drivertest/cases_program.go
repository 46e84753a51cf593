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
		// A random program, one request after the other, gets the same answers here
		// as from the executable specification.
		for seed := range uint64(programs) {
			if w.Failed() {
				return
			}
			w.program(seed)
		}
	}},
}

// program runs one program on the driver and in memory, step by step.
func (w *world) program(seed uint64) {
	store := memlock.NewStore()
	spec := newWorld(w.T, Harness{Open: func(T) driver.Driver { return memlock.New(store) }})
	defer spec.end()
	here, there := w.newProgramRunner(seed, w.traits), spec.newProgramRunner(seed, w.traits)
	for i := range steps {
		is, want := here.step(), there.step()
		if w.Failed() {
			return
		}
		if is != want {
			w.Fatalf("program %d, step %d: it is\n  %s\nand should be\n  %s\nafter\n  %s",
				seed, i, is, want, strings.Join(there.transcript[max(0, i-12):i], "\n  "))
			return
		}
	}
}

// programRunner runs a program. Its next step depends on the seed and on its
// earlier steps. It does not depend on answers, as long as they are correct.
type programRunner struct {
	w          *world
	rnd        *rand.Rand
	owners     bool
	names      []string
	clients    []*client
	all        []*programTicket
	transcript []string
	tokens     map[string][]uint64 // of exclusive grants, in each queue, as they were seen
}

// programTicket is a ticket of a program.
type programTicket struct {
	*driver.Ticket
	n      int
	client *client
	over   bool // it has left, or was refused: it does not join again
	held   bool // when it was last heard of
}

func (w *world) newProgramRunner(seed uint64, traits driver.Traits) *programRunner {
	p := &programRunner{w: w, rnd: rand.New(rand.NewPCG(seed, 0)), owners: traits.Owner, tokens: map[string][]uint64{}}
	for range 3 {
		p.clients = append(p.clients, w.clientIgnoringPushes())
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

func (p *programRunner) step() string {
	said := p.randomName()
	p.transcript = append(p.transcript, said)
	return said
}

func (p *programRunner) randomName() string {
	name := p.names[p.rnd.IntN(len(p.names))]
	switch k := p.rnd.IntN(100); {
	case k < 28:
		return p.join(p.newTicket(name), true)
	case k < 38:
		return p.join(p.newTicket(name), false)
	case k < 42:
		if x := p.pickTicket(func(x *programTicket) bool { return !x.over }); x != nil {
			return p.join(x, p.rnd.IntN(3) > 0)
		}
	case k < 46:
		if x := p.pickTicket(func(x *programTicket) bool { return x.held && !x.over && x.Owner == "" }); x != nil {
			y := p.copyTicket(x)
			y.Replaces, x.over = x.Ticket, true
			return p.join(y, true)
		}
	case k < 50:
		x := p.newTicket(name)
		x.Limit++
		return p.join(x, true)
	case k < 72:
		if x := p.pickTicket(func(x *programTicket) bool { return !x.over }); x != nil {
			return p.leave(x)
		}
	case k < 74:
		if x := p.pickTicket(func(x *programTicket) bool { return x.over }); x != nil {
			return p.leave(x)
		}
	case k < 86:
		if x := p.pickTicket(func(*programTicket) bool { return true }); x != nil {
			return p.renew(x)
		}
	case k < 91:
		dead := p.rnd.IntN(5) == 0
		if x := p.pickTicket(func(x *programTicket) bool { return dead == x.over }); x != nil {
			return p.breakTicket(x)
		}
	case k < 94:
		return p.listNames()
	}
	return p.inspect(name)
}

// pickTicket draws a ticket for which ok is true. It returns nil if there is
// none.
func (p *programRunner) pickTicket(ok func(*programTicket) bool) *programTicket {
	var xs []*programTicket
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

func (p *programRunner) newTicket(name string) *programTicket {
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
	x := &programTicket{Ticket: c.ticket(name, units, limit), n: len(p.all), client: c}
	if k := p.rnd.IntN(6); p.owners && k < 2 {
		x.Owner = fmt.Sprintf("owner %d", k)
	}
	p.all = append(p.all, x)
	return x
}

func (p *programRunner) copyTicket(of *programTicket) *programTicket {
	x := &programTicket{Ticket: of.client.ticket("", of.Units, of.Limit), n: len(p.all), client: of.client}
	x.Name = of.Name
	p.all = append(p.all, x)
	return x
}

func (p *programRunner) join(x *programTicket, wait bool) string {
	ctx, cancel := p.w.limit()
	defer cancel()
	does := fmt.Sprintf("client %d: Join(%d of %s, %d/%d units, owner %q, wait=%v)",
		slices.Index(p.clients, x.client), x.n, p.bareName(x.Name), x.Units, x.Limit, x.Owner, wait)
	if x.Replaces != nil {
		does += fmt.Sprintf(" for %d", p.numberOf(x.Replaces.ID))
	}
	a, err := x.client.d.Join(ctx, x.Ticket, wait)
	if err != nil || a.State == driver.Gone {
		x.over = true
	}
	return does + ": " + p.describeStatus(x, a, err)
}

func (p *programRunner) leave(x *programTicket) string {
	does := fmt.Sprintf("Leave(%d)", x.n)
	a := x.client.leaveAll([]driver.Ref{{Ticket: x.Ticket, State: state(x)}})[0]
	x.over, x.held = true, false
	a.Token = 0 // need not be told
	return does + ": " + a.State.String()
}

func (p *programRunner) renew(x *programTicket) string {
	does := fmt.Sprintf("Renew(%d)", x.n)
	return does + ": " + p.describeStatus(x, x.client.renewAll([]driver.Ref{{Ticket: x.Ticket, State: state(x)}})[0], nil)
}

func state(x *programTicket) driver.State {
	if x.held {
		return driver.Held
	}
	return driver.Waiting
}

// describeStatus describes the parts of an answer that must be the same on all
// stores: not the token itself, but its order among the earlier tokens.
func (p *programRunner) describeStatus(x *programTicket, a driver.Status, err error) string {
	if err != nil {
		return p.describeError(err)
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

// describeError tells errors apart as callers do.
func (p *programRunner) describeError(err error) string {
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

func (p *programRunner) breakTicket(x *programTicket) string {
	ctx, cancel := p.w.limit()
	defer cancel()
	said := fmt.Sprintf("Break(%d): ", x.n)
	if err := x.client.d.Break(ctx, x.Name, x.ID); err != nil {
		return said + p.describeError(err)
	}
	x.client.awaitBroken(x.Ticket)
	return said + "done"
}

// inspect lists holders by their numbers, and waiters in order. The order of an
// owner's tickets within their place is undefined.
func (p *programRunner) inspect(name string) string {
	name = p.w.name(name)
	l := p.w.queueOf(name)
	var held, waiting []int
	for _, e := range l.Tickets {
		n := p.numberOf(e.ID)
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
	return fmt.Sprintf("Inspect(%s): limit %d, held by %v, wait %v", p.bareName(name), l.Limit, held, waiting)
}

func (p *programRunner) listNames() string {
	ctx, cancel := context.WithTimeout(context.Background(), p.w.maxWait())
	defer cancel()
	var names []string
	for name, err := range p.w.witness().d.Names(ctx, p.w.tag) {
		if err != nil {
			return "Names: " + p.describeError(err)
		}
		if name = p.bareName(name); slices.Contains(p.names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("Names: %v", names)
}

func (p *programRunner) bareName(name string) string { return strings.TrimPrefix(name, p.w.tag) }

func (p *programRunner) numberOf(id string) int {
	return slices.IndexFunc(p.all, func(x *programTicket) bool { return x.ID == id })
}
