package sqlqueue

import (
	"context"
	"math"

	"github.com/holdfast-go/holdfast/driver"
)

// markSchema creates the table of marks. It is no part of the layout: the first
// request about a mark creates it where it is missing, and older programs do not
// look for it. k is the SHA-256 of the name, as in the table of queues.
const markSchema = `CREATE TABLE IF NOT EXISTS {mark} (
	k <key> NOT NULL PRIMARY KEY,
	name <bytes> NOT NULL,
	token <int> NOT NULL,
	value <bytes> NOT NULL
)<table>`

// markTexts are the statements about marks.
type markTexts struct {
	read, set, token *Text
}

// setMarkText replaces a mark, and returns a row if it did.
const setMarkText = `
	INSERT INTO {mark} (k, name, token, value) VALUES (?, ?, ?, ?)
	ON CONFLICT (k) DO UPDATE SET token = excluded.token, value = excluded.value
	WHERE {mark}.token <= excluded.token
	RETURNING token`

// overwriteMarkText does the same where UPDATE has no RETURNING. The token comes
// last, because each assignment may see those before it.
const overwriteMarkText = `
	INSERT INTO {mark} (k, name, token, value) VALUES (?, ?, ?, ?)
	ON DUPLICATE KEY UPDATE value = IF({mark}.token <= VALUES(token), VALUES(value), {mark}.value),
		token = greatest({mark}.token, VALUES(token))`

func newMarkTexts(d *Dialect) markTexts {
	set := setMarkText
	if d.NoReturning {
		set = overwriteMarkText
	}
	return markTexts{
		read:  d.text(1, "SELECT token, value FROM {mark} WHERE k = ?"),
		set:   d.text(1, set),
		token: d.text(1, "SELECT token FROM {mark} WHERE k = ?"),
	}
}

// MarkSchema returns the statement that creates the table of marks unless it
// exists.
func (s *Queues) MarkSchema() string { return s.d.translate([]string{markSchema})[0] }

// MarkTable returns the statement that creates the table of marks unless it
// exists, for a DB.
func (s *Queues) MarkTable() *Stmt {
	return (&Text{SQL: s.MarkSchema(), Writes: true}).with()
}

// Mark reads the mark of a name. A name without one has the zero Mark.
func (s *Queues) Mark(ctx context.Context, db DB, name string) (driver.Mark, error) {
	var token int64
	var value []byte
	stmt := s.t.mark.read.with(Key(name))
	stmt.Row = func(scan func(...any) error) error { return scan(&token, &value) }
	if err := db.Auto(ctx, stmt); err != nil {
		return driver.Mark{}, err
	}
	return driver.Mark{Token: uint64(token), Value: value}, nil
}

// SetMark replaces the mark of a name, unless the one there has a greater token.
// Columns are signed: a token that does not fit is refused.
func (s *Queues) SetMark(ctx context.Context, db DB, name string, m driver.Mark) error {
	if err := driver.CheckMark(m); err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	if m.Token > math.MaxInt64 {
		return driver.Errorf(driver.Refused, "token %d does not fit into the table of marks", m.Token)
	}
	value := m.Value
	if value == nil {
		value = []byte{} // NULL otherwise
	}
	kept := int64(-1)
	row := func(scan func(...any) error) error { return scan(&kept) }
	set := s.t.mark.set.with(Key(name), []byte(name), int64(m.Token), value)
	var err error
	if s.d.NoReturning {
		err = db.Tx(ctx, func(tx Tx) ([]*Stmt, error) {
			find := s.t.mark.token.with(Key(name))
			find.Row = row
			return nil, tx.Do(ctx, set, find)
		})
	} else {
		set.Row = row
		err = db.Auto(ctx, set)
	}
	switch {
	case err != nil:
		return err
	case kept != int64(m.Token):
		return driver.ErrStaleMark
	}
	return nil
}

// Mark implements [driver.Marker.Mark].
func (r Requests) Mark(ctx context.Context, name string) (m driver.Mark, err error) {
	err = r.withMarks(ctx, func() error {
		m, err = r.tables.Queues.Mark(ctx, r.tables.Database, name)
		return err
	})
	return m, err
}

// SetMark implements [driver.Marker.SetMark].
func (r Requests) SetMark(ctx context.Context, name string, m driver.Mark) error {
	return r.withMarks(ctx, func() error {
		return r.tables.Queues.SetMark(ctx, r.tables.Database, name, m)
	})
}

// withMarks makes a request about a mark. If the table is missing, it creates it
// and makes the request again. So a user who may not create it is refused before
// the work that is to be marked.
func (r Requests) withMarks(ctx context.Context, request func() error) error {
	if err := r.tables.Begin(ctx); err != nil {
		return err
	}
	err := request()
	if !r.tables.Database.Missing(err) {
		return err
	}
	if err := r.tables.Database.CreateMarks(ctx); err != nil {
		return err
	}
	return request()
}
