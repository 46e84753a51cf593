package sqlline

import (
	"fmt"
	"strings"
)

// Dialect is what differs between databases. The zero Dialect is that of
// SQLite but for the clock.
type Dialect struct {
	// Clock reads the store's clock in this process: now in microseconds,
	// for deadlines, and the tick of the wall clock, for tokens. It is called
	// when a statement is about to run, and after a line is locked. Nil where
	// the database has the clock: then Now and Tick are expressions of type
	// BIGINT, evaluated when a statement runs, not when its transaction began.
	Clock func() (now, tick int64)
	Now   string
	Tick  string // (microseconds since driver.EpochMicro) / 25, at least 1

	// Numbered placeholders are $1, $2, …; otherwise they are question marks.
	Numbered bool
	// Greatest is the function that returns its greatest argument. Empty: max.
	Greatest string
	// ForUpdate ends a SELECT so that it locks the row it finds. Empty where
	// every transaction is the only writer from its beginning.
	ForUpdate string
	// Ignore ends an INSERT so that it does nothing if the key exists. Empty:
	// ON CONFLICT (k) DO NOTHING.
	Ignore string
	// Bury ends the INSERT of a grave so that it updates one that exists.
	// Empty: ON CONFLICT … DO UPDATE.
	Bury string

	// Join replaces the upsert that decides an uncontended join, where the
	// database has no INSERT … ON CONFLICT … RETURNING. Its placeholders are
	// those of joinText, in the same order; DB must set Stmt.Last to the token
	// if the place was taken, and to 0 otherwise.
	Join string
	// NoReturning says that UPDATE has no RETURNING: what one statement decides
	// elsewhere is then two, in a transaction.
	NoReturning bool
	// Note is a function that returns its argument, and from whose argument DB
	// sets Stmt.Last, to 0 if it was not called. With it, a database without
	// RETURNING needs no transaction for a single ticket.
	Note string
	// Batch is how many tickets one statement decides about at most: 256 if it
	// is 0, else one of 1, 16, 64, 256 and 999.
	Batch int

	// Prefix begins the names of all tables. Empty: holdfast_. It is part of
	// statements as it is, so it must be checked by who takes it from a user.
	Prefix string

	// Types of columns. NoPartial: an index has no WHERE.
	Types     Types
	NoPartial bool
	// Later are changes of the tables after those that there are, for tests of
	// the way from one layout to the next. Nil: none.
	Later *[][]string

	// Tell returns the statements that deliver pushes, to be run with the
	// commit of their transaction. Nil where that happens outside.
	Tell func([]Push) []*Stmt
	// Grant is an expression that tells the client at the address wake that
	// the ticket id holds with token, when its transaction commits; these are
	// columns. It is for databases where a statement that changes a table can
	// be part of another: they hand a lock on, and put a ticket behind its
	// holder, in one round trip. Empty elsewhere. Self is the address of this
	// client, which tells itself.
	Grant string
	Self  string
}

// batch is how many tickets one statement decides about at most.
func (d *Dialect) batch() int {
	if d.Batch == 0 {
		return 256
	}
	return d.Batch
}

// Types are the column types of a dialect. Bytes compare byte for byte.
type Types struct {
	Int   string // 64 bits, signed
	Key   string // 32 bytes
	Bytes string // 4 KiB of bytes
	ID    string // the core's ids, compared byte for byte
	Owner string // 256 bytes, compared byte for byte
	Text  string // 4 KiB
	Wake  string // 64 bytes
	Table string // follows the closing parenthesis of CREATE TABLE
}

// SQLite are the types of SQLite.
var SQLite = Types{
	Int:   "INTEGER",
	Key:   "BLOB",
	Bytes: "BLOB",
	ID:    "TEXT",
	Owner: "TEXT",
	Text:  "TEXT",
	Wake:  "TEXT",
	Table: " STRICT, WITHOUT ROWID",
}

// Text is the text of a statement in a dialect. Its placeholders are those of
// the caller's arguments and, where the clock is in this process, those of the
// clock.
type Text struct {
	SQL    string
	Writes bool // it is not a SELECT
	clock  func() (now, tick int64)
	slots  []slot
}

type slot uint8

const (
	slotArg slot = iota
	slotNow
	slotTick
)

// text translates a statement:
//
//	?        an argument of the caller, in order
//	{now}    the store's clock, {tick} the tick for tokens
//	{line}   and {ticket}, {grave}, {store}: the tables
//	{lock}   the end of a SELECT that locks
//	{max}    the function that returns its greatest argument
//	{note}   the function whose argument the DB learns of
//	{grant}  the expression that tells of a grant
//	{list}   n arguments, separated by commas
func (d *Dialect) text(n int, s string) *Text {
	t := &Text{clock: d.Clock}
	prefix := d.Prefix
	if prefix == "" {
		prefix = "holdfast_"
	}
	greatest := d.Greatest
	if greatest == "" {
		greatest = "max"
	}
	plain := strings.NewReplacer(
		"{line}", prefix+"line", "{ticket}", prefix+"ticket", "{grave}", prefix+"grave", "{store}", prefix+"store",
		"{lock}", d.ForUpdate, "{max}", greatest, "{note}", d.Note, "{grant}", d.Grant,
		"{list}", strings.TrimSuffix(strings.Repeat("?, ", n), ", "),
		"\n", " ", "\t", "",
	)
	s = plain.Replace(strings.TrimSpace(s))
	var b strings.Builder
	place := func(what slot) {
		t.slots = append(t.slots, what)
		if d.Numbered {
			fmt.Fprintf(&b, "$%d", len(t.slots))
		} else {
			b.WriteByte('?')
		}
	}
	for s != "" {
		i := strings.IndexAny(s, "?{")
		if i < 0 {
			i = len(s)
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch {
		case s == "":
		case s[0] == '?':
			place(slotArg)
			s = s[1:]
		case strings.HasPrefix(s, "{now}"):
			if d.Clock != nil {
				place(slotNow)
			} else {
				b.WriteString(d.Now)
			}
			s = s[len("{now}"):]
		case strings.HasPrefix(s, "{tick}"):
			if d.Clock != nil {
				place(slotTick)
			} else {
				b.WriteString(d.Tick)
			}
			s = s[len("{tick}"):]
		default:
			panic("sqlline: unknown word in statement: " + s)
		}
	}
	t.SQL = b.String()
	t.Writes = !strings.HasPrefix(t.SQL, "SELECT ")
	return t
}

// with returns the statement with its arguments. The clock is not read yet:
// that is for Stmt.Values.
func (t *Text) with(args ...any) *Stmt { return &Stmt{Text: t, Args: args} }

// Values returns the values of the placeholders, in order. To be called right
// before the statement runs, and again when it runs again, because the clock
// may be among them.
func (s *Stmt) Values() []any {
	t := s.Text
	if t.clock == nil || len(t.slots) == len(s.Args) {
		return s.Args
	}
	now, tick := t.clock()
	values := make([]any, len(t.slots))
	args := s.Args
	for i, what := range t.slots {
		switch what {
		case slotNow:
			values[i] = now
		case slotTick:
			values[i] = tick
		default:
			values[i], args = args[0], args[1:]
		}
	}
	return values
}
