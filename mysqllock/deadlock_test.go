package mysqllock

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// rowLocker locks rows by hand.
type rowLocker struct {
	*testing.T
	tx    *sql.Tx
	lines string
}

// newStranger begins a transaction.
func newStranger(t *testing.T, db *sql.DB, url string) *rowLocker {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &rowLocker{t, tx, linesOf(url)}
}

// Lock implements [sqlcases.RowLocker].
func (s *rowLocker) Lock(name string) error {
	_, err := s.tx.Exec("SELECT k FROM "+s.lines+" WHERE k = ? FOR UPDATE", sqlqueue.Key(name))
	return err
}

// End implements [sqlcases.RowLocker].
func (s *rowLocker) End() { _ = s.tx.Rollback() }

// TestF93_RowLocksNeverDeadlock checks that a transaction that locks rows by
// hand, in any order, and a renewal of several locks never deadlock.
func TestF93_RowLocksNeverDeadlock(t *testing.T) {
	t.Parallel()
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	db := poolOf(t, url, nil)
	sqlcases.NoDeadlock(t, openOn(t, url), func() sqlcases.RowLocker { return newStranger(t, db, url) }, func() bool {
		return s.Transaction(t, "count(*)", "trx_state = 'LOCK WAIT' AND trx_query LIKE '%"+prefixOf(url)+"line%'") > 0
	})
}

// linesOf returns the name of the queues' table for a URL.
func linesOf(url string) string {
	if prefix := prefixOf(url); prefix != "" {
		return prefix + "line"
	}
	return "holdfast_line"
}
