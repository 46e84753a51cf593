package sqlline

import (
	"slices"
	"strings"
)

// Schema returns the statements that make the tables of [Lines.Layout], in
// order: those of layout 1, and every change since. They fail where a table
// exists: whoever opens a database looks first.
func (s *Lines) Schema() []string {
	return s.translate(slices.Concat(append([][]string{schema}, s.changes()...)...))
}

// translate returns statements in the dialect.
func (s *Lines) translate(stmts []string) []string {
	ty := &s.d.Types
	types := strings.NewReplacer(
		"<int>", ty.Int, "<key>", ty.Key, "<bytes>", ty.Bytes, "<id>", ty.ID, "<owner>", ty.Owner,
		"<text>", ty.Text, "<wake>", ty.Wake, "<table>", ty.Table,
		"{partial}", s.partial(),
	)
	out := make([]string, len(stmts))
	for i, stmt := range stmts {
		out[i] = s.d.text(0, types.Replace(stmt)).SQL
	}
	return out
}

// partial is the condition of the index on owners, which few tickets name.
func (s *Lines) partial() string {
	if s.d.NoPartial {
		return ""
	}
	return " WHERE owner <> ''"
}

// schema makes the tables of layout 1.
var schema = []string{
	// One row: the layout, the boot that the times belong to where the clock
	// is a machine's, and the greatest token of a row that was deleted.
	`CREATE TABLE {store} (
		one <int> NOT NULL PRIMARY KEY,
		layout <int> NOT NULL,
		boot <id> NOT NULL,
		purged <int> NOT NULL
	)<table>`,
	// lim: the limit of the tickets in the line · used: units held · held,
	// waiting: places · seq: the last number given to a ticket · turn: places
	// up to this one hold · token: the last one granted · due: no holder with
	// a row in the ticket table is over before this · graves: 0, or until when
	// a ticket of this line has a grave · h_…: a holder of the first place;
	// h_id is empty when it is not here.
	`CREATE TABLE {line} (
		k <key> NOT NULL PRIMARY KEY,
		name <bytes> NOT NULL,
		lim <int> NOT NULL,
		used <int> NOT NULL,
		held <int> NOT NULL,
		waiting <int> NOT NULL,
		seq <int> NOT NULL,
		turn <int> NOT NULL,
		token <int> NOT NULL,
		due <int> NOT NULL,
		graves <int> NOT NULL,
		h_id <id> NOT NULL,
		h_owner <owner> NOT NULL,
		h_units <int> NOT NULL,
		h_place <int> NOT NULL,
		h_token <int> NOT NULL,
		h_keep <int> NOT NULL,
		h_until <int> NOT NULL,
		h_wake <wake> NOT NULL,
		h_meta <text> NOT NULL
	)<table>`,
	// place: shared by the tickets of a named owner, else the ticket's own
	// seq · units: of the place · token: 0 while it waits.
	`CREATE TABLE {ticket} (
		line <key> NOT NULL,
		place <int> NOT NULL,
		seq <int> NOT NULL,
		id <id> NOT NULL,
		owner <owner> NOT NULL,
		units <int> NOT NULL,
		token <int> NOT NULL,
		floor <int> NOT NULL,
		keep <int> NOT NULL,
		until <int> NOT NULL,
		wake <wake> NOT NULL,
		meta <text> NOT NULL,
		PRIMARY KEY (line, place, seq)
	)<table>`,
	`CREATE UNIQUE INDEX {ticket}_id ON {ticket} (line, id)`,
	`CREATE INDEX {ticket}_owner ON {ticket} (line, owner){partial}`,
	`CREATE TABLE {grave} (
		line <key> NOT NULL,
		id <id> NOT NULL,
		until <int> NOT NULL,
		PRIMARY KEY (line, id)
	)<table>`,
}

// Found is the row that says what the tables are.
type Found struct {
	Layout int64
	Boot   string
}

// Store returns the statement that reads the row into f.
func (s *Lines) Store(f *Found) *Stmt {
	stmt := s.t.found.with()
	stmt.Row = func(scan func(...any) error) error { return scan(&f.Layout, &f.Boot) }
	return stmt
}

// Begin returns the statement that writes the row, once the tables are made.
// Boot is empty where the clock is not a machine's.
func (s *Lines) Begin(boot string) *Stmt { return s.t.begin.with(s.Layout(), boot) }

// Void returns the statements that empty all lines because the clock counts
// from another start now. Tokens stay.
func (s *Lines) Void(boot string) []*Stmt {
	return []*Stmt{s.t.voidTickets.with(), s.t.voidGraves.with(), s.t.voidLines.with(), s.t.boot.with(boot)}
}

// Touch returns a statement that writes and changes nothing, to measure by.
func (s *Lines) Touch() *Stmt { return s.t.purged.with(0) }
