package broken

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// join returns the answer and the tickets that were granted on the way.
func (s *Store) join(d *Driver, t *driver.Ticket, wait bool) (driver.Status, []*ticket, error) {
	l := s.queueOf(t.Name)
	granted := s.advance(l)
	if x := l.find(t.ID); x != nil {
		if !wait && !x.held && !s.hasFlaw("leaked-waiter") {
			s.remove(l, x)
			return driver.Status{State: driver.Gone}, granted, nil
		}
		x.joins++
		if i := slices.Index(l.tickets, x); s.hasFlaw("repeat-moves-up") && i > 0 && !l.tickets[i-1].held {
			l.tickets[i-1], l.tickets[i] = x, l.tickets[i-1]
		}
		if !s.hasFlaw("join-renews-not") {
			x.deadline = max(x.deadline, s.now()+s.keepFor(x.TTL))
		}
		return s.statusOf(l, x), granted, nil
	}
	if s.goneIDs[t.ID] {
		if r := t.Replaces; r != nil && s.hasFlaw("gone-replaces") {
			if y := l.find(r.ID); y != nil {
				s.remove(l, y)
				granted = append(granted, s.advance(l)...)
			}
		}
		return driver.Status{State: driver.Gone}, granted, nil
	}
	if l.foreign && !s.hasFlaw("foreign-ignored") {
		return driver.Status{}, granted, driver.Errorf(driver.Refused, "a foreign value is in the queue")
	}
	var old uint64
	if r := t.Replaces; r != nil && !s.hasFlaw("replaces-not") && !(s.hasFlaw("replaces-exclusive") && t.Units < t.Limit) {
		y := l.find(r.ID)
		if y == nil && s.hasFlaw("replaces-must") {
			return driver.Status{}, granted, driver.Errorf(driver.Refused, "no ticket to replace")
		}
		if y != nil {
			old = y.token
			s.remove(l, y)
			granted = append(granted, s.advance(l)...)
		}
	}
	if len(l.tickets) == 0 && !(s.hasFlaw("limit-stays") && l.limit != 0) {
		l.limit = t.Limit
	}
	if l.limit != t.Limit && !s.hasFlaw("any-limit") {
		return driver.Status{}, granted, &driver.LimitError{Name: t.Name, Have: l.limit, Want: t.Limit}
	}
	x := &ticket{Ticket: *t, deadline: s.now() + s.keepFor(t.TTL), joinedUntil: s.now() + s.keepFor(t.TTL), client: d, joins: 1}
	if first := l.ofOwner(s.ownerKey(t)); first != nil && !(s.hasFlaw("owner-queues") && !first.held) {
		switch {
		case t.Units > first.units && !s.hasFlaw("upgrades"):
			return driver.Status{}, granted, driver.ErrUpgrade
		case !wait && !first.held:
			return driver.Status{State: driver.Gone}, granted, nil
		}
		x.place = first.place
		x.minToken = max(x.minToken, t.MinToken)
		last := slices.IndexFunc(l.tickets, func(y *ticket) bool { return y == first })
		for last < len(l.tickets) && l.tickets[last].place == first.place {
			last++
		}
		l.tickets = slices.Insert(l.tickets, last, x)
		return s.statusOf(l, x), granted, nil
	}
	x.place = &place{owner: s.ownerKey(t), units: t.Units, minToken: t.MinToken}
	waits := slices.ContainsFunc(l.tickets, func(y *ticket) bool { return !y.held })
	overtakes := s.hasFlaw("try-overtakes") && !wait || s.hasFlaw("readers-overtake") && t.Limit == driver.RWLimit && t.Units == 1
	now := s.fits(l, t.Units) && (!waits || overtakes)
	if !now && !wait {
		if s.hasFlaw("leaked-waiter") {
			l.tickets = append(l.tickets, x)
		}
		p := driver.Status{State: driver.Gone}
		if len(l.tickets) > 0 {
			s.tellHolder(l, &p)
		}
		return p, granted, nil
	}
	if now && s.isRacy(t, wait) {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	if overtakes && now {
		first := slices.IndexFunc(l.tickets, func(y *ticket) bool { return !y.held })
		l.tickets = slices.Insert(l.tickets, max(first, 0), x)
	} else {
		l.tickets = append(l.tickets, x)
	}
	if now {
		s.grant(l, x.place)
		if s.hasFlaw("replaces-token") && old > 0 {
			x.token = old
		}
	}
	p := s.statusOf(l, x)
	if s.hasFlaw("goroutine-each") && p.State == driver.Waiting {
		d.background.Go(func() { <-d.done })
	}
	return p, granted, nil
}

func (s *Store) isRacy(t *driver.Ticket, wait bool) bool {
	return s.hasFlaw("racy") || s.hasFlaw("try-racy") && !wait || s.hasFlaw("shared-racy") && t.Limit == driver.RWLimit || s.hasFlaw("units-racy") && t.Limit > 1
}

func (s *Store) renew(d *Driver, ref *driver.Ref) (driver.Status, []*ticket) {
	l := s.queueOf(ref.Name)
	x := l.find(ref.ID)
	if x != nil && s.hasFlaw("renews-late") && x.held {
		x.deadline = max(x.deadline, s.now()+s.keepFor(x.TTL))
	}
	granted := s.advance(l)
	x = l.find(ref.ID)
	switch {
	case s.hasFlaw("echoes"):
		return driver.Status{State: ref.State, Lease: ref.TTL, Token: l.lastToken}, granted
	case x == nil && s.hasFlaw("revives"):
		delete(s.goneIDs, ref.ID)
		p, more, _ := s.join(d, ref.Ticket, true)
		return p, append(granted, more...)
	case x == nil && s.hasFlaw("renews-late") && len(l.tickets) > 0 && s.goneIDs[ref.ID]:
		return driver.Status{State: driver.Held, Lease: ref.TTL, Token: l.lastToken}, granted
	case x == nil:
		return driver.Status{State: driver.Gone}, granted
	case s.hasFlaw("wall-deadlines") && s.steppedBack:
		s.remove(l, x)
		return driver.Status{State: driver.Gone}, append(granted, s.advance(l)...)
	}
	if !s.hasFlaw("renews-not") && !s.hasFlaw("long-lease") {
		x.deadline = max(x.deadline, s.now()+s.keepFor(x.TTL))
	}
	if s.hasFlaw("one-deadline") {
		for _, y := range l.tickets {
			if y.held {
				y.deadline = s.now() + s.keepFor(x.TTL)
			}
		}
	}
	p := s.statusOf(l, x)
	if s.hasFlaw("long-lease") {
		x.deadline = max(x.deadline, s.now()+s.keepFor(x.TTL))
		p.Lease *= 2
	}
	return p, granted
}

func (s *Store) leave(ref *driver.Ref) (driver.Status, []*ticket) {
	l := s.queueOf(ref.Name)
	granted := s.advance(l)
	x := l.find(ref.ID)
	if s.hasFlaw("leave-grants-oneself") && slices.Contains(granted, x) {
		x = nil
	}
	if ref.JoinPending && !s.hasFlaw("unsure-leaks") && !(s.hasFlaw("left-forgotten") && x != nil) {
		s.goneIDs[ref.ID] = true
	}
	switch {
	case x == nil && s.hasFlaw("strangers-leave") && len(l.tickets) > 0 && l.tickets[0].held:
		x = l.tickets[0]
	case x == nil && s.hasFlaw("leave-counts-down") && len(l.tickets) > 0 && l.tickets[0].units < l.limit:
		s.remove(l, l.tickets[0])
		return driver.Status{State: driver.Gone}, append(granted, s.advance(l)...)
	case x == nil && s.hasFlaw("always-held"):
		return driver.Status{State: driver.Held}, granted
	case x == nil:
		return driver.Status{State: driver.Gone}, granted
	case ref.JoinPending && s.hasFlaw("unsure-stays"):
		return driver.Status{State: driver.Gone}, granted
	}
	p := driver.Status{State: driver.Waiting}
	if x.held || s.hasFlaw("always-held") {
		p = driver.Status{State: driver.Held, Token: x.token}
	}
	if x.joins--; s.hasFlaw("counting-joins") && x.joins > 0 || s.hasFlaw("abandons") && !x.held {
		return p, granted
	}
	var leaveToo []*ticket
	if s.hasFlaw("owner-leaves") || s.hasFlaw("first-leaver-frees") && x.held {
		for _, y := range l.tickets {
			if y.place == x.place && s.hasFlaw("owner-leaves") || y.held && s.hasFlaw("first-leaver-frees") {
				leaveToo = append(leaveToo, y)
			}
		}
	}
	s.remove(l, x)
	if s.hasFlaw("cross-leave") {
		for _, o := range s.queues {
			if o != l {
				o.tickets = slices.DeleteFunc(o.tickets, func(y *ticket) bool { return y.client == x.client && y.held })
			}
		}
	}
	for _, y := range leaveToo {
		s.remove(l, y)
	}
	if s.hasFlaw("leave-is-release") && !x.held {
		if i := slices.IndexFunc(l.tickets, func(y *ticket) bool { return !y.held }); i >= 0 {
			granted = append(granted, s.grant(l, l.tickets[i].place)...)
		}
	}
	if s.hasFlaw("leave-grants-not") {
		return p, granted
	}
	return p, append(granted, s.advance(l)...)
}

// withoutWatch reports whether no Watch was called.
func (d *Driver) withoutWatch() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.notify == nil
}

// tellHolder adds to a status who holds, and for how long unless it renews.
func (s *Store) tellHolder(l *queue, p *driver.Status) {
	first := l.tickets[0]
	p.Holder = first.Meta
	p.Recheck = l.latestDeadline(first.place) - s.now()
	switch {
	case s.hasFlaw("left-untold"):
		p.Recheck = 0
	case s.hasFlaw("left-too-long"):
		p.Recheck *= 2
	case s.hasFlaw("left-too-short"):
		p.Recheck = time.Millisecond
	case s.hasFlaw("left-since-join"):
		p.Recheck = first.joinedUntil - s.now()
	}
}
