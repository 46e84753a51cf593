package sqlqueue

import (
	"fmt"
	"strings"
)

// Dialect describes how a database differs from the others. The zero Dialect is
// that of SQLite, but for the clock.
type Dialect struct {
	// Clock reads the store's clock in this process: now in microseconds, for
	// deadlines, and the tick of the wall clock, for tokens. It is called when
	// a statement is about to run, and after a queue is locked. It is nil where
	// the database has the clock: then Now and Tick are expressions of type
	// BIGINT, evaluated when a statement runs, not when its transaction began.
	Clock func() (now, tick int64)
	Now   string
	Tick  string // (microseconds since driver.EpochMicro) / 25, at least 1

	// Numbered says that placeholders are $1, $2, …; otherwise they are
	// question marks.
	Numbered bool
	// Greatest is the function that returns its greatest argument. Empty: max.
	Greatest string
	// ForUpdate ends a SELECT so that it locks the row it finds. It is empty
	// where a transaction is the only writer from its beginning.
	ForUpdate string
	// SkipLocked ends a SELECT of many rows so that it finds and locks only
	// rows that nobody else has locked. It is empty where ForUpdate is.
	SkipLocked string
	// Ignore ends an INSERT so that it does nothing if the key exists. Empty:
	// ON CONFLICT (k) DO NOTHING.
	Ignore string
	// Overwrite ends the INSERT of a tombstone so that it updates an existing
	// one. Empty: ON CONFLICT … DO UPDATE.
	Overwrite string

	// Join replaces the upsert that decides an uncontended join, where the
	// database has no INSERT … ON CONFLICT … RETURNING. Its placeholders are
	// those of joinText, in the same order. DB must set Stmt.Last to the token
	// if the place was taken, and to 0 otherwise.
	Join string
	// NoReturning says that UPDATE has no RETURNING. Two statements in a
	// transaction then replace each single statement that decides elsewhere.
	NoReturning bool
	// Note is a function that returns its argument. DB sets Stmt.Last to that
	// argument, or to 0 if the function was not called. With Note, a database
	// without RETURNING needs no transaction for a single ticket.
	Note string
	// Batch is the maximum number of tickets that one statement decides about:
	// 1, 16, 64, 256 or 999; 0 means 256.
	Batch int

	// Prefix begins the names of all tables. Empty: holdfast_. It becomes part
	// of statements as it is, so a driver that takes it from a user must check
	// it.
	Prefix string

	// Types of columns. NoPartial: an index has no WHERE.
	Types     Types
	NoPartial bool
	// ConstantBounds: an index is searched between bounds that are constants of a
	// statement, but not between those that come from another row of it.
	ConstantBounds bool
	// ExtraChanges are changes of the tables after the existing ones, for tests
	// of migration. Nil: none.
	ExtraChanges *[][]string

	// Notify returns the statements that send pushes. They run with the commit
	// of their transaction. It is nil where pushes are sent outside the
	// transaction.
	Notify func([]Push) []*Stmt
	// NotifyGrant is an expression over the columns wake, id and token. It
	// notifies the client at the address wake, when the transaction commits,
	// that the ticket id holds with token. It is for databases where a
	// statement that changes a table can be part of another statement: there
	// one round trip hands a lock to the next waiter, or puts a ticket behind
	// the holder. Empty elsewhere. Self is the address of this client, which
	// delivers its own pushes itself.
	NotifyGrant string
	Self        string

	// JoinCompound and LeaveCompound are statements for a [CompoundDB], where a
	// database has such statements. Each decides the likely case of a contended
	// request. In every other case it changes nothing and returns no row. Empty
	// elsewhere.
	//
	// JoinCompound joins a queue that is free, or that meets the conditions of
	// steadyText. It returns the token of a ticket that holds, or 0; the number of
	// places before it; when the last of them expires, from now; and the metadata of
	// the holder. Its placeholders: key, name, limit, units, id, keep, wake, meta,
	// floor, and whether the ticket waits (1) or not (0).
	//
	// LeaveCompound releases a mutex and grants it to the first waiter, if there is
	// one, under the conditions of handOffText. It returns the token of the ticket
	// that left; the id, address and token of the one that was granted, if any; and
	// the number of waiters. It notifies the client that was granted, if that is
	// another one. Its placeholders: key, id, own address.
	JoinCompound, LeaveCompound string
}

// batch returns the maximum number of tickets that one statement decides about.
func (d *Dialect) batch() int {
	if d.Batch == 0 {
		return 256
	}
	return d.Batch
}

// Types are the column types of a dialect. Values of Key and Bytes are compared
// byte for byte.
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

// SQLiteTypes are the types of SQLite.
var SQLiteTypes = Types{
	Int:   "INTEGER",
	Key:   "BLOB",
	Bytes: "BLOB",
	ID:    "TEXT",
	Owner: "TEXT",
	Text:  "TEXT",
	Wake:  "TEXT",
	Table: " STRICT, WITHOUT ROWID",
}

// Text is the text of a statement in a dialect. Its placeholders stand for the
// caller's arguments and, where the clock is in this process, for the time.
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

// text translates a statement, in which these words stand for:
//
//	?        an argument of the caller, in order
//	{now}    the store's clock, {tick} the tick for tokens
//	{line}   and {ticket}, {grave}, {mark}, {store}: the tables
//	{lock}   the end of a SELECT that locks
//	{skip}   the end of a SELECT that skips locked rows and locks the others
//	{max}    the function that returns its greatest argument
//	{note}   the function whose argument the DB can read, see Dialect.Note
//	{grant}  the expression that notifies of a grant
//	{list}   n arguments, separated by commas
//	{pairs}  the condition that a ticket is one of n, named by line and id
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
		"{line}", prefix+"line", "{ticket}", prefix+"ticket", "{grave}", prefix+"grave", "{mark}", prefix+"mark", "{store}", prefix+"store",
		"{lock}", d.ForUpdate, "{skip}", d.SkipLocked, "{max}", greatest, "{note}", d.Note, "{grant}", d.NotifyGrant,
		"{list}", strings.TrimSuffix(strings.Repeat("?, ", n), ", "),
		"{pairs}", "("+strings.TrimSuffix(strings.Repeat("(line = ? AND id = ?) OR ", n), " OR ")+")",
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
			panic("sqlqueue: unknown word in statement: " + s)
		}
	}
	t.SQL = b.String()
	t.Writes = !strings.HasPrefix(t.SQL, "SELECT ")
	return t
}

// with returns the statement with its arguments. It does not read the clock;
// Stmt.Values does.
func (t *Text) with(args ...any) *Stmt { return &Stmt{Text: t, Args: args} }

// Values returns the values of the placeholders, in order. A DB must call it
// right before each run of the statement, because the time may be among the
// values.
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
