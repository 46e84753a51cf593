package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// step plays one step, and checks what comes of it.
func (p *edgePlayer) step(do, name, other, says string, to edgeState) error {
	x := p.tickets[name]
	if do == "replace" || x.spent && (do == "join" || do == "try" || do == "pending") {
		p.renew(name)
	}
	if do == "leave" || do == "pending" {
		// Where the client itself finds out that it is first, a renewal tells it.
		if err := p.hear(name); err != nil {
			return err
		}
	}
	if err := p.request(do, name, other, says, to); err != nil {
		return err
	}
	p.follow(do, name, other, to)
	if do == "fresh" {
		return nil
	}
	return p.inspect()
}

// request sends the request of a step, and compares its answer.
func (p *edgePlayer) request(do, name, other, says string, to edgeState) error {
	ctx, cancel := p.w.limit()
	defer cancel()
	x, d := p.tickets[name], p.clients[name].d
	var s driver.Status
	var err error
	switch do {
	case "join", "try", "replace":
		if do == "replace" {
			x.Replaces = p.tickets[other].Ticket
		}
		s, err = p.untilTold(x, func() (driver.Status, error) { return d.Join(ctx, x.Ticket, do != "try") })
		if says == "refused" {
			return refusedUpgrade(err)
		}
		if err == nil {
			err = p.compare(do, name, s, says, to)
		}
	case "renew":
		s, err = p.untilTold(x, func() (driver.Status, error) {
			return one(d.Renew(ctx, []driver.Ref{{Ticket: x.Ticket, State: driver.Held}}))
		})
		if err == nil {
			err = p.compare(do, name, s, says, to)
		}
	case "leave", "pending":
		s, err = one(d.Leave(ctx, []driver.Ref{{Ticket: x.Ticket, State: driver.Held, JoinPending: do == "pending"}}))
		if err == nil && s.State.String() != says {
			err = fmt.Errorf("it answers %v", s.State)
		}
	case "break":
		err = p.w.witness().d.Break(ctx, x.Name, x.ID)
		x.broken = says == "done"
		if says == "no-ticket" && errors.Is(err, driver.ErrNoTicket) {
			err = nil
		} else if err == nil && says != "done" {
			err = errors.New("it answers nil")
		}
	case "expire":
		err = p.expire(ctx, name)
	case "fresh":
		p.renew(name)
	default:
		err = errors.New("there is no such request")
	}
	return err
}

// refusedUpgrade checks the answer to a Join that asks for more units than its owner's
// place has.
func refusedUpgrade(err error) error {
	if errors.Is(err, driver.ErrUpgrade) {
		return nil
	}
	return fmt.Errorf("it answers %w, want %w", err, driver.ErrUpgrade)
}

// untilTold asks again while the client of a ticket that was broken has not heard
// of it: the push may arrive after the answer to Break (Break 2).
func (p *edgePlayer) untilTold(x *edgeTicket, ask func() (driver.Status, error)) (driver.Status, error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s, err := ask()
		if err != nil || s.State != driver.Held || !x.broken || !p.w.traits.Push || time.Now().After(end) {
			return s, err
		}
	}
}

// one returns the only answer of a batch.
func one(all []driver.Status, err error) (driver.Status, error) {
	switch {
	case err != nil:
		return driver.Status{}, err
	case len(all) != 1:
		return driver.Status{}, fmt.Errorf("%d answers", len(all))
	}
	return all[0], all[0].Err
}

// compare compares the answer of Join or Renew with the state that it leads to.
func (p *edgePlayer) compare(do, name string, s driver.Status, says string, to edgeState) error {
	if s.State.String() != says {
		return fmt.Errorf("it answers %v", s.State)
	}
	if s.State == driver.Gone {
		return nil
	}
	if s.Lease < p.ttl {
		return fmt.Errorf("the lease is %v with a TTL of %v", s.Lease, p.ttl)
	}
	if s.State == driver.Waiting {
		return p.compareAhead(s.Ahead, p.ahead(to, name), do)
	}
	x := p.tickets[name]
	x.told = true
	p.granted(name, to)
	return p.compareToken(x, s.Token)
}

// granted numbers the grant of a ticket that holds. The tickets of an owner have one.
func (p *edgePlayer) granted(name string, in edgeState) {
	x := p.tickets[name]
	if x.grant != 0 {
		return
	}
	for _, t := range in.held {
		if y := p.tickets[string(t)]; y.grant != 0 && p.g.owned(name) && p.g.owned(string(t)) {
			x.grant = y.grant
			return
		}
	}
	p.grants++
	x.grant = p.grants
}

