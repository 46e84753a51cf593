package pglock

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// rowLocker locks rows by hand.
type rowLocker struct {
	*testing.T
	tx    pgx.Tx
	lines string
}

// newStranger begins a transaction.
func newStranger(t *testing.T, c *pgx.Conn, url string) *rowLocker {
	t.Helper()
	tx, err := c.Begin(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return &rowLocker{t, tx, linesOf(url)}
}

// Lock implements [sqlcases.RowLocker].
func (s *rowLocker) Lock(name string) error {
	_, err := s.tx.Exec(context.Background(), "SELECT 1 FROM "+s.lines+" WHERE name = $1 FOR UPDATE", []byte(name))
	return err
}

// End implements [sqlcases.RowLocker].
func (s *rowLocker) End() { _ = s.tx.Rollback(context.Background()) }

// TestF93_RowLocksNeverDeadlock checks that a transaction that locks rows by
// hand, in any order, and a renewal of several locks never deadlock.
func TestF93_RowLocksNeverDeadlock(t *testing.T) {
	t.Parallel()
	url := servers.SharedPostgres(t).URL("postgres", own())
	other, looks := admin(t, url), admin(t, url)
	sqlcases.NoDeadlock(t, openOn(t, url), func() sqlcases.RowLocker { return newStranger(t, other, url) }, func() bool {
		// A query inside the transaction would see only the waits at its first
		// look.
		n := 0
		err := looks.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+prefixOf(url)+"line%'").Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	})
}

// linesOf returns the name of the queues' table for a URL.
func linesOf(url string) string {
	if prefix := prefixOf(url); prefix != "" {
		return prefix + "line"
	}
	return "holdfast_line"
}
