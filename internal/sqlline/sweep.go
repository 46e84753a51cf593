package sqlline

import (
	"context"
	"strings"
)

// namesPage and sweepPage are how many lines one request looks at.
const (
	namesPage = 256
	sweepPage = 32
)

// Sweep looks at the next few lines after the key that the sweep before
// returned, nil at first and after the last. It deletes the rows of those that
// are idle, and returns the names of lines that are not, but in which nobody
// may live any more: each of them is to be asked by Lives. A driver sweeps once
// for every 16 tickets that join or so; then rows that are of no use are never
// more than the others.
func (s *Lines) Sweep(ctx context.Context, db DB, after []byte) (next []byte, over []string, err error) {
	now, tick, err := s.readClock(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	var greatest int64
	// A token that is not yet well below the clock belongs to a line that was
	// used just now.
	const minute = 60_000_000 / 25
	var idle []any
	n := 0
	page := s.t.page.with(key(after), sweepPage)
	page.Row = func(scan func(...any) error) error {
		var k, name []byte
		var held, waiting, due, graves, token, until int64
		var head string
		err := scan(&k, &name, &held, &waiting, &due, &graves, &token, &head, &until)
		n++
		next = k
		switch {
		case held+waiting == 0 && graves <= now && token < tick-minute:
			idle = append(idle, k)
			greatest = max(greatest, token)
		case held+waiting > 0 && quiet(now, due, head, until):
			over = append(over, string(name))
		}
		return err
	}
	if err := db.Auto(ctx, page); err != nil {
		return nil, nil, err
	}
	if n < sweepPage {
		next = nil
	}
	if len(idle) > 0 {
		idle = filled(idle, sweepPage)
		err := db.Tx(ctx, func(Tx) ([]*Stmt, error) {
			return []*Stmt{
				s.t.purged.with(greatest),
				// Lines before graves, as every other request locks them.
				s.t.purgeLines.with(append(idle[:sweepPage:sweepPage], now, greatest)...),
				s.t.purgeGraves.with(append(idle[:sweepPage:sweepPage], now)...),
			}, nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return next, over, nil
}

// quiet says that no holder of a line is known to be living.
func quiet(now, due int64, head string, until int64) bool {
	return (due <= now || due == never) && (head == "" || until <= now)
}

// key makes nil a value that is before all keys.
func key(k []byte) []byte {
	if k == nil {
		return []byte{}
	}
	return k
}

// Named is a line that Names found.
type Named struct {
	Name string
	// Quiet says that nobody is known to live in it: ask Lives.
	Quiet bool
}

// Names returns the lines after the key that have tickets and a name that
// begins with prefix, as far as one page goes, and the key to go on with, nil
// after the last.
func (s *Lines) Names(ctx context.Context, db DB, after []byte, prefix string) (page []Named, next []byte, err error) {
	now, _, err := s.readClock(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	stmt := s.t.names.with(key(after), namesPage)
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

// Lives advances a line and says whether it has tickets then.
func (s *Lines) Lives(ctx context.Context, db DB, name string) (lives bool, pushes []Push, err error) {
	pushes, err = s.visit(ctx, db, name, false, func(l *line) error {
		err := l.advance(nil)
		lives = l.held+l.waiting > 0
		return err
	})
	return lives && err == nil, pushes, err
}

// readClock reads the store's clock.
func (s *Lines) readClock(ctx context.Context, db DB) (now, tick int64, err error) {
	if s.d.Clock != nil {
		now, tick = s.d.Clock()
		return now, tick, nil
	}
	clock := s.t.clock.with()
	clock.Row = func(scan func(...any) error) error { return scan(&now, &tick) }
	err = db.Auto(ctx, clock)
	return now, tick, err
}

// Count returns how many rows of lines there are, and how many places hold and
// wait in them.
func (s *Lines) Count(ctx context.Context, db DB) (lines, held, waiting int64, err error) {
	stmt := s.t.stats.with()
	stmt.Row = func(scan func(...any) error) error { return scan(&lines, &held, &waiting) }
	err = db.Auto(ctx, stmt)
	return lines, held, waiting, err
}
