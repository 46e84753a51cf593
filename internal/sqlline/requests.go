package sqlline

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Join is [driver.Driver.Join]. Pushes of t's client go to the address wake;
// it is empty when the client does not listen. The pushes returned are those
// the request caused.
func (s *Lines) Join(ctx context.Context, db DB, t *driver.Ticket, wake string, wait bool) (driver.Place, []Push, error) {
	if t.Replaces == nil && t.Floor < lastToken {
		if p, err := s.joinQuick(ctx, db, t, wake, wait); err != nil || p.State != 0 {
			return p, nil, err
		}
	}
	var p driver.Place
	var refusal error
	pushes, err := s.visitFor(ctx, db, t.Name, t.ID, true, func(l *line) (err error) {
		p, refusal, err = l.join(t, wake, wait)
		return err
	})
	if err == nil {
		err = refusal
	}
	return p, pushes, err
}

// joinQuick joins by statements that decide alone, or says that there is no
// place because they cannot.
func (s *Lines) joinQuick(ctx context.Context, db DB, t *driver.Ticket, wake string, wait bool) (driver.Place, error) {
	key := Key(t.Name)
	busy := s.t.behind != nil && s.crowd.lately(key)
	if !busy && !s.crowd.now(key) {
		var token int64
		join := s.joinFree(t, key, wake)
		join.Row = func(scan func(...any) error) error { return scan(&token) }
		if err := db.Auto(ctx, join); err != nil {
			return driver.Place{}, err
		}
		if token = max(token, join.Last); token > 0 {
			return driver.Place{State: driver.Held, Token: uint64(token), Lease: t.TTL}, nil
		}
		busy = s.t.behind != nil && t.Owner == ""
	}
	if !busy {
		return driver.Place{}, nil
	}
	return s.joinBusy(ctx, db, t, key, wake, wait)
}

// joinFree is the statement that takes the first place of a line that has none.
func (s *Lines) joinFree(t *driver.Ticket, key []byte, wake string) *Stmt {
	keep := micros(driver.Keep(t.TTL))
	return s.t.join.with(key, []byte(t.Name), t.Limit, t.Units,
		t.ID, t.Owner, t.Units, keep, keep, wake, t.Meta, int64(t.Floor))
}

// join returns a refusal apart from errors, because what the line did before
// it was refused is to be committed.
func (l *line) join(t *driver.Ticket, wake string, wait bool) (p driver.Place, refusal, err error) {
	own, err := l.find(t.ID)
	if err != nil {
		return p, nil, err
	}
	if own == nil && l.graves > 0 {
		until, err := l.graveOf(t.ID)
		if err != nil {
			return p, nil, err
		}
		if until > l.now {
			return driver.Place{State: driver.Gone}, nil, nil
		}
	}
	if t.Replaces != nil {
		if _, err := l.remove(t.Replaces.ID); err != nil {
			return p, nil, err
		}
	}
	if own != nil && !wait && own.place > l.turn {
		if _, err := l.remove(t.ID); err != nil {
			return p, nil, err
		}
		p.State = driver.Gone
		p.Holder, err = l.holder()
		return p, nil, err
	}
	if own != nil {
		own.wake = wake
		l.prolong(own)
		p, err = l.answer(own, t.TTL)
		return p, nil, err
	}
	if l.held+l.waiting == 0 {
		l.lim, l.seq, l.turn = t.Limit, 0, 0
	} else if l.lim != t.Limit {
		return p, &driver.LimitError{Name: t.Name, Have: l.lim, Want: t.Limit}, nil
	}
	mate, err := l.mate(t.Owner)
	if err != nil {
		return p, nil, err
	}
	if mate != nil && t.Units > mate.units {
		return p, driver.ErrUpgrade, nil
	}
	if mate == nil && (l.token >= lastToken || t.Floor >= lastToken) {
		return p, driver.Errorf(driver.Refused, "the line has no more tokens"), nil
	}
	now := l.waiting == 0 && t.Units <= l.lim-l.used
	if mate != nil {
		now = mate.place <= l.turn
	}
	if !now && !wait {
		p.State = driver.Gone
		p.Holder, err = l.holder()
		return p, nil, err
	}
	own = l.take(t, mate, wake, now)
	p, err = l.answer(own, t.TTL)
	return p, nil, err
}

