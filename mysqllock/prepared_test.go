package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestFrequentStatementsArePrepared checks that, on MariaDB, statements that
// are sent alone are prepared once for each connection. A server that has lost
// a statement, or that prepares none, gets it as text, with the same result.
//
// Covers: F99.
func TestFrequentStatementsArePrepared(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	url := s.URL("holdfast", own()+"&max_conns=1")
	id, last := 0, uint64(0)
	cycle := func(d *Driver) {
		t.Helper()
		id++
		tk := ticket(id, "n")
		p := mustJoin(t, d, tk, driver.Held)
		if q := mustRenew(t, d, tk); q.State != driver.Held || q.Token != p.Token || p.Token <= last {
			t.Errorf("renewed %+v, joined %+v, after %d", q, p, last)
		}
		last = p.Token
		mustLeave(t, d, tk)
	}
	// counts returns the numbers of the only connection for requests.
	counts := func(d *Driver) (prepared, executed int64) {
		t.Helper()
		var name string
		for like, to := range map[string]*int64{"Com_stmt_prepare": &prepared, "Com_stmt_execute": &executed} {
			if err := d.db.queryRow(ctx, "SHOW SESSION STATUS LIKE '"+like+"'", nil, &name, to); err != nil {
				t.Fatal(err)
			}
		}
		return prepared, executed
	}
	d := openOn(t, url)
	d.db.tables.SweepLock.Lock()
	defer d.db.tables.SweepLock.Unlock()
	for range 3 {
		cycle(d)
	}
	if s.MySQL { // everything is sent as text
		if p, e := counts(d); p != 0 || e != 0 {
			t.Errorf("on MySQL %d were prepared, %d executed", p, e)
		}
		return
	}
	if p, e := counts(d); p != 3 || e != 9 {
		t.Errorf("%d prepared, %d executed; want 3 and 9", p, e)
	}
	s.Exec(t, "ALTER TABLE "+prefixOf(url)+"line ADD COLUMN later bigint NOT NULL DEFAULT 0")
	cycle(d) // the server itself prepares again
	prepared, executed := counts(d)
	if prepared < 3 || executed < 12 {
		t.Errorf("after the table was changed: %d prepared, %d executed; want 3 and 12", prepared, executed)
	}

	forget := func(number uint16) {
		t.Helper()
		c, err := d.db.pool.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if err := c.Raw(func(c any) error {
			stmts := c.(*preparingConn).stmts
			for text, s := range stmts {
				if s != nil {
					stmts[text] = forgotten{s, number}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	forget(unknownStmt)
	cycle(d)
	cycle(d)
	if p, e := counts(d); p != prepared || e != executed {
		t.Errorf("forgotten: %d prepared, %d executed; want %d and %d", p, e, prepared, executed)
	}

	s.Exec(t, "SET GLOBAL max_prepared_stmt_count = 0")
	d2 := openOn(t, url)
	cycle(d2)
	cycle(d2)
	if _, e := counts(d2); e != 0 {
		t.Errorf("%d executed where none can be prepared", e)
	}
}

// forgotten is a statement that the server does not have any more: one of
// another session, behind a proxy.
type forgotten struct {
	preparedStmt
	number uint16
}

// ExecContext implements driver.StmtExecContext.
func (f forgotten) ExecContext(context.Context, []sqldriver.NamedValue) (sqldriver.Result, error) {
	return nil, &mysql.MySQLError{Number: f.number, Message: "Unknown prepared statement handler"}
}

// TestNothingPreparedInUsersPool checks that nothing stays prepared in a pool
// that was passed to New.
func TestNothingPreparedInUsersPool(t *testing.T) {
	t.Parallel()
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	d, err := New(poolOf(t, url, nil), &Options{TablePrefix: prefixOf(url)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	mustJoin(t, d, ticket(1, "n"), driver.Held)
	c, err := d.db.pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Raw(func(c any) error {
		if _, ok := c.(*preparingConn); ok {
			t.Error("a pool that was given prepares")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
