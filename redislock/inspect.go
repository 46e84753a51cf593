package redislock

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Inspect implements [driver.Driver].
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	if err := d.checkOpen(ctx); err != nil {
		return driver.Queue{}, err
	}
	l := d.keys.get(name)
	m, err := d.runOnControl(ctx, d.scripts.inspect, l)
	if err != nil {
		return driver.Queue{}, err
	}
	s, err := readSnapshot(&m)
	if err != nil {
		return driver.Queue{}, err
	}
	return s.toQueue(name)
}

// runOnControl runs a script on one queue, on the driver's own connection.
func (d *Driver) runOnControl(ctx context.Context, s *wire.Script, l *queueKeys, args ...string) (wire.Reply, error) {
	return onControl(ctx, d, func(c client.Conn) (wire.Reply, error) {
		return runOn(c, s, l.all(), args...)
	})
}

// snapshot is a queue as it is stored.
type snapshot struct {
	holders map[string]string
	waiters []string
	tickets map[string]string
	token   string
	ttl     int64 // of the key hold, in milliseconds
	now     int64
}

func readSnapshot(m *wire.Reply) (*snapshot, error) {
	list, err := m.List()
	if err != nil {
		return nil, unreadable("no queue")
	}
	if len(list) == 1 {
		return nil, driver.Wrap(driver.Refused, errForeign)
	}
	if len(list) != 6 {
		return nil, unreadable("a queue of %d values", len(list))
	}
	s := new(snapshot)
	if s.holders, err = pairs(&list[0]); err != nil {
		return nil, err
	}
	if s.waiters, err = list[1].Texts(); err != nil {
		return nil, unreadable("queue")
	}
	if s.tickets, err = pairs(&list[2]); err != nil {
		return nil, err
	}
	var err1, err2, err3 error
	s.token, err1 = list[3].Text()
	s.ttl, err2 = list[4].Int()
	s.now, err3 = list[5].Int()
	if err1 != nil || err2 != nil || err3 != nil {
		return nil, unreadable("token or times")
	}
	return s, nil
}

// pairs reads a list of names and values.
func pairs(m *wire.Reply) (map[string]string, error) {
	p, err := m.Pairs()
	if err != nil {
		return nil, unreadable("pairs")
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

// toQueue converts a stored queue.
func (s *snapshot) toQueue(name string) (driver.Queue, error) {
	l := driver.Queue{Name: name}
	if s.token != "" {
		token, err := strconv.ParseUint(s.token, 10, 64)
		if err != nil {
			return l, driver.Wrap(driver.Refused, errForeign)
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
			if err != nil || due < 0 || due > maxUnits {
				return l, driver.Wrap(driver.Refused, errForeign)
			}
			l.Tickets = append(l.Tickets, r.entry(id, left(due)))
		}
	}
	for _, e := range l.Tickets { // the counter has the tokens that are ahead of the clock
		l.Token = max(l.Token, e.Token)
	}
	return l, nil
}

// Names implements [driver.Driver]: it walks through the keys that begin with
// the prefix, and through the keys of the waiters' lists, and asks for each
// queue whether it has tickets. The names seen are kept in memory until the
// walk is over.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := d.checkOpen(ctx); err != nil {
			yield("", err)
			return
		}
		w := nameWalk{d: d, ctx: ctx, prefix: prefix, seen: make(map[string]bool), yield: yield}
		start := d.keys.prefix + prefix
		ok := w.walk(globEscape(start)+"*", "hash", func(key string) (string, bool) { return nameOf(d.keys.prefix, key) })
		if escaped := helperNames[keyHolders]; ok && (strings.HasPrefix(start, reserved) || strings.HasPrefix(reserved, start)) {
			ok = w.walk(globEscape(escaped)+"*", "hash", func(key string) (string, bool) { return nameOf(d.keys.prefix, key) })
		}
		if ok {
			w.walk(globEscape(helperNames[keyWaiters])+"*", "list", func(key string) (string, bool) {
				k, ok := outOfSlot(strings.TrimPrefix(key, helperNames[keyWaiters]))
				if !ok {
					return "", false
				}
				return nameOf(d.keys.prefix, k)
			})
		}
	}
}

// nameWalk is one use of Names.
type nameWalk struct {
	d      *Driver
	ctx    context.Context
	prefix string
	seen   map[string]bool
	yield  func(string, error) bool
}

// walk goes through the keys of a type that match, and returns false if the
// walk is to end.
func (w *nameWalk) walk(pattern, kind string, name func(key string) (string, bool)) bool {
	for cursor := "0"; ; {
		page, err := w.page(cursor, pattern, kind, name)
		if err != nil {
			w.yield("", err)
			return false
		}
		for _, n := range page.names {
			if !w.yield(n, nil) {
				return false
			}
		}
		if cursor = page.cursor; cursor == "0" {
			return true
		}
	}
}

type namePage struct {
	cursor string
	names  []string
}

func readScan(r *wire.Reply) (namePage, []string, error) {
	list, err := r.List()
	if err != nil || len(list) != 2 {
		return namePage{}, nil, unreadable("SCAN")
	}
	cursor, err1 := list[0].Text()
	keys, err2 := list[1].Texts()
	if err1 != nil || err2 != nil {
		return namePage{}, nil, unreadable("SCAN")
	}
	return namePage{cursor: cursor}, keys, nil
}

// page scans on from a cursor and returns the new names of queues that have
// tickets.
func (w *nameWalk) page(cursor, pattern, kind string, name func(key string) (string, bool)) (namePage, error) {
	return onControl(w.ctx, w.d, func(c client.Conn) (namePage, error) {
		r, err := c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", "1000", "TYPE", kind)
		if err != nil {
			return namePage{}, err
		}
		page, keys, err := readScan(&r)
		if err != nil {
			return namePage{}, err
		}
		var names []string
		for _, key := range keys {
			n, ok := name(key)
			if ok && strings.HasPrefix(n, w.prefix) && !w.seen[n] && driver.CheckName(n) == nil {
				w.seen[n] = true
				names = append(names, n)
			}
		}
		for batch := range slices.Chunk(names, maxBatch) {
			runs := make([]run, len(batch))
			for i, n := range batch {
				runs[i] = run{w.d.scripts.inspect, w.d.keys.make(n).all(), []string{"count"}}
			}
			replies, err := runAll(c, runs)
			if err != nil {
				return page, err
			}
			for i := range replies {
				// A key that is no queue, or of a wrong type, is not listed.
				if has, err := replies[i].Int(); err == nil && has > 0 {
					page.names = append(page.names, batch[i])
				}
			}
		}
		return page, nil
	})
}

// Break implements [driver.Driver].
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	if ticketID == "" || strings.ContainsFunc(ticketID, func(r rune) bool { return r < ' ' }) {
		return driver.ErrNoTicket // no id is like this, but other fields are
	}
	m, err := d.runOnControl(ctx, d.scripts.remove, d.keys.get(name), ticketID)
	if err != nil {
		return err
	}
	n, err := m.Int()
	switch {
	case err != nil:
		return driver.Wrap(driver.Refused, errForeign)
	case n == 1:
		return nil
	}
	return driver.ErrNoTicket
}
