// Package sqlfence refuses old tokens in PostgreSQL, MySQL, MariaDB and SQLite,
// by database/sql.
//
// The shortest guard is a column beside the data and a condition in your own
// UPDATE. It uses only Matched of this package:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// If the work is more than one statement, or inserts and deletes, Check keeps
// the highest token in a table of its own, in your transaction:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	err = sqlfence.PostgreSQL.Check(ctx, tx, "account/7", fence.Token{Value: hold.Token()})
//	if err != nil { // fence.ErrStale: roll back
//	…
//	err = tx.Commit()
//
// The row of the guard stays locked until the transaction ends, so no later
// token comes in between. Check first in the transaction: data that was read
// before may be old. Check several names in the order of the names, or two
// transactions may wait for each other.
package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/fence"
)

// Dialect is a kind of database.
type Dialect int

// The kinds of database. The zero Dialect is none of them.
const (
	PostgreSQL Dialect = iota + 1 // 13 or newer
	MySQL                         // MySQL 8, MariaDB 10.6 or newer
	SQLite                        // 3.24 or newer
)

// maxName and maxOwner are the longest texts that an index key of every
// database can hold.
const (
	maxName  = 512
	maxOwner = 256
)

// dialect has the statements for one kind of database. Text compares byte for
// byte.
type dialect struct {
	schema string
	// raise writes the token if it is admitted. Its arguments are name, number
	// and owner; with twice, number and owner follow again, and then number.
	raise string
	twice bool // raise has the repeated arguments
	// lock excludes other transactions from the name, where read does not. It
	// changes no row.
	lock string
	// counted means that the count of rows tells whether raise wrote the token.
	counted bool
	read    string // returns number and owner, locked against writers
}

var dialects = map[Dialect]dialect{
	PostgreSQL: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (
	name  text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL,
	owner text COLLATE "C" NOT NULL
)`,
		raise: `INSERT INTO holdfast_fence AS f (name, token, owner) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, owner = excluded.owner
WHERE f.token < excluded.token OR f.token = excluded.token AND f.owner = excluded.owner`,
		counted: true,
		read:    `SELECT token, owner FROM holdfast_fence WHERE name = $1 FOR SHARE`,
	},
	MySQL: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (
	name  VARBINARY(512) PRIMARY KEY,
	token BIGINT NOT NULL,
	owner VARBINARY(256) NOT NULL
) ENGINE=InnoDB`,
		// Assignments run from left to right: owner still sees the old token.
		// The number of rows that count as changed depends on the connection.
		raise: `INSERT INTO holdfast_fence (name, token, owner) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE owner = IF(token < ?, ?, owner), token = GREATEST(token, ?)`,
		twice: true,
		read:  `SELECT token, owner FROM holdfast_fence WHERE name = ? LOCK IN SHARE MODE`,
	},
	SQLite: {
		schema: `CREATE TABLE IF NOT EXISTS holdfast_fence (
	name  TEXT PRIMARY KEY,
	token INTEGER NOT NULL,
	owner TEXT NOT NULL
) WITHOUT ROWID`,
		raise: `INSERT INTO holdfast_fence (name, token, owner) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET token = excluded.token, owner = excluded.owner
WHERE token < excluded.token OR token = excluded.token AND owner = excluded.owner`,
		counted: true,
		lock:    `DELETE FROM holdfast_fence WHERE name = ? AND token < 0`,
		read:    `SELECT token, owner FROM holdfast_fence WHERE name = ?`,
	},
}

// Schema returns the statement that creates the table holdfast_fence if there
// is none. It is empty for a Dialect that is none of the constants.
func (d Dialect) Schema() string { return dialects[d].schema }

// Check admits the token for a name or refuses it, in a transaction that it
// leaves open. It blocks while another transaction that has checked the name is
// open. It returns:
//
//   - nil: no later token has committed, and none will before this transaction has
//     ended (a shared token does not exclude others from a name that has not been
//     checked before);
//   - a *fence.StaleError, or fence.ErrNoToken: roll back, and stop;
//   - an error about the name (1 to 512 bytes of UTF-8 without a zero byte), the
//     owner (at most 256 such bytes) or a number above 2^63-1: nothing was sent;
//   - the database's error, wrapped. A deadlock or a serialization failure
//     (40001, 40P01, 1213, SQLITE_BUSY) means that another transaction came
//     first: roll back and begin again with the same token.
//
// SQLite has one lock for all writes, which a shared token takes as well.
// There, transactions that check any name run one after the other.
func (d Dialect) Check(ctx context.Context, tx *sql.Tx, name string, t fence.Token) error {
	text, ok := dialects[d]
	if !ok {
		return fmt.Errorf("sqlfence: there is no dialect %d", d)
	}
	if err := valid(name, t); err != nil {
		return err
	}
	if !t.Shared {
		args := []any{name, int64(t.Value), t.Owner}
		if text.twice {
			args = append(args, int64(t.Value), t.Owner, int64(t.Value))
		}
		res, err := tx.ExecContext(ctx, text.raise, args...)
		if err != nil {
			return fmt.Errorf("sqlfence: check %q: %w", name, err)
		}
		if text.counted {
			if n, err := res.RowsAffected(); err == nil && n == 1 {
				return nil
			}
		}
	}
	if t.Shared && text.lock != "" {
		if _, err := tx.ExecContext(ctx, text.lock, name); err != nil {
			return fmt.Errorf("sqlfence: check %q: %w", name, err)
		}
	}
	// The token is still to be compared, or it was refused and the row has the
	// reason.
	var number int64
	var highest fence.Token
	err := tx.QueryRowContext(ctx, text.read, name).Scan(&number, &highest.Owner)
	if errors.Is(err, sql.ErrNoRows) && t.Shared {
		return nil // no token has raised the guard yet
	}
	if err != nil {
		return fmt.Errorf("sqlfence: check %q: %w", name, err)
	}
	highest.Value = uint64(number)
	if stale, ok := errors.AsType[*fence.StaleError](fence.Admit(highest, t)); ok {
		stale.Name = name
		return stale
	}
	if text.counted && !t.Shared {
		return fmt.Errorf("sqlfence: check %q: the guard refused and then had %v", name, highest)
	}
	return nil
}

// valid returns an error for a token or a name that not every database can
// store in the same way.
func valid(name string, t fence.Token) error {
	switch {
	case t.Value == 0:
		return fence.ErrNoToken
	case t.Value > math.MaxInt64:
		return fmt.Errorf("sqlfence: token %d does not fit a BIGINT", t.Value)
	case name == "" || !plain(name, maxName):
		return fmt.Errorf("sqlfence: the name is not 1 to %d bytes of UTF-8 without a zero byte", maxName)
	case !plain(t.Owner, maxOwner):
		return fmt.Errorf("sqlfence: the owner is not at most %d bytes of UTF-8 without a zero byte", maxOwner)
	}
	return nil
}

func plain(s string, most int) bool {
	for i := range len(s) {
		if s[i] == 0 {
			return false
		}
	}
	return len(s) <= most && utf8.ValidString(s)
}

// Matched reads the result of an UPDATE of yours with the condition of the
// package's first example. It returns fence.ErrStale if the UPDATE found no
// row, and err if that is not nil. A missing row cannot be distinguished from
// one that refused.
//
// MySQL counts the rows that were changed, not those found: a second write of
// the same values by the same holder counts none. Connections to MySQL need
// clientFoundRows=true in their DSN.
func Matched(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		return fence.ErrStale
	}
	return err
}
