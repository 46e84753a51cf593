// Package sqlfence_test runs the guards of fence/sqlfence on each database, with clients
// that the module of the core does not require.
package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/testkit/paused"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

func TestMain(m *testing.M) {
	paused.Child(writeLate)
	servers.Main(m)
}

// A database is a database on which the tests run.
type database struct {
	dialect sqlfence.Dialect
	driver  string
	url     func(t testing.TB) string
	// guarded is the user's own UPDATE. Its arguments are value, token and id.
	guarded, naive string
}

// args returns the arguments of guarded. If placeholders have no numbers, the
// token is given twice.
func (d database) args(data string, token uint64, id int) []any {
	args := []any{data, int64(token), id}
	if d.dialect == sqlfence.MySQL {
		args = append(args, int64(token))
	}
	return args
}

// dsn returns a URL in the form that the driver accepts. As the documentation
// requires, rows that were found count.
func dsn(t testing.TB, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	c.ClientFoundRows = true
	return c.FormatDSN()
}

var databases = map[string]database{
	"postgres": {
		sqlfence.PostgreSQL, "pgx",
		func(t testing.TB) string { return servers.SharedPostgres(t).URL("postgres", "sslmode=disable") },
		"UPDATE account SET data = $1, fence = $2 WHERE id = $3 AND fence <= $2",
		"UPDATE account SET data = $1 WHERE id = $2",
	},
	"mariadb": {
		sqlfence.MySQL, "mysql",
		func(t testing.TB) string {
			return dsn(t, servers.SharedMariaDB(t).URL("holdfast", ""))
		},
		"UPDATE account SET data = ?, fence = ? WHERE id = ? AND fence <= ?",
		"UPDATE account SET data = ? WHERE id = ?",
	},
	"sqlite": {
		sqlfence.SQLite, "sqlite",
		func(t testing.TB) string {
			return "file:" + filepath.Join(t.TempDir(), "data.db") + "?_pragma=busy_timeout(60000)&_txlock=immediate"
		},
		"UPDATE account SET data = ?1, fence = ?2 WHERE id = ?3 AND fence <= ?2",
		"UPDATE account SET data = ?1 WHERE id = ?2",
	},
}

// onEach runs a test on each database, with fresh tables.
func onEach(t *testing.T, test func(t *testing.T, d database, db *sql.DB, url string)) {
	for name, d := range databases {
		t.Run(name, func(t *testing.T) {
			url := d.url(t)
			db, err := sql.Open(d.driver, url)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, text := range []string{
				d.dialect.Schema(),
				d.dialect.Schema(), // a repetition changes nothing
				"DELETE FROM holdfast_fence",
				"DROP TABLE IF EXISTS account",
				"CREATE TABLE account (id BIGINT PRIMARY KEY, data VARCHAR(40) NOT NULL, fence BIGINT NOT NULL)",
				"INSERT INTO account VALUES (1, '', 0), (2, '', 0), (3, '', 0)",
			} {
				if _, err := db.ExecContext(t.Context(), text); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
			}
			test(t, d, db, name+" "+url)
		})
	}
}

