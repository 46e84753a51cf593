// Package sqlline keeps lines of tickets in the tables of a database. It is
// what the SQL stores share: the statements, and the decisions about their
// rows. A driver adds a [Dialect], a [DB] that runs statements, and pushes.
//
// # The tables
//
// A line is one row, found by the SHA-256 of its name. Every request that
// decides something about the line locks this row first, so requests on one
// line are serialised, and it carries what most of them decide from: how many
// units are held, how many places hold and wait, the last token.
//
// The first place that holds is written into the line's row itself. As long as
// nobody waits, joining, renewing and leaving are therefore one statement on
// one row each; and so is handing a mutex on, but for the row of the ticket
// that moves up. Where a database can do that in one statement, it travels with
// the row lock, and so does a ticket that goes to the end ([Dialect].Grant).
//
// All other tickets have rows of their own, ordered by place. Places up to the
// line's turn hold, those after it wait: grants are made in order, so the
// holders are always the first. Tickets of one named owner share a place.
//
// Whatever reads tickets runs in a later statement than the one that locked
// the line's row. A single statement that does both sees the tickets as they
// were when it began to wait for the lock, and was seen to grant two holders.
//
// Ids of tickets that may still be asked for (Leave 4, Join 2) are remembered
// in a table of graves for [RequestAge]. Rows of idle lines are deleted by
// [Lines.Sweep]; the greatest token among them stays, so that none repeats
// even if the clock was set back meanwhile.
//
// # Time
//
// Times are microseconds on the store's clock, TTLs microseconds. Which clock
// that is, and where it is read, is for the dialect to say.
package sqlline

import (
	"context"
	"crypto/sha256"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// RequestAge is for how long it is remembered that a ticket is gone: longer
// than any request of it can be under way.
const RequestAge = time.Minute

// DB runs statements against one database. An error it returns has a class
// (see [driver.Error]), as only the driver knows its client's errors.
type DB interface {
	// Auto runs one statement as a transaction of its own.
	Auto(ctx context.Context, s *Stmt) error

	// Tx runs f inside a transaction, then the statements that f returned,
	// and commits; these last ones may travel together with the commit. When
	// anything fails it rolls back. It may run f again after a rollback.
	//
	// The transaction must see what was committed before each statement
	// began: READ COMMITTED, or a database with one writer at a time.
	Tx(ctx context.Context, f func(Tx) ([]*Stmt, error)) error
}

// Tx is an open transaction.
type Tx interface {
	// Do runs statements in order, in one round trip where that is possible.
	// After an error the transaction is rolled back.
	Do(ctx context.Context, s ...*Stmt) error
}

// Stmt is a statement with its arguments. A DB may keep what it prepares by
// the identity of Text: there are a few dozen of them.
type Stmt struct {
	Text *Text
	Args []any

	// Row is called for each row of the answer; nil discards them. The args
	// of scan are *int64, *string and *[]byte.
	Row func(scan func(dest ...any) error) error

	// Last is set by Auto of a DB whose dialect has no RETURNING, see
	// Dialect.Join and Dialect.Note.
	Last int64
}

// Push says that a ticket was granted (Held, with Token) or removed (Gone). It
// is to be delivered to the client that listens at the address Wake, once the
// transaction it came from is committed.
type Push struct {
	Wake  string
	ID    string
	Place driver.Place
}

// Lines keeps lines in the tables of one dialect. It is safe for concurrent
// use, and its answers depend on nothing but the tables.
type Lines struct {
	d Dialect
	t texts

	// Where somebody waits, statements that decide without a look at who does are
	// not tried.
	crowd crowd
}

// New returns the lines of a dialect.
func New(d Dialect) *Lines {
	return &Lines{d: d, t: newTexts(&d)}
}

// never is later than every time.
const never = math.MaxInt64

// lastToken is where a line's tokens end: columns are signed.
const lastToken = math.MaxInt64

// Key returns the primary key of a line's row.
func Key(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

// micros rounds up: the store rather keeps a place too long than too short.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Tick returns the token of a grant at the time wall, as [driver.NextToken]
// has it for a line without tokens. Dialects with a clock in the process use
// it.
func Tick(wall time.Time) int64 {
	return int64(driver.NextToken(0, 0, wall))
}
