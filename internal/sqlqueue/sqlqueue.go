// Package sqlqueue keeps queues of tickets in the tables of a database. The SQL
// stores share it: it has the statements, and the decisions about their rows. A
// driver adds a [Dialect], a [DB] that runs statements, and pushes.
//
// # The tables
//
// A queue is one row of the table line, found by the SHA-256 of its name. Every
// request that decides something about the queue locks this row first, so that
// requests on one queue are serialised. The row carries the data for most
// decisions: the units held, the numbers of places that hold and wait, and the
// last token.
//
// The first place that holds is written into the queue's row itself. While
// nobody waits, joining, renewing and leaving are therefore one statement on
// one row each. So is a mutex's hand-off, but for the row of the ticket that
// moves up. Where a database can do that in one statement, it is sent together
// with the row lock; so is a ticket that goes to the end of a queue
// ([Dialect.NotifyGrant]). Where a database has compound statements, both are
// one statement ([CompoundDB]).
//
// All other tickets have rows of their own, ordered by place. Places up to the
// queue's turn hold, and those after it wait: tickets are granted in order, so
// the holders are always the first. Tickets of one named owner share a place.
//
// Every statement that reads tickets is a later one than the statement that
// locked the queue's row. A single statement that does both sees the tickets as
// they were when it began to wait for the lock; such a statement was seen to
// grant two holders.
//
// A table of tombstones keeps, for [TombstoneTTL], the ids of tickets that may
// still be asked for (Leave 4, Join 2). [Queues.Sweep] deletes the rows of idle
// queues. The greatest token among them is kept, so that no token repeats even
// if the clock was set back meanwhile.
//
// # Time
//
// Times are microseconds on the store's clock, and TTLs are microseconds. The
// dialect decides which clock that is, and where it is read.
package sqlqueue

import (
	"context"
	"crypto/sha256"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TombstoneTTL is the time for which a tombstone is kept: longer than any
// request of its ticket can be under way.
const TombstoneTTL = time.Minute

// DB runs statements against one database. An error it returns has a class (see
// [driver.Error]), because only the driver knows its client library's errors.
type DB interface {
	// Auto runs one statement as a transaction of its own.
	Auto(ctx context.Context, s *Stmt) error

	// Tx runs f inside a transaction, then runs the statements that f returned,
	// and commits; these last statements may travel together with the commit.
	// After any failure it rolls back. It may run f again after a rollback.
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

// Stmt is a statement with its arguments. A DB may cache prepared statements by
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

// Push is the message that a ticket was granted (Held, with Token) or removed
// (Gone). It must be delivered to the client that listens at the address Wake,
// once the transaction it came from is committed.
type Push struct {
	Wake   string
	ID     string
	Status driver.Status
}

// Queues keeps queues in the tables of one dialect. It is safe for concurrent
// use, and its answers depend on nothing but the tables.
type Queues struct {
	d Dialect
	t texts

	// Statements that decide without reading the waiters are not tried where
	// somebody waits.
	contention contention

	// The key of the queue that the last request on several queues has reached.
	lastKey atomic.Pointer[[]byte]

	// The key of the queue in which a request last left expired tickets,
	// because it had used up its steps. Nil when there is none.
	expiredIn atomic.Pointer[[]byte]
}

// New returns the Queues of a dialect.
func New(d Dialect) *Queues {
	return &Queues{d: d, t: newTexts(&d)}
}

// never is later than every time.
const never = math.MaxInt64

// maxToken is the greatest token of a queue: columns are signed.
const maxToken = math.MaxInt64

// Key returns the primary key of a queue's row.
func Key(name string) []byte {
	sum := sha256.Sum256([]byte(name))
	return sum[:]
}

// micros rounds up: keeping a place too long is safe, too short is not.
func micros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Tick returns the token of a grant at the time wall in a queue without tokens,
// see [driver.NextToken]. Dialects with a clock in the process use it.
func Tick(wall time.Time) int64 {
	return int64(driver.NextToken(0, 0, wall))
}
