package memlock

import (
	"math"
	"slices"
	"sort"
	"time"
)

// A line is the places of one name.
type line struct {
	name   string
	limit  int64 // of the tickets in it
	used   int64 // units of the places that hold
	last   uint64
	seq    uint64
	places []*place // by arrival; the first held of them hold
	held   int
	check  time.Duration // before this, no holding ticket's time is over
	ids    map[string]*ticket
	owners map[string]*place // of named owners
}

// A place is what an owner has in a line.
type place struct {
	seq   uint64
	owner string
	units int64
	held  bool
	token uint64
	floor uint64
	first *ticket // the tickets in order of arrival; never none
	one   ticket  // room for the first
	spare *place
}

type ticket struct {
	id    string
	meta  string
	ttl   time.Duration
	until time.Duration // on the store's clock
	d     *Driver       // who joined it
	place *place
	next  *ticket
}

const never = time.Duration(math.MaxInt64)

// fits says whether the units would find room beside those that hold.
func (l *line) fits(units int64) bool { return units <= l.limit-l.used }

// index returns where p stands.
func (l *line) index(p *place) int {
	return sort.Search(len(l.places), func(i int) bool { return l.places[i].seq >= p.seq })
}

// end appends a place.
func (l *line) end(p *place) {
	l.seq++
	p.seq = l.seq
	l.places = append(l.places, p)
	if p.owner != "" {
		if l.owners == nil {
			l.owners = make(map[string]*place)
		}
		l.owners[p.owner] = p
	}
}

// cut removes the place at i, which has no tickets any more.
func (l *line) cut(i int) {
	p := l.places[i]
	if p.owner != "" {
		delete(l.owners, p.owner)
	}
	if p.held {
		l.held--
		l.used -= p.units
	}
	const few = 32
	if i == 0 && len(l.places) > few {
		// A long line moves up by leaving its first element behind.
		l.places[0] = nil
		l.places = l.places[1:]
	} else {
		l.places = slices.Delete(l.places, i, i+1)
	}
	if len(l.places) == 0 && cap(l.places) > few {
		l.places = nil
		l.ids = make(map[string]*ticket)
		l.owners = nil
	}
}

// add gives the place another ticket.
func (p *place) add(t *ticket) {
	t.place = p
	at := &p.first
	for *at != nil {
		at = &(*at).next
	}
	*at = t
}

// until is when the place is dropped unless it is renewed.
func (p *place) until() time.Duration {
	last := p.first.until
	for t := p.first.next; t != nil; t = t.next {
		last = max(last, t.until)
	}
	return last
}

// earliest is when the first of the place's tickets is over.
func (p *place) earliest() time.Duration {
	first := p.first.until
	for t := p.first.next; t != nil; t = t.next {
		first = min(first, t.until)
	}
	return first
}

// holder is the metadata of the first ticket that holds.
func (l *line) holder() string {
	if l.held == 0 {
		return ""
	}
	return l.places[0].first.meta
}

// recheck says when the place at i, which waits, should ask again: when the
// place before it would be dropped or, for the first one that waits, the
// earliest of all those that hold.
func (l *line) recheck(i int, now time.Duration) time.Duration {
	const soon = time.Millisecond // 0 would mean that there is no need
	at := never
	if i > l.held {
		at = l.places[i-1].until()
	} else if !l.fits(l.places[i].units) {
		for _, p := range l.places[:l.held] {
			at = min(at, p.until())
		}
	} else {
		return soon
	}
	return max(at-now, soon)
}

// copyLines returns a deep copy.
func copyLines(from map[string]*line) map[string]*line {
	to := make(map[string]*line, len(from))
	for name, l := range from {
		c := *l
		c.places = nil
		c.ids = make(map[string]*ticket)
		c.owners = nil
		for _, p := range l.places {
			q := *p
			q.first, q.one, q.spare = nil, ticket{}, nil
			for t := p.first; t != nil; t = t.next {
				u := *t
				u.next = nil
				q.add(&u)
				c.ids[u.id] = &u
			}
			c.end(&q)
		}
		to[name] = &c
	}
	return to
}
