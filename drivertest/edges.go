package drivertest

import (
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
	return p.seen(to)
}

// errOtherGrant ends a walk on a store that keeps no order.
var errOtherGrant = errors.New("the store keeps no order, and granted another ticket first")

// seen waits until the queue is as the state has it, and compares them. The view of a
// store that is several servers may be late, and without an order a waiter is granted
// when its client asks.
func (p *edgePlayer) seen(to edgeState) error {
	fair := p.w.traits.Fair
	for end := time.Now().Add(edgeSettles); ; time.Sleep(5 * time.Millisecond) {
		if !fair {
			if err := p.ask(to); err != nil {
				return err
			}
		}
		err := p.inspect(to)
		if err == nil || fair && !p.w.h.LateViews || time.Now().After(end) {
			return err
		}
	}
}

// edgeSettles is the longest time for which the view of a store may be late.
const edgeSettles = 5 * time.Second

// ask renews the tickets of a queue that keeps no order, and reports errOtherGrant if one
// holds that waits in the state.
func (p *edgePlayer) ask(to edgeState) error {
	for _, t := range to.queue() {
		s, err := p.renewed(string(t))
		switch waits := strings.ContainsRune(to.waiting, t); {
		case err != nil:
			return err
		case s.State == driver.Held && waits:
			return p.otherGrant(to)
		case s.State == driver.Held:
			p.tickets[string(t)].told = true
		}
	}
	return nil
}

// otherGrant checks that what holds, on a store that keeps no order, fits the limit. It
// then returns errOtherGrant.
func (p *edgePlayer) otherGrant(to edgeState) error {
	var held int64
	places := map[string]bool{}
	for _, t := range slices.Concat([]rune(to.queue()), []rune(p.state.queue())) {
		x := p.tickets[string(t)]
		place := x.Owner
		if place == "" {
			place = x.ID
		}
		s, err := p.renewed(string(t))
		if err != nil {
			return err
		}
		if s.State == driver.Held && !places[place] {
			places[place] = true
			held += x.Units
		}
		if held > x.Limit {
			return fmt.Errorf("%d units are held of %d", held, x.Limit)
		}
	}
	return errOtherGrant
}

// renewed renews a ticket.
func (p *edgePlayer) renewed(name string) (driver.Status, error) {
	ctx, cancel := p.w.limit()
	defer cancel()
	x := p.tickets[name]
	return p.timed(x, func() (driver.Status, error) {
		return one(p.clients[name].d.Renew(ctx, []driver.Ref{{Ticket: x.Ticket, State: driver.Held}}))
	})
}

// timed sends a request that renews a ticket, and notes when.
func (p *edgePlayer) timed(x *edgeTicket, send func() (driver.Status, error)) (driver.Status, error) {
	sent := time.Now()
	s, err := send()
	if err == nil && s.State != driver.Gone {
		p.lapsed = p.lapsed || !x.sent.IsZero() && time.Since(x.sent) > p.ttl
		x.sent, x.answered = sent, time.Now()
	}
	return s, err
}

// slow reports whether a place may have ended since the machine stood still.
func (p *edgePlayer) slow() bool {
	if !p.ends || p.w.h.bubble {
		return false
	}
	for _, t := range p.state.queue() {
		x := p.tickets[string(t)]
		p.lapsed = p.lapsed || x != p.ending && time.Since(x.sent) > p.ttl
	}
	return p.lapsed
}

// unanswered reports whether a request of a walk with little time had no answer, as
// where the machine stands still for longer than a connection lasts.
func (p *edgePlayer) unanswered(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && p.ends && !p.w.h.bubble && (e.Class == driver.Unknown || e.Class == driver.Unavailable)
}

// keep renews the tickets in the queue that were not renewed lately, but for one.
func (p *edgePlayer) keep(except string) error {
	if !p.ends {
		return nil
	}
	for _, t := range p.state.queue() {
		if string(t) == except || time.Since(p.tickets[string(t)].sent) < p.ttl/4 {
			continue
		}
		if s, err := p.renewed(string(t)); err != nil || s.State == driver.Gone {
			return fmt.Errorf("renewing %c meanwhile: %v, %w", t, s.State, err)
		}
	}
	return nil
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
		s, err = p.untilTold(x, func() (driver.Status, error) {
			return p.timed(x, func() (driver.Status, error) { return d.Join(ctx, x.Ticket, do != "try") })
		})
		if says == "refused" {
			return refusedUpgrade(err)
		}
		if err == nil {
			err = p.compare(do, name, s, says, to)
		}
	case "renew":
		s, err = p.untilTold(x, func() (driver.Status, error) { return p.renewed(name) })
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
		err = p.expire(name, to)
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
		if !p.w.traits.Fair && (s.State == driver.Held || says == driver.Held.String()) {
			return p.otherGrant(to)
		}
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
	case is == -1 || is == want || !p.w.traits.Fair:
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

// expire waits for the end of the place of one ticket, and keeps the others.
func (p *edgePlayer) expire(name string, to edgeState) error {
	p.expired = true
	x := p.tickets[name]
	p.ending = x
	for {
		if err := p.keep(name); err != nil {
			return err
		}
		if !p.w.traits.Fair {
			if err := p.ask(to); err != nil {
				return err
			}
		}
		asked := time.Now() // the verdict is about this moment, however late the answer comes
		err := p.inspect(to)
		if early := time.Since(x.sent) < p.ttl; err == nil && early {
			return errors.New("its place ends before its lease")
		}
		if err == nil || asked.Sub(x.answered) > p.w.latestExpiry(p.ttl) {
			return err
		}
		time.Sleep(p.ttl / 10)
	}
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
func (p *edgePlayer) inspect(to edgeState) error {
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
		if p.expired && e.Left < 0 { // one that is due in this millisecond still counts on Redis
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
	want := strings.Split(to.held, "")
	slices.Sort(want)
	if !slices.Equal(held, want) || p.inOrder(strings.Join(waiting, "")) != p.inOrder(to.waiting) {
		return fmt.Errorf("the queue is %q and %q, want %v", held, waiting, to)
	}
	return nil
}

// inOrder returns tickets with those of one place in the order of their names, and all
// of them where the store keeps no order.
func (p *edgePlayer) inOrder(tickets string) string {
	if !p.w.traits.Fair {
		all := []rune(tickets)
		slices.Sort(all)
		return string(all)
	}
	if p.g.owned("a") {
		return strings.Replace(tickets, "ba", "ab", 1)
	}
	return tickets
}
