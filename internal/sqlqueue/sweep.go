package sqlqueue

import (
	"context"
	"slices"
	"strings"
)

// namesPage and sweepPage are the numbers of queues that one request reads.
const (
	namesPage = 256
	sweepPage = 128
)

// Swept is the result of one step of [Queues.Sweep].
type Swept struct {
	Next    []byte   // where the next step begins, nil after the last queue
	Quiet   []string // names of queues in which no ticket is known to be alive: ask HasTickets
	Removed int      // deleted rows of idle queues
	Rest    int      // rows of idle queues that are still there
}

// Sweep reads the next queues after the key at which the step before ended,
// which is nil at first and after the last queue. It deletes the rows of queues
// that have been idle for a minute. It waits for no row that somebody else has
// locked, neither a queue's nor the store's, so nobody waits behind it.
func (s *Queues) Sweep(ctx context.Context, db DB, after []byte) (found Swept, err error) {
	now, tick, err := s.readClock(ctx, db)
	if err != nil {
		return found, err
	}
	var greatest int64
	// A token not yet well below the clock's belongs to a queue that was used
	// recently.
	const minute = 60_000_000 / 25
	var idle []any
	n := 0
	page := s.t.page.with(keyOrFirst(after), sweepPage)
	page.Row = func(scan func(...any) error) error {
		var k, name []byte
		var held, waiting, due, tombstones, token, until int64
		var head string
		err := scan(&k, &name, &held, &waiting, &due, &tombstones, &token, &head, &until)
		n++
		found.Next = k
		switch {
		case held+waiting > 0:
			if quiet(now, due, head, until) {
				found.Quiet = append(found.Quiet, string(name))
			}
		case tombstones <= now && token < tick-minute:
			idle = append(idle, k)
			greatest = max(greatest, token)
			fallthrough
		default:
			found.Rest++
		}
		return err
	}
	if err := db.Auto(ctx, page); err != nil {
		return found, err
	}
	if n < sweepPage {
		found.Next = nil
	}
	if len(idle) == 0 {
		return found, nil
	}
	found.Removed, err = s.purge(ctx, db, idle, now, greatest)
	found.Rest -= found.Removed
	return found, err
}

// purge deletes those rows of idle queues that nobody else has locked, and
// returns their number.
//
// The mark under the tokens of new rows rises in a transaction of its own, before
// the rows are deleted. A join that waits for a row that is being deleted has
// read the mark before it waited: it must find the new one even if the clock,
// which else keeps its token above, is set back meanwhile.
func (s *Queues) purge(ctx context.Context, db DB, idle []any, now, greatest int64) (n int, err error) {
	taken := false
	err = db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
		taken = false
		one := s.t.takeStore.with()
		one.Row = func(func(...any) error) error { taken = true; return nil }
		if err := tx.Do(ctx, one); err != nil || !taken {
			return nil, err
		}
		return []*Stmt{s.t.purged.with(greatest)}, nil
	})
	if err != nil || !taken {
		return 0, err
	}
	var free []any
	err = db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
		free = nil
		queues := s.t.idle.with(append(filled(slices.Clone(idle), sweepPage), now, greatest)...)
		queues.Row = func(scan func(...any) error) error {
			var k []byte
			err := scan(&k)
			free = append(free, k)
			return err
		}
		if err := tx.Do(ctx, queues); err != nil || len(free) == 0 {
			return nil, err
		}
		return s.t.purgeQueue.forEach(free), nil
	})
	if err != nil || len(free) == 0 {
		return 0, err
	}
	// Tombstones are deleted in a transaction of their own: it locks no queue.
	return len(free), db.Tx(ctx, func(Tx) ([]*Stmt, error) { return s.t.removeTombstones.forEach(free, now), nil })
}

// forEach returns one statement for each key, with the key and args. MariaDB
// reads a small table as a whole for DELETE … WHERE k IN (…), and waits for each
// row that somebody else has locked, whether the list names it or not.
func (t *Text) forEach(keys []any, args ...any) []*Stmt {
	stmts := make([]*Stmt, len(keys))
	for i, k := range keys {
		stmts[i] = t.with(append([]any{k}, args...)...)
	}
	return stmts
}

// quiet reports whether no holder of a queue is known to be alive.
func quiet(now, due int64, head string, until int64) bool {
	return (due <= now || due == never) && (head == "" || until <= now)
}

// keyOrFirst turns nil into a value that is before all keys.
func keyOrFirst(k []byte) []byte {
	if k == nil {
		return []byte{}
	}
	return k
}

// Named is a queue that Names found.
type Named struct {
	Name string
	// Quiet says that no ticket in it is known to be alive: ask HasTickets.
	Quiet bool
}

// Names returns one page of the queues after the key that have tickets and a
// name that begins with prefix, and the key of the next page, nil after the
// last.
func (s *Queues) Names(ctx context.Context, db DB, after []byte, prefix string) (page []Named, next []byte, err error) {
	now, _, err := s.readClock(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	stmt := s.t.names.with(keyOrFirst(after), namesPage)
	stmt.Row = func(scan func(...any) error) error {
		var k, name []byte
		var waiting, due, until int64
		var head string
		err := scan(&k, &name, &waiting, &due, &head, &until)
		n++
		next = k
		if strings.HasPrefix(string(name), prefix) {
			page = append(page, Named{string(name), quiet(now, due, head, until)})
		}
		return err
	}
	if err := db.Auto(ctx, stmt); err != nil {
		return nil, nil, err
	}
	if n < namesPage {
		next = nil
	}
	return page, next, nil
}

// HasTickets advances a queue and reports whether it has tickets then.
func (s *Queues) HasTickets(ctx context.Context, db DB, name string) (hasTickets bool, pushes []Push, err error) {
	pushes, err = s.visit(ctx, db, name, "", false, func(q *queue) error {
		err := q.advance(nil)
		hasTickets = q.held+q.waiting > 0
		return err
	})
	return hasTickets && err == nil, pushes, err
}

// readClock reads the store's clock.
func (s *Queues) readClock(ctx context.Context, db DB) (now, tick int64, err error) {
	if s.d.Clock != nil {
		now, tick = s.d.Clock()
		return now, tick, nil
	}
	clock := s.t.clock.with()
	clock.Row = func(scan func(...any) error) error { return scan(&now, &tick) }
	err = db.Auto(ctx, clock)
	return now, tick, err
}

// Count returns the number of queues' rows, and the numbers of places that hold
// and wait in them.
func (s *Queues) Count(ctx context.Context, db DB) (queues, held, waiting int64, err error) {
	stmt := s.t.stats.with()
	stmt.Row = func(scan func(...any) error) error { return scan(&queues, &held, &waiting) }
	err = db.Auto(ctx, stmt)
	return queues, held, waiting, err
}
