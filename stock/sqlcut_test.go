package stock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// cutConnector makes connections that break at one statement: before it is sent,
// or after it was carried out and before its answer arrives.
type cutConnector struct {
	sqldriver.Connector
	mu     sync.Mutex
	left   int // it breaks at this statement from now; 0: it does not
	after  bool
	broken string // the statement that it broke at
}

// Connect implements [sqldriver.Connector].
func (c *cutConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, by: c}, nil
}

// arm makes the connections break at a statement from now.
func (c *cutConnector) arm(left int, after bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.after, c.broken = left, after, ""
}

// breaksAt counts a statement.
func (c *cutConnector) breaksAt(statement string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return false
	}
	if c.left--; c.left > 0 {
		return false
	}
	c.broken = statement
	return true
}

// cutConn is a connection of a cutConnector.
type cutConn struct {
	sqldriver.Conn
	by *cutConnector
}

func (c *cutConn) send(statement string, f func() error) error {
	if !c.by.breaksAt(statement) {
		return f()
	}
	if c.by.after {
		if err := f(); err != nil {
			return err
		}
	}
	_ = c.Conn.Close()
	return io.ErrUnexpectedEOF
}

// ExecContext implements [sqldriver.ExecerContext].
func (c *cutConn) ExecContext(ctx context.Context, q string, args []sqldriver.NamedValue) (r sqldriver.Result, err error) {
	err = c.send(q, func() error {
		r, err = c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, q, args)
		return err
	})
	return r, err
}

// QueryContext implements [sqldriver.QueryerContext].
func (c *cutConn) QueryContext(ctx context.Context, q string, args []sqldriver.NamedValue) (r sqldriver.Rows, err error) {
	err = c.send(q, func() error {
		r, err = c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, q, args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// connectors are the client libraries' ways to the shared servers.
func connectors(t *testing.T) map[string]sqldriver.Connector {
	t.Helper()
	config, err := pgx.ParseConfig(servers.SharedPostgres(t).URL("postgres", "sslmode=disable&synchronous_commit=off"))
	must(t, err)
	s := servers.SharedMariaDB(t)
	my, err := mysqldriver.ParseDSN(mariaDBAt(s, "locks"))
	must(t, err)
	other, err := mysqldriver.NewConnector(my)
	must(t, err)
	return map[string]sqldriver.Connector{"postgres": stdlib.GetConnector(*config), "mariadb": other}
}

// TestEveryStatementCut breaks the connection at each statement of a call, before
// it is sent and after its answer. The call is repeated by its id, and carried out
// once: also if it was the commit whose answer was lost.
func TestEveryStatementCut(t *testing.T) {
	calls := map[string]func(ctx context.Context, s *Stock, sku string) error{
		"Sell":    func(ctx context.Context, s *Stock, sku string) error { return second(s.Sell(ctx, sku, 2, "a")) },
		"Add":     func(ctx context.Context, s *Stock, sku string) error { return s.Add(ctx, sku, 2, "b") },
		"Confirm": func(ctx context.Context, s *Stock, sku string) error { return s.Confirm(ctx, sku, "basket") },
		"gather":  func(ctx context.Context, s *Stock, sku string) error { return second(s.Sell(ctx, sku, 9, "c")) },
		"batch": func(ctx context.Context, s *Stock, sku string) error {
			_, k, err := s.directories.find(ctx, sku, nil)
			if err != nil {
				return err
			}
			home := k.shard(sku, k.home("a"))
			sales := []*batchedSale{{request: request{op: opSell, sale: "a", units: 1, epoch: k.Epoch, keep: k.Keep}},
				{request: request{op: opSell, sale: "d", units: 1, epoch: k.Epoch, keep: k.Keep}}}
			if err := s.sender.backend.sell(ctx, home, sales); err == nil {
				return nil
			}
			for _, sale := range sales { // as their callers do
				if a, err := s.sender.ask(ctx, home, sale.request); err != nil || a.status != isDone && a.status != isOld {
					return fmt.Errorf("%v, %w", a.status, err)
				}
			}
			return nil
		},
	}
	// After each call so many units are sold and there are.
	sold := map[string][2]int64{"Sell": {2, 12}, "Add": {0, 14}, "Confirm": {3, 12}, "gather": {9, 12}, "batch": {2, 12}}
	for name, connector := range connectors(t) {
		t.Run(name, func(t *testing.T) {
			cut := &cutConnector{Connector: connector}
			db := sql.OpenDB(cut)
			defer db.Close()
			s, err := NewSQL(t.Context(), &Options{Prefix: own(), SoldOutFor: -1}, db)
			must(t, err)
			defer s.Close()
			s.sender.backend.(*sqlServers).purgeEvery = 1 // each call has the same statements
			for what, call := range calls {
				committed := false
				for n, done := 1, false; !done; n++ {
					for _, after := range []bool{false, true} {
						sku := fmt.Sprint(what, n, after)
						must(t, s.Set(t.Context(), sku, 12, 2))
						must(t, second(s.Reserve(t.Context(), sku, 3, "basket", time.Hour)))
						cut.arm(n, after)
						err := call(t.Context(), s, sku)
						at := cut.broken
						cut.arm(0, false)
						if err != nil {
							t.Fatalf("%s, cut at statement %d, %q, after it %v: %v", what, n, at, after, err)
						}
						total, err := s.Total(t.Context(), sku)
						if want := sold[what]; err != nil || !total.Exact || total.Sold != want[0] || total.Units != want[1] {
							t.Fatalf("%s, cut at statement %d, %q, after it %v: %+v, %v; want %d sold of %d", what, n, at, after, total, err, want[0], want[1])
						}
						done = at == ""
						committed = committed || after && strings.HasSuffix(at, "COMMIT")
					}
				}
				if !committed {
					t.Errorf("%s: no answer of a commit was lost", what)
				}
			}
		})
	}
}

// TestLostCommitIsUnknown checks the class of an error where a commit has no
// answer, and that without a repetition the caller hears of it.
func TestLostCommitIsUnknown(t *testing.T) {
	for name, connector := range connectors(t) {
		t.Run(name, func(t *testing.T) {
			cut := &cutConnector{Connector: connector, after: true}
			db := sql.OpenDB(cut)
			defer db.Close()
			s, err := NewSQL(t.Context(), &Options{Prefix: own(), Patience: time.Nanosecond}, db)
			must(t, err)
			defer s.Close()
			must(t, s.Set(t.Context(), "x", 100, 1))
			unknown := 0
			for n := 1; n < 12; n++ {
				cut.arm(n, true)
				_, err := s.Sell(t.Context(), "x", 1, fmt.Sprint("a", n))
				committed := strings.HasSuffix(cut.broken, "COMMIT")
				cut.arm(0, false)
				r, e := s.Receipt(t.Context(), "x", fmt.Sprint("a", n))
				switch {
				case committed:
					unknown++
					if !errors.Is(err, ErrUnknown) || e != nil || r != (Receipt{Sold, 1}) {
						t.Errorf("a lost answer of a commit: %v; the receipt is %v, %v", err, r, e)
					}
				case err != nil && (!errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || !errors.Is(e, ErrNoSale)):
					t.Errorf("a statement before the commit: %v; the receipt is %v, %v", err, r, e)
				}
			}
			if unknown == 0 {
				t.Error("no answer of a commit was lost")
			}
		})
	}
}
