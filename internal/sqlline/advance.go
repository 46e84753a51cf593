package sqlline

import (
	"github.com/holdfast-go/holdfast/driver"
)

// advance drops the holders whose time is over, and then goes along those who
// wait: it drops them when their time is over, grants them as long as there is
// room, and stops at the first living one for whom there is none. The ticket
// asker, which may be nil, learns what happened from its answer and is not
// told.
func (l *line) advance(asker *ticket) error {
	if h := l.head; h != nil && h.until <= l.now && l.steps < driver.MaxSteps {
		if err := l.drop(h, true); err != nil {
			return err
		}
	}
	if l.due <= l.now {
		if err := l.dropHolders(); err != nil {
			return err
		}
	}
	for l.waiting > 0 && l.steps < driver.MaxSteps {
		place, err := l.first()
		if err != nil {
			return err
		}
		living, err := l.dropOver(place)
		if err != nil {
			return err
		}
		if len(living) == 0 {
			continue
		}
		if l.steps >= driver.MaxSteps || living[0].units > l.lim-l.used {
			return nil
		}
		l.steps++
		l.grantPlace(living, asker)
	}
	return nil
}

// dropHolders drops the holders with a row of their own whose time is over.
func (l *line) dropHolders() error {
	left := driver.MaxSteps - l.steps
	over, err := l.tickets(l.t.over.with(l.key, l.turn, l.now, left+1))
	if err != nil {
		return err
	}
	for i, t := range over {
		if i >= left {
			l.due = l.now
			return nil
		}
		if err := l.drop(t, true); err != nil {
			return err
		}
	}
	l.due, err = l.number(l.t.due.with(l.key, l.turn))
	l.dirty = true
	return err
}

// first returns the tickets of the first place that waits. There must be one.
func (l *line) first() ([]*ticket, error) {
	for {
		for len(l.next) > 0 && (l.next[0].gone || l.next[0].token > 0) {
			l.next = l.next[1:]
		}
		if n := len(l.next); n > 0 {
			// Only tickets with a named owner share a place.
			place := l.next[0].place
			end := 1
			for end < n && l.next[end].place == place {
				end++
			}
			if end < n || !l.rest || l.next[0].owner == "" {
				return l.next[:end], nil
			}
		} else if !l.rest {
			return nil, foreign("the row of line %q counts tickets that are not there", l.name)
		}
		if err := l.more(); err != nil {
			return nil, err
		}
	}
}

// more reads more of those who wait.
func (l *line) more() error {
	if l.early.unread {
		l.early.unread = false
		if l.from.seq == never {
			l.add(l.same(l.early.next), earlyWaiters)
			return nil
		}
	}
	n := 16
	if l.lim == 1 && l.from.seq == never {
		n = 2 // mostly, one is granted and that is all
	}
	more, err := l.tickets(l.t.waiters.with(l.key, l.from.place, l.from.place, l.from.seq, n))
	if err != nil {
		return err
	}
	l.add(more, n)
	return nil
}

// add appends to those who wait what was read with a limit of n.
func (l *line) add(more []*ticket, n int) {
	l.rest = len(more) == n
	if len(more) > 0 {
		last := more[len(more)-1]
		l.from = position{last.place, last.seq}
	}
	l.next = append(l.next, more...)
}

// dropOver drops those of a place's tickets whose time is over, as far as this
// request goes, and returns the others.
func (l *line) dropOver(place []*ticket) ([]*ticket, error) {
	var living []*ticket
	for _, t := range place {
		switch {
		case t.gone:
		case t.until > l.now || l.steps >= driver.MaxSteps:
			living = append(living, t)
		default:
			if err := l.drop(t, true); err != nil {
				return nil, err
			}
		}
	}
	return living, nil
}

// grantPlace makes the first place that waits, with these tickets, a holder.
func (l *line) grantPlace(place []*ticket, asker *ticket) {
	first := place[0]
	var floor int64
	for _, t := range place {
		floor = max(floor, t.floor)
	}
	l.token = l.nextToken(floor)
	l.turn = first.place
	l.waiting--
	l.held++
	l.used += first.units
	l.dirty = true
	if l.held == 1 && l.head == nil {
		l.write(l.t.remove.with(l.key, first.place, first.seq))
		first.inLine = true
		l.head = first
	}
	for _, t := range place {
		t.token = l.token
		if !t.inLine {
			l.due = min(l.due, t.until)
		}
		if t != asker {
			l.push(t, driver.Place{State: driver.Held, Token: uint64(t.token)})
		}
	}
	if len(place) > 1 || !first.inLine {
		l.write(l.t.grant.with(l.token, l.key, first.place))
	}
}

// nextToken is driver.NextToken on the store's clock. Tokens never wrap: a
// place is only taken as long as its token would be below lastToken, and all
// but the first of lastToken's places wait.
func (l *line) nextToken(floor int64) int64 {
	next := l.token
	if next < lastToken {
		next++
	}
	return max(next, l.tick, floor)
}

// drop removes a ticket, and its place with the last one. With over set it is
// a step, and the ticket gets a grave. The caller has to advance the line.
func (l *line) drop(t *ticket, over bool) error {
	if over {
		l.steps++
		l.bury(t.id)
	}
	t.gone = true
	l.dirty = true
	if t.inLine {
		l.head = nil
	} else {
		l.write(l.t.remove.with(l.key, t.place, t.seq))
	}
	if t.owner != "" {
		mates, err := l.number(l.t.mates.with(l.key, t.place))
		if err != nil {
			return err
		}
		if mates > 0 || l.head != nil && l.head.place == t.place {
			return nil
		}
	}
	if t.place > l.turn {
		l.waiting--
	} else {
		l.held--
		l.used -= t.units
	}
	return nil
}

// bury remembers that the ticket of this id is gone.
func (l *line) bury(id string) {
	until := l.now + micros(RequestAge)
	l.write(l.t.bury.with(l.key, id, until))
	l.graves = max(l.graves, until)
	if id == l.early.id {
		l.early.grave = until
	}
}

func (l *line) push(t *ticket, p driver.Place) {
	if t.wake != "" {
		l.pushes = append(l.pushes, Push{Wake: t.wake, ID: t.id, Place: p})
	}
}

// find advances the line and returns the ticket of this id, if it is there and
// its time is not over.
func (l *line) find(id string) (*ticket, error) {
	if !l.found {
		return nil, nil
	}
	t := l.met(id)
	if t == nil {
		own, err := l.ownOf(id)
		if err != nil {
			return nil, err
		}
		if len(own) > 0 {
			t = own[0]
		}
	}
	if err := l.advance(t); err != nil {
		return nil, err
	}
	if t == nil || t.gone {
		return nil, nil
	}
	if t.until > l.now {
		return t, nil
	}
	l.bury(t.id)
	if err := l.drop(t, false); err != nil {
		return nil, err
	}
	return nil, l.advance(nil)
}
