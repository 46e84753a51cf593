package broken

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// join returns the answer and the seats that were granted on the way.
func (s *Store) join(d *Driver, t *driver.Ticket, wait bool) (driver.Place, []*seat, error) {
	l := s.line(t.Name)
	granted := s.advance(l)
	if x := l.find(t.ID); x != nil {
		if !wait && !x.held && !s.is("leaked-waiter") {
			s.remove(l, x)
			return driver.Place{State: driver.Gone}, granted, nil
		}
		x.joined++
		if !s.is("join-renews-not") {
			x.until = max(x.until, s.now()+s.keep(x.TTL))
		}
		return s.answer(l, x), granted, nil
	}
	if s.gone[t.ID] {
		return driver.Place{State: driver.Gone}, granted, nil
	}
	var old uint64
	if r := t.Replaces; r != nil && !s.is("replaces-not") && !(s.is("replaces-exclusive") && t.Units < t.Limit) {
		y := l.find(r.ID)
		if y == nil && s.is("replaces-must") {
			return driver.Place{}, granted, driver.Errorf(driver.Refused, "no ticket to replace")
		}
		if y != nil {
			old = y.token
			s.remove(l, y)
			granted = append(granted, s.advance(l)...)
		}
	}
	if len(l.seats) == 0 && !(s.is("limit-stays") && l.limit != 0) {
		l.limit = t.Limit
	}
	if l.limit != t.Limit && !s.is("any-limit") {
		return driver.Place{}, granted, &driver.LimitError{Name: t.Name, Have: l.limit, Want: t.Limit}
	}
	x := &seat{Ticket: *t, until: s.now() + s.keep(t.TTL), d: d, joined: 1}
	if first := l.of(s.who(t)); first != nil && !(s.is("owner-queues") && !first.held) {
		switch {
		case t.Units > first.takes && !s.is("upgrades"):
			return driver.Place{}, granted, driver.ErrUpgrade
		case !wait && !first.held:
			return driver.Place{State: driver.Gone}, granted, nil
		}
		x.place = first.place
		x.floor = max(x.floor, t.Floor)
		last := slices.IndexFunc(l.seats, func(y *seat) bool { return y == first })
		for last < len(l.seats) && l.seats[last].place == first.place {
			last++
		}
		l.seats = slices.Insert(l.seats, last, x)
		return s.answer(l, x), granted, nil
	}
	x.place = &place{who: s.who(t), takes: t.Units, floor: t.Floor}
	waits := slices.ContainsFunc(l.seats, func(y *seat) bool { return !y.held })
	overtakes := s.is("try-overtakes") && !wait || s.is("readers-overtake") && t.Limit == driver.RWLimit && t.Units == 1
	now := s.room(l, t.Units) && (!waits || overtakes)
	if !now && !wait {
		if s.is("leaked-waiter") {
			l.seats = append(l.seats, x)
		}
		p := driver.Place{State: driver.Gone}
		if len(l.seats) > 0 {
			p.Holder = l.seats[0].Meta
		}
		return p, granted, nil
	}
	if now && s.racing(t, wait) {
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	if overtakes && now {
		first := slices.IndexFunc(l.seats, func(y *seat) bool { return !y.held })
		l.seats = slices.Insert(l.seats, max(first, 0), x)
	} else {
		l.seats = append(l.seats, x)
	}
	if now {
		s.grant(l, x.place)
		if s.is("replaces-token") && old > 0 {
			x.token = old
		}
	}
	p := s.answer(l, x)
	if s.is("goroutine-each") && p.State == driver.Waiting {
		d.background.Go(func() { <-d.done })
	}
	return p, granted, nil
}

func (s *Store) racing(t *driver.Ticket, wait bool) bool {
	return s.is("racy") || s.is("try-racy") && !wait || s.is("shared-racy") && t.Limit == driver.RWLimit || s.is("units-racy") && t.Limit > 1
}

func (s *Store) renew(d *Driver, ref *driver.Ref) (driver.Place, []*seat) {
	l := s.line(ref.Name)
	x := l.find(ref.ID)
	if x != nil && s.is("renews-late") && x.held {
		x.until = max(x.until, s.now()+s.keep(x.TTL))
	}
	granted := s.advance(l)
	x = l.find(ref.ID)
	switch {
	case s.is("echoes"):
		return driver.Place{State: ref.State, Lease: ref.TTL, Token: l.last}, granted
	case x == nil && s.is("revives"):
		delete(s.gone, ref.ID)
		p, more, _ := s.join(d, ref.Ticket, true)
		return p, append(granted, more...)
	case x == nil && s.is("renews-late") && len(l.seats) > 0 && s.gone[ref.ID]:
		return driver.Place{State: driver.Held, Lease: ref.TTL, Token: l.last}, granted
	case x == nil:
		return driver.Place{State: driver.Gone}, granted
	case s.is("wall-deadlines") && s.back:
		s.remove(l, x)
		return driver.Place{State: driver.Gone}, append(granted, s.advance(l)...)
	}
	if !s.is("renews-not") && !s.is("long-lease") {
		x.until = max(x.until, s.now()+s.keep(x.TTL))
	}
	if s.is("one-deadline") {
		for _, y := range l.seats {
			if y.held {
				y.until = s.now() + s.keep(x.TTL)
			}
		}
	}
	p := s.answer(l, x)
	if s.is("long-lease") {
		x.until = max(x.until, s.now()+s.keep(x.TTL))
		p.Lease *= 2
	}
	return p, granted
}

func (s *Store) leave(ref *driver.Ref) (driver.Place, []*seat) {
	l := s.line(ref.Name)
	granted := s.advance(l)
	x := l.find(ref.ID)
	if s.is("leave-grants-oneself") && slices.Contains(granted, x) {
		x = nil
	}
	if ref.Unsure && !s.is("unsure-leaks") && !(s.is("left-forgotten") && x != nil) {
		s.gone[ref.ID] = true
	}
	switch {
	case x == nil && s.is("strangers-leave") && len(l.seats) > 0 && l.seats[0].held:
		x = l.seats[0]
	case x == nil && s.is("leave-counts-down") && len(l.seats) > 0 && l.seats[0].takes < l.limit:
		s.remove(l, l.seats[0])
		return driver.Place{State: driver.Gone}, append(granted, s.advance(l)...)
	case x == nil && s.is("always-held"):
		return driver.Place{State: driver.Held}, granted
	case x == nil:
		return driver.Place{State: driver.Gone}, granted
	case ref.Unsure && s.is("unsure-stays"):
		return driver.Place{State: driver.Gone}, granted
	}
	p := driver.Place{State: driver.Waiting}
	if x.held || s.is("always-held") {
		p = driver.Place{State: driver.Held, Token: x.token}
	}
	if x.joined--; s.is("counting-joins") && x.joined > 0 || s.is("abandons") && !x.held {
		return p, granted
	}
	var mates []*seat
	if s.is("owner-leaves") || s.is("first-leaver-frees") && x.held {
		for _, y := range l.seats {
			if y.place == x.place && s.is("owner-leaves") || y.held && s.is("first-leaver-frees") {
				mates = append(mates, y)
			}
		}
	}
	s.remove(l, x)
	if s.is("cross-leave") {
		for _, o := range s.lines {
			if o != l {
				o.seats = slices.DeleteFunc(o.seats, func(y *seat) bool { return y.d == x.d && y.held })
			}
		}
	}
	for _, y := range mates {
		s.remove(l, y)
	}
	if s.is("leave-is-release") && !x.held {
		if i := slices.IndexFunc(l.seats, func(y *seat) bool { return !y.held }); i >= 0 {
			granted = append(granted, s.grant(l, l.seats[i].place)...)
		}
	}
	if s.is("leave-grants-not") {
		return p, granted
	}
	return p, append(granted, s.advance(l)...)
}