// guarded runs work in a transaction that begins with the check.
func guarded(ctx context.Context, d database, db *sql.DB, name string, t fence.Token, work ...string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := d.dialect.Check(ctx, tx, name, t); err != nil {
		return err
	}
	for _, text := range work {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func tok(v uint64, owner string) fence.Token { return fence.Token{Value: v, Owner: owner} }

// TestCheckAdmitsByToken checks the tokens that Check admits and refuses.
//
// Covers: F20, F38.
func TestCheckAdmitsByToken(t *testing.T) {
	reader := func(v uint64) fence.Token { return fence.Token{Value: v, Shared: true} }
	long := strings.Repeat("n", 512)
	onEach(t, func(t *testing.T, d database, db *sql.DB, _ string) {
		for name, steps := range map[string][]struct {
			t    fence.Token
			want error
		}{
			"lower is refused":         {{tok(5, ""), nil}, {tok(4, ""), fence.ErrStale}, {tok(5, ""), nil}},
			"LOWER is refused":         {{tok(3, ""), nil}, {tok(2, ""), fence.ErrStale}},
			"lower is refused ":        {{tok(2, ""), nil}, {tok(1, ""), fence.ErrStale}},
			"zero is no token":         {{tok(0, ""), fence.ErrNoToken}},
			"one number of two owners": {{tok(5, "a"), nil}, {tok(5, "A"), fence.ErrStale}, {tok(5, "a "), fence.ErrStale}, {tok(5, "a"), nil}, {tok(6, "b"), nil}},
			"a reader never raises":    {{reader(9), nil}, {tok(5, ""), nil}, {reader(9), nil}, {tok(7, ""), nil}},
			"a reader before a writer": {{tok(5, ""), nil}, {reader(3), fence.ErrStale}},
			"as great as they get":     {{tok(1<<63-2, ""), nil}, {tok(1<<63-1, ""), nil}, {tok(1<<63-2, ""), fence.ErrStale}},
			long:                       {{tok(5, long[:256]), nil}, {tok(5, long[:255]), fence.ErrStale}},
		} {
			t.Run(strings.ReplaceAll(name[:min(len(name), 40)], "L", "l_"), func(t *testing.T) {
				for i, s := range steps {
					if err := guarded(t.Context(), d, db, name, s.t); !errors.Is(err, s.want) {
						t.Fatalf("step %d: %v gets %v, want %v", i, s.t, err, s.want)
					}
				}
			})
		}
		// A token that was rolled back leaves no trace.
		_ = guarded(t.Context(), d, db, "undone", tok(9, ""), "NO SQL")
		if err := guarded(t.Context(), d, db, "undone", tok(8, "")); err != nil {
			t.Errorf("after a rollback: %v", err)
		}
		err := guarded(t.Context(), d, db, "undone", tok(7, "x"))
		if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Name != "undone" || stale.Highest != tok(8, "") || stale.Given != tok(7, "x") {
			t.Errorf("the refusal is %#v", err)
		}
	})
}

func TestBadInput(t *testing.T) {
	for what, c := range map[string]struct {
		name string
		t    fence.Token
	}{
		"no name":          {"", tok(1, "")},
		"long name":        {strings.Repeat("n", 513), tok(1, "")},
		"zero byte":        {"a\x00b", tok(1, "")},
		"no UTF-8":         {"a\xff", tok(1, "")},
		"long owner":       {"a", tok(1, strings.Repeat("o", 257))},
		"owner, no UTF-8":  {"a", tok(1, "\xff")},
		"number too great": {"a", tok(1<<63, "")},
	} {
		// Check does not touch the transaction: nil would panic.
		if err := sqlfence.SQLite.Check(t.Context(), nil, c.name, c.t); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := sqlfence.Dialect(0).Check(t.Context(), nil, "a", tok(1, "")); err == nil || sqlfence.Dialect(0).Schema() != "" {
		t.Errorf("the zero Dialect: %v", err)
	}
}

// TestCheckExcludes checks that no other token comes between a check and the
// end of its transaction. Each transaction reads the number, and writes it back
// one greater.
func TestCheckExcludes(t *testing.T) {
	onEach(t, func(t *testing.T, d database, db *sql.DB, _ string) {
		var all sync.WaitGroup
		var mu sync.Mutex
		highest, passed := uint64(0), 0
		for i := range 8 {
			all.Go(func() {
				for j := range 10 {
					value := uint64(10*j + i + 1)
					before := func() uint64 { mu.Lock(); defer mu.Unlock(); return highest }()
					err := func() error {
						tx, err := db.BeginTx(t.Context(), nil)
						if err != nil {
							return err
						}
						defer tx.Rollback()
						if err := d.dialect.Check(t.Context(), tx, "sum", tok(value, "")); err != nil {
							return err
						}
						var n int
						if err := tx.QueryRowContext(t.Context(), "SELECT fence FROM account WHERE id = 2").Scan(&n); err != nil {
							return err
						}
						if _, err := tx.ExecContext(t.Context(), fmt.Sprintf("UPDATE account SET fence = %d WHERE id = 2", n+1)); err != nil {
							return err
						}
						return tx.Commit()
					}()
					mu.Lock()
					switch {
					case err == nil && value < before:
						t.Errorf("token %d passed, %d had been committed before it asked", value, before)
					case err == nil:
						passed++
						highest = max(highest, value)
					case !errors.Is(err, fence.ErrStale) && !deadlock(err):
						t.Error(err)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT fence FROM account WHERE id = 2").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n != passed || passed == 0 {
			t.Errorf("%d transactions passed, the sum is %d", passed, n)
		}
	})
}

// deadlock reports whether the database chose this transaction to give way.
func deadlock(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && e.Number == 1213
}

// TestMatchedReportsStaleUpdate runs the user's own UPDATE, as the
// documentation shows it.
func TestMatchedReportsStaleUpdate(t *testing.T) {
	onEach(t, func(t *testing.T, d database, db *sql.DB, _ string) {
		for i, s := range []struct {
			token uint64
			want  error
		}{{5, nil}, {5, nil}, {4, fence.ErrStale}, {6, nil}, {5, fence.ErrStale}} {
			if err := sqlfence.Matched(db.ExecContext(t.Context(), d.guarded, d.args("same", s.token, 1)...)); !errors.Is(err, s.want) {
				t.Errorf("step %d: token %d gets %v, want %v", i, s.token, err, s.want)
			}
		}
		if err := sqlfence.Matched(db.ExecContext(t.Context(), "NO SQL")); err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("a statement that fails: %v", err)
		}
	})
}

// writeLate is the paused holder's write: to account 1 without a guard, to 2
// with a condition, to 3 in a transaction with a check.
func writeLate(ctx context.Context, target string, t fence.Token) (string, error) {
	name, url, _ := strings.Cut(target, " ")
	d := databases[name]
	db, err := sql.Open(d.driver, url)
	if err != nil {
		return "", err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, d.naive, "old data", 1); err != nil {
		return "", err
	}
	err = sqlfence.Matched(db.ExecContext(ctx, d.guarded, d.args("old data", t.Value, 2)...))
	if !errors.Is(err, fence.ErrStale) {
		return "the condition let it pass", err
	}
	return "the check let it pass", guarded(ctx, d, db, "account/3", t, "UPDATE account SET data = 'old data' WHERE id = 3")
}

// TestF12_PausedHolder stops a holder past its lease. Another process takes
// over and writes, and the first one wakes up and writes as well.
func TestF12_PausedHolder(t *testing.T) {
	onEach(t, func(t *testing.T, d database, db *sql.DB, target string) {
		h := paused.Start(t, target)
		if _, err := db.ExecContext(t.Context(), d.naive, "new data", 1); err != nil {
			t.Fatal(err)
		}
		if err := sqlfence.Matched(db.ExecContext(t.Context(), d.guarded, d.args("new data", h.Next.Value, 2)...)); err != nil {
			t.Fatal(err)
		}
		if err := guarded(t.Context(), d, db, "account/3", h.Next, "UPDATE account SET data = 'new data' WHERE id = 3"); err != nil {
			t.Fatal(err)
		}
		if said, refused := h.Wake(); !refused {
			t.Errorf("the late write was not refused: %s", said)
		}
		for id, want := range map[int]string{1: "old data", 2: "new data", 3: "new data"} {
			var got string
			if err := db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT data FROM account WHERE id = %d", id)).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("account %d has %q, want %q (1 is the one without a guard)", id, got, want)
			}
		}
	})
}

// TestSharedTokenKeepsLaterOnesOut checks a shared token in a transaction that
// SQLite begins without a lock: no later token commits while the transaction is
// open, and it can write.
func TestSharedTokenKeepsLaterOnesOut(t *testing.T) {
	ctx := t.Context()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "x.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	for _, stmt := range []string{sqlfence.SQLite.Schema(), "CREATE TABLE account (id INTEGER PRIMARY KEY)"} {
		if _, err := db.ExecContext(ctx, stmt); err != nil {
			t.Fatal(err)
		}
	}
	for id, known := range []bool{false, true} {
		if known {
			if _, err := db.ExecContext(ctx, "INSERT INTO holdfast_fence VALUES ('n', 5, '')"); err != nil {
				t.Fatal(err)
			}
		}
		shared, later := begin(), begin()
		if err := sqlfence.SQLite.Check(ctx, shared, "n", fence.Token{Value: 5, Shared: true}); err != nil {
			t.Fatal(err)
		}
		if err := sqlfence.SQLite.Check(ctx, later, "n", fence.Token{Value: 6}); err == nil || !strings.Contains(err.Error(), "SQLITE_BUSY") {
			t.Errorf("a later token beside an open transaction: %v", err)
		}
		_ = later.Rollback()
		if _, err := shared.ExecContext(ctx, "INSERT INTO account VALUES (?)", id); err != nil {
			t.Errorf("its own write: %v", err)
		}
		if err := shared.Commit(); err != nil {
			t.Errorf("its commit: %v", err)
		}
	}
	later := begin()
	if err := sqlfence.SQLite.Check(ctx, later, "n", fence.Token{Value: 6}); err != nil {
		t.Errorf("the later token afterwards: %v", err)
	}
}

// Example runs the transaction of the example of sqlfence.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file::memory:?_txlock=immediate")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, sqlfence.SQLite.Schema()); err != nil {
		fmt.Println(err)
		return
	}
	write := func(token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := sqlfence.SQLite.Check(ctx, tx, "account/7", fence.Token{Value: token}); err != nil {
			return err
		}
		// Any other writes, in the same transaction.
		return tx.Commit()
	}
	fmt.Println(write(8))
	fmt.Println(write(7))
	// Output:
	// <nil>
	// fence: token 7 for "account/7" came after 8
}

// TestStatementsOfPages compares the statements that the pages show with those that the
// tests above run.
func TestStatementsOfPages(t *testing.T) {
	var shown []string
	for _, page := range []string{"../../docs/fencing.md", "../../README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^```sql\n(.*?)\n```$").FindAllStringSubmatch(string(text), -1) {
			shown = append(shown, strings.ReplaceAll(m[1], "balance", "data"))
		}
	}
	pg := databases["postgres"].guarded
	want := []string{pg, databases["mariadb"].guarded, databases["sqlite"].guarded, pg}
	if !slices.Equal(shown, want) {
		t.Errorf("the pages show %q, the tests run %q", shown, want)
	}
}