// ahead returns the number of places before that of a ticket.
func (p *edgePlayer) ahead(in edgeState, name string) (n int) {
	owners := false
	for _, t := range in.queue() {
		owned := p.g.owned(string(t))
		if string(t) == name || owned && p.g.owned(name) {
			break
		}
		if !owned || !owners {
			n++
		}
		owners = owners || owned
	}
	return n
}

// compareAhead compares the places ahead of a waiting ticket. A renewal may count
// those that left since the client last looked, as on ZooKeeper, where the one that
// a client watches stays: these are logged.
func (p *edgePlayer) compareAhead(is, want int, do string) error {
	switch {
	case is == -1 || is == want:
	case is > want && p.expired:
	case is > want && do == "renew":
		p.late++
	default:
		return fmt.Errorf("%d are ahead", is)
	}
	return nil
}

// compareToken compares a token with those of earlier and later grants.
func (p *edgePlayer) compareToken(x *edgeTicket, token uint64) error {
	if !p.w.traits.Fencing {
		return nil
	}
	now := edgeToken{x.grant, token, x.Exclusive()}
	for _, was := range p.tokens {
		ok := true
		switch strict := was.exclusive || now.exclusive; {
		case was.grant == now.grant:
			ok = was.token == token
		case was.grant < now.grant:
			ok = was.token < token || !strict && was.token == token
		default:
			ok = was.token > token || !strict && was.token == token
		}
		if !ok {
			return fmt.Errorf("grant %d has the token %d, and grant %d had %d", now.grant, token, was.grant, was.token)
		}
	}
	p.tokens = append(p.tokens, now)
	return nil
}

// hear renews a ticket whose client has not heard of its grant.
func (p *edgePlayer) hear(name string) error {
	x := p.tickets[name]
	if !strings.Contains(p.state.held, name) || x.told {
		return nil
	}
	return p.request("renew", name, "", driver.Held.String(), p.state)
}

// expire lets the place of one ticket end, and keeps the others.
func (p *edgePlayer) expire(ctx context.Context, name string) error {
	p.expired = true
	for range 2 {
		for _, other := range p.state.queue() {
			if string(other) == name {
				continue
			}
			x := p.tickets[string(other)]
			s, err := one(p.clients[string(other)].d.Renew(ctx, []driver.Ref{{Ticket: x.Ticket, State: driver.Held}}))
			if err != nil || s.State == driver.Gone {
				return fmt.Errorf("renewing %c meanwhile: %v, %w", other, s.State, err)
			}
		}
		time.Sleep(p.ttl * 6 / 10)
	}
	return nil
}

// follow notes the state that a step leads to.
func (p *edgePlayer) follow(do, name, other string, to edgeState) {
	for _, t := range to.held {
		p.granted(string(t), to)
	}
	for _, t := range to.gone {
		if x := p.tickets[string(t)]; !strings.ContainsRune(p.state.gone, t) {
			x.gone = time.Now()
		}
	}
	spend := func(t string) {
		if !strings.Contains(to.queue(), t) && !strings.Contains(to.gone, t) {
			p.tickets[t].spent = true
		}
	}
	switch do {
	case "leave", "expire", "try":
		spend(name)
	case "replace":
		spend(other)
	}
	p.state = to
}

// inspect compares the queue with the state: holders in any order, then waiters, in
// order but for those of one owner.
func (p *edgePlayer) inspect() error {
	ctx, cancel := p.w.limit()
	defer cancel()
	q, err := p.w.witness().d.Inspect(ctx, p.w.name(p.name))
	if err != nil {
		return fmt.Errorf("Inspect: %w", err)
	}
	names := map[string]string{}
	for name, x := range p.tickets {
		names[x.ID] = name
	}
	var held, waiting []string
	for _, e := range q.Tickets {
		name, ok := names[e.ID]
		if p.expired && e.Left <= 0 {
			continue
		}
		if !ok {
			name = e.ID
		}
		if e.State == driver.Held {
			held = append(held, name)
		} else {
			waiting = append(waiting, name)
		}
	}
	slices.Sort(held)
	want := strings.Split(p.state.held, "")
	slices.Sort(want)
	if !slices.Equal(held, want) || p.inOrder(strings.Join(waiting, "")) != p.inOrder(p.state.waiting) {
		return fmt.Errorf("the queue is %q and %q, want %v", held, waiting, p.state)
	}
	return nil
}

// inOrder returns tickets with those of one place in the order of their names.
func (p *edgePlayer) inOrder(tickets string) string {
	if p.g.owned("a") {
		return strings.Replace(tickets, "ba", "ab", 1)
	}
	return tickets
}