// mate returns a living ticket of a named owner, or nil. It drops those whose
// time is over.
func (l *line) mate(owner string) (*ticket, error) {
	if owner == "" || l.held+l.waiting == 0 {
		return nil, nil
	}
	if l.head != nil && l.head.owner == owner {
		return l.head, nil
	}
	mates, err := l.tickets(l.t.owned.with(l.key, owner))
	if err != nil {
		return nil, err
	}
	if mates, err = l.dropOver(mates); err != nil || len(mates) == 0 {
		return nil, err
	}
	return mates[0], nil
}

// take adds t to the line: to the place of mate, or at the end if it is nil.
// Now says that the place holds, or is to hold at once.
func (l *line) take(t *driver.Ticket, mate *ticket, wake string, now bool) *ticket {
	keep := micros(driver.Keep(t.TTL))
	l.seq++
	own := &ticket{
		place: l.seq, seq: l.seq, id: t.ID, owner: t.Owner, units: t.Units,
		floor: int64(min(t.Floor, lastToken)), keep: keep, until: l.now + keep, wake: wake, meta: t.Meta,
	}
	l.known = append(l.known, own)
	l.dirty = true
	switch {
	case mate != nil:
		own.place, own.units, own.token = mate.place, mate.units, mate.token
	case now:
		l.token = l.nextToken(own.floor)
		own.token = l.token
		l.turn = own.place
		l.held++
		l.used += own.units
		if l.held == 1 {
			own.inLine = true
			l.head = own
			return own
		}
	default:
		l.waiting++
	}
	if now {
		l.due = min(l.due, own.until)
	}
	l.write(l.t.insert.with(l.key, own.place, own.seq, own.id, own.owner, own.units,
		own.token, own.floor, own.keep, own.until, own.wake, own.meta))
	return own
}

// prolong renews a ticket. It never shortens its time.
func (l *line) prolong(t *ticket) {
	t.until = max(t.until, l.now+t.keep)
	l.dirty = true
	if !t.inLine {
		l.write(l.t.prolong.with(t.until, t.wake, l.key, t.place, t.seq))
	}
}

// remove drops the ticket of this id, if there is one, and says what it found.
func (l *line) remove(id string) (driver.Place, error) {
	t, err := l.find(id)
	if err != nil || t == nil {
		return driver.Place{State: driver.Gone}, err
	}
	p := driver.Place{State: driver.Waiting}
	if t.place <= l.turn {
		p = driver.Place{State: driver.Held, Token: uint64(t.token)}
	}
	if err := l.drop(t, false); err != nil {
		return p, err
	}
	return p, l.advance(nil)
}

// Break is [driver.Driver.Break].
func (s *Lines) Break(ctx context.Context, db DB, name, id string) ([]Push, error) {
	var refusal error
	pushes, err := s.visitFor(ctx, db, name, id, false, func(l *line) error {
		refusal = driver.ErrNoTicket
		t, err := l.find(id)
		if err != nil || t == nil {
			return err
		}
		refusal = nil
		l.push(t, driver.Place{State: driver.Gone})
		l.bury(t.id)
		if err := l.drop(t, false); err != nil {
			return err
		}
		return l.advance(nil)
	})
	if err == nil {
		err = refusal
	}
	return pushes, err
}

// Inspect is [driver.Driver.Inspect].
func (s *Lines) Inspect(ctx context.Context, db DB, name string) (driver.Line, []Push, error) {
	var out driver.Line
	pushes, err := s.visit(ctx, db, name, false, func(l *line) error {
		if err := l.advance(nil); err != nil {
			return err
		}
		out = driver.Line{Name: name, Token: uint64(l.token)}
		if l.held+l.waiting == 0 {
			return nil
		}
		out.Limit = l.lim
		all := []*ticket{}
		if l.head != nil {
			all = append(all, l.head)
		}
		rows, err := l.ticketsUnmet(l.t.all.with(l.key))
		if err != nil {
			return err
		}
		all = append(all, rows...)
		// The ticket in the line's row is the first of its place, and its place
		// is the first.
		slices.SortStableFunc(all, func(a, b *ticket) int { return int(a.place - b.place) })
		for _, t := range all {
			e := driver.Entry{ID: t.id, Owner: t.owner, State: driver.Waiting, Units: t.units, Left: duration(t.until - l.now), Meta: t.meta}
			if t.place <= l.turn {
				e.State, e.Token = driver.Held, uint64(t.token)
			}
			out.Tickets = append(out.Tickets, e)
		}
		return nil
	})
	return out, pushes, err
}
