package sqlline

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// soon is the Recheck of a ticket that has nothing to wait for: 0 would mean
// that there is no need.
const soon = time.Millisecond

// answer says where t, which has this TTL, stands. On the way it drops those
// directly before it whose time is over, so that its Recheck is about a living
// one.
func (l *line) answer(t *ticket, ttl time.Duration) (driver.Place, error) {
	if t.place <= l.turn {
		return driver.Place{State: driver.Held, Token: uint64(t.token), Lease: ttl}, nil
	}
	p := driver.Place{State: driver.Waiting, Lease: ttl}
	at, first, err := l.predecessor(t)
	if err != nil {
		return p, err
	}
	before := int64(0)
	switch {
	case first:
	case t.seq == l.seq && t.place == t.seq: // it has come last
		before = l.waiting - 1
	default:
		if before, err = l.number(l.t.count.with(l.key, l.turn, t.place)); err != nil {
			return p, err
		}
	}
	p.Ahead = int(l.held + before)
	if first {
		at = l.now
		if t.units > l.lim-l.used {
			if at, err = l.earliest(); err != nil {
				return p, err
			}
		} // else the steps of this request were used up
	}
	if at-l.now < int64(soon/time.Microsecond) {
		p.Recheck = soon
	} else {
		p.Recheck = duration(at - l.now)
	}
	p.Holder, err = l.holder()
	return p, err
}

// predecessor returns when the waiting place before t is over, or that there
// is none. It drops those before t whose time is over.
func (l *line) predecessor(t *ticket) (at int64, none bool, err error) {
	if l.waiting == 1 {
		return 0, true, nil
	}
	to := t.place
	for n := 2; ; n *= 8 {
		back, err := l.tickets(l.t.before.with(l.key, l.turn, to, n))
		if err != nil {
			return 0, false, err
		}
		complete := len(back) < n
		for len(back) > 0 {
			place, end := back[0].place, 1
			at := back[0].until
			for ; end < len(back) && back[end].place == place; end++ {
				at = max(at, back[end].until)
			}
			if end == len(back) && !complete && back[0].owner != "" {
				break // read again for the rest of this place
			}
			living, err := l.dropOver(back[:end])
			if err != nil {
				return 0, false, err
			}
			if len(living) > 0 {
				return at, false, nil
			}
			back, to = back[end:], place
		}
		if complete {
			return 0, true, nil
		}
	}
}

// earliest returns when the first place that holds is over.
func (l *line) earliest() (int64, error) {
	at := int64(never)
	if l.head != nil {
		at = l.head.until
		if l.held == 1 && l.head.owner == "" {
			return at, nil
		}
	}
	places := make(map[int64]int64)
	s := l.t.holders.with(l.key, l.turn)
	s.Row = func(scan func(...any) error) error {
		var place, until int64
		err := scan(&place, &until)
		places[place] = max(places[place], until)
		return err
	}
	if err := l.read(s); err != nil {
		return 0, err
	}
	if h := l.head; h != nil {
		at = max(at, places[h.place])
		delete(places, h.place)
	}
	for _, until := range places {
		at = min(at, until)
	}
	return at, nil
}

// holder returns the metadata of the first ticket that holds.
func (l *line) holder() (meta string, err error) {
	if l.head != nil || l.held == 0 {
		if l.head != nil {
			meta = l.head.meta
		}
		return meta, nil
	}
	s := l.t.holder.with(l.key, l.turn)
	s.Row = func(scan func(...any) error) error { return scan(&meta) }
	err = l.read(s)
	return meta, err
}
