package wire

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// snapshot is a queue as it is stored.
type snapshot struct {
	holders map[string]string
	waiters []string
	tickets map[string]string
	token   string
	ttl     int64 // of the key hold, in milliseconds
	now     int64
}

// ReadSnapshot reads the answer of the inspect script.
func ReadSnapshot(m *Reply) (*snapshot, error) {
	list, err := m.List()
	if err != nil {
		return nil, Unreadable("no queue")
	}
	if len(list) == 1 {
		return nil, driver.Wrap(driver.Refused, ErrForeign)
	}
	if len(list) != 6 {
		return nil, Unreadable("a queue of %d values", len(list))
	}
	s := new(snapshot)
	if s.holders, err = pairs(&list[0]); err != nil {
		return nil, err
	}
	if s.waiters, err = list[1].Texts(); err != nil {
		return nil, Unreadable("queue")
	}
	if s.tickets, err = pairs(&list[2]); err != nil {
		return nil, err
	}
	var err1, err2, err3 error
	s.token, err1 = list[3].Text()
	s.ttl, err2 = list[4].Int()
	s.now, err3 = list[5].Int()
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, Unreadable("token or times")
	}
	return s, nil
}

// pairs reads a list of names and values.
func pairs(m *Reply) (map[string]string, error) {
	p, err := m.Pairs()
	if err != nil {
		return nil, Unreadable("pairs")
	}
	return p, nil
}

// Prefixes of fields. No owner and no id begins with these.
const (
	mark   = "\x01" // the place of an owner, and the queue's own fields
	expiry = "\x02" // the time at which a ticket is dropped
)

const tombstone = "1x"

// modeField is the field that excludes the read/write locks of Redisson, which
// look at no other field.
const modeField = "mode"

// fieldOf returns the field of a place among the holders.
func fieldOf(owner, id string) string {
	if owner == modeField {
		return mark + owner
	}
	return cmp.Or(owner, id)
}

// Queue converts a stored queue.
func (s *snapshot) Queue(name string) (driver.Queue, error) {
	l := driver.Queue{Name: name}
	if s.token != "" {
		token, err := strconv.ParseUint(s.token, 10, 64)
		if err != nil {
			return l, driver.Wrap(driver.Refused, ErrForeign)
		}
		l.Token = token
	}
	left := func(at int64) time.Duration { return time.Duration(at-s.now) * time.Millisecond }

	_, shared := s.holders[mark+"l"]
	if len(s.holders) > 0 && !shared {
		for id := range s.holders {
			if strings.HasPrefix(id, mark) || id == modeField {
				continue
			}
			l.Limit = 1
			e := driver.Entry{ID: id, State: driver.Held, Units: 1, Left: left(s.now + s.ttl)}
			if record, ok := s.holders[mark+id]; ok {
				var err error
				if e.Token, e.Meta, err = parseHold(record); err != nil {
					return l, err
				}
			}
			l.Tickets = append(l.Tickets, e)
		}
	}
	// Holders come in the order of their grants, and within a place by
	// arrival.
	places := s.waiters
	var held []record
	for id, text := range s.tickets {
		if strings.HasPrefix(id, mark) || strings.HasPrefix(id, expiry) || text == tombstone {
			continue
		}
		r, err := parseRecord(text)
		if err != nil {
			return l, err
		}
		if r.held {
			// A ticket missing from K does not hold the lock: K was deleted or
			// evicted. The ticket stays until its time is over, and longer if
			// D was evicted too.
			if _, holds := s.holders[fieldOf(r.owner, id)]; !holds {
				continue
			}
			r.id = id
			held = append(held, r)
		}
		l.Limit = r.limit
	}
	slices.SortFunc(held, func(a, b record) int {
		if c := cmp.Compare(a.token, b.token); c != 0 {
			return c
		}
		return cmp.Compare(a.place(), b.place())
	})
	for i, r := range held {
		if i == 0 || r.place() != held[i-1].place() {
			places = slices.Insert(slices.Clone(places), len(places)-len(s.waiters), r.place())
		}
	}
	for _, p := range places {
		ids := []string{p}
		if strings.HasPrefix(p, mark) {
			ids = strings.Split(s.tickets[p], "\n")
		}
		for _, id := range ids {
			text, ok := s.tickets[id]
			if !ok || text == tombstone {
				continue // the next request drops the ticket
			}
			r, err := parseRecord(text)
			if err != nil {
				return l, err
			}
			due, err := strconv.ParseInt(s.tickets[expiry+id], 10, 64)
			if err != nil || due < 0 || due > MaxUnits {
				return l, driver.Wrap(driver.Refused, ErrForeign)
			}
			l.Tickets = append(l.Tickets, r.entry(id, left(due)))
		}
	}
	for _, e := range l.Tickets { // the counter has the tokens that are ahead of the clock
		l.Token = max(l.Token, e.Token)
	}
	return l, nil
}

// ReadScan reads the answer to SCAN.
func ReadScan(r *Reply) (cursor string, keys []string, err error) {
	list, err := r.List()
	if err != nil || len(list) != 2 {
		return "", nil, Unreadable("SCAN")
	}
	cursor, err1 := list[0].Text()
	keys, err2 := list[1].Texts()
	if err1 != nil || err2 != nil {
		return "", nil, Unreadable("SCAN")
	}
	return cursor, keys, nil
}
