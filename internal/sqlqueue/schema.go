package sqlqueue

import (
	"slices"
	"strings"
)

// Schema returns the statements that create the tables of [Queues.Layout], in
// order: those of layout 1, and every change since. They fail where a table
// exists, so a driver checks for tables first.
func (s *Queues) Schema() []string {
	return s.d.translate(slices.Concat(append([][]string{schema}, s.d.changes()...)...))
}

// translate returns statements in the dialect.
func (d *Dialect) translate(stmts []string) []string {
	ty := &d.Types
	types := strings.NewReplacer(
		"<int>", ty.Int, "<key>", ty.Key, "<bytes>", ty.Bytes, "<id>", ty.ID, "<owner>", ty.Owner,
		"<text>", ty.Text, "<wake>", ty.Wake, "<table>", ty.Table,
		"{partial}", d.partial(),
	)
	out := make([]string, len(stmts))
	for i, stmt := range stmts {
		out[i] = d.text(0, types.Replace(stmt)).SQL
	}
	return out
}

// partial returns the condition of the index on owners, since few tickets name
// one.
func (d *Dialect) partial() string {
	if d.NoPartial {
		return ""
	}
	return " WHERE owner <> ''"
}

// schema has the statements that create the tables of layout 1.
var schema = []string{
	// One row: the layout; the boot that the times belong to, where the clock
	// is a machine's; and the greatest token of a deleted row.
	`CREATE TABLE {store} (
		one <int> NOT NULL PRIMARY KEY,
		layout <int> NOT NULL,
		boot <id> NOT NULL,
		purged <int> NOT NULL
	)<table>`,
	// lim: the limit of the tickets in the queue · used: units held · held,
	// waiting: places · seq: the last number given to a ticket · turn: places
	// up to this one hold · token: the last one granted · due: no holder in the
	// ticket table expires before this · `graves`: 0, or when the last
	// tombstone of this queue ends · h_…: a holder of the first place; h_id is
	// empty when it is not here.
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

// StoreRow is the row that identifies the tables.
type StoreRow struct {
	Layout int64
	Boot   string
}

// Store returns the statement that reads that row into f.
func (s *Queues) Store(f *StoreRow) *Stmt {
	stmt := s.t.found.with()
	stmt.Row = func(scan func(...any) error) error { return scan(&f.Layout, &f.Boot) }
	return stmt
}

// Begin returns the statement that writes that row, once the tables are
// created. Boot is empty where the clock is not a machine's.
func (s *Queues) Begin(boot string) *Stmt { return s.t.begin.with(s.Layout(), boot) }

// Void returns the statements that empty all queues because the clock now
// counts from another start. They keep the tokens.
func (s *Queues) Void(boot string) []*Stmt {
	return []*Stmt{s.t.voidTickets.with(), s.t.voidTombstones.with(), s.t.voidQueues.with(), s.t.boot.with(boot)}
}

// Touch returns a statement that writes but changes nothing, for measurements.
func (s *Queues) Touch() *Stmt { return s.t.purged.with(0) }
