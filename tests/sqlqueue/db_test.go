// Package sqlqueue_test runs the requests of internal/sqlqueue on SQLite, which its own
// package does without, so that the module of the core requires no client of a database.
package sqlqueue_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plainDB runs statements through database/sql, one after the other, in the
// simplest way, and counts them.
type plainDB struct {
	db     *sql.DB
	autos  int
	txs    int
	alone  []string // statements outside of transactions
	inside []string // statements in transactions
}

func (p *plainDB) Auto(ctx context.Context, s *sqlqueue.Stmt) error {
	p.autos++
	p.alone = append(p.alone, s.Text.SQL)
	return run(ctx, p.db, s)
}

func (p *plainDB) Tx(ctx context.Context, f func(sqlqueue.Tx) ([]*sqlqueue.Stmt, error)) error {
	p.txs++
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	last, err := f(plainTx{p, tx})
	if err == nil {
		err = plainTx{p, tx}.Do(ctx, last...)
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

type plainTx struct {
	p  *plainDB
	tx *sql.Tx
}

func (t plainTx) Do(ctx context.Context, stmts ...*sqlqueue.Stmt) error {
	for _, s := range stmts {
		t.p.inside = append(t.p.inside, s.Text.SQL)
		if err := run(ctx, t.tx, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *plainDB) reset() { p.autos, p.txs, p.alone, p.inside = 0, 0, nil, nil }

type runner interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}

func run(ctx context.Context, r runner, s *sqlqueue.Stmt) error {
	if s.Row == nil {
		_, err := r.ExecContext(ctx, s.Text.SQL, s.Values()...)
		return err
	}
	rows, err := r.QueryContext(ctx, s.Text.SQL, s.Values()...)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Text.SQL, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := s.Row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// fixture is a database with a clock that the test sets.
type fixture struct {
	testing.TB
	*sqlqueue.Queues
	db  *plainDB
	now atomic.Int64
	n   int
}

func newFixture(t testing.TB, noReturning bool) *fixture {
	t.Helper()
	f := &fixture{TB: t}
	f.now.Store(1_000_000)
	f.Queues = sqlqueue.New(sqlqueue.Dialect{Types: sqlqueue.SQLiteTypes, NoReturning: noReturning, Clock: func() (int64, int64) { return f.now.Load(), f.now.Load() / 25 }})
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db")+"?_pragma=synchronous(0)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	f.db = &plainDB{db: db}
	for _, stmt := range f.Schema() {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	if err := f.db.Auto(context.Background(), f.Begin("")); err != nil {
		t.Fatal(err)
	}
	f.db.reset()
	return f
}

func (f *fixture) ticket(name string, units, limit int64) *driver.Ticket {
	f.n++
	return &driver.Ticket{ID: fmt.Sprint("t:", f.n), Name: name, Units: units, Limit: limit, TTL: time.Second}
}

func (f *fixture) join(t *driver.Ticket, want driver.State) (driver.Status, []sqlqueue.Push) {
	f.Helper()
	p, pushes, err := f.Join(context.Background(), f.db, t, "wake", true)
	if err != nil || p.State != want {
		f.Fatalf("Join: %+v, %v, want %v", p, err, want)
	}
	return p, pushes
}
