package pglock

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestBadURLs checks that unusable URLs are refused before anything is sent,
// and that no error contains a password.
func TestBadURLs(t *testing.T) {
	sqlcases.RefusesURLs(t, func(url string) (driver.Driver, error) { return Open(context.Background(), url) }, map[string]string{
		"mysql://a:s3cret@h/db":                                  "begins with postgres://",
		"postgres://a:s3cret@h/db?colour=red":                    `unknown option "colour"`,
		"postgres://a:s3cret@h/db?statement_timeout=1":           `unknown option "statement_timeout"`,
		"postgres://a:s3cret@h/db?schema=a&schema=b":             "given 2 times",
		"postgres://a:s3cret@h/db?table_prefix=A-b":              "table prefix",
		"postgres://a:s3cret@h/db?schema=a.b":                    "invalid schema",
		"postgres://a:s3cret@h/db?sslmode=perhaps":               "option sslmode is not one of disable",
		"postgres://a:s3cret@h/db?pool_max_conns=many":           "option pool_max_conns",
		"postgres://a:s3cret@h/db?x=%zz":                         "options of the URL",
		"postgres://a:s3cret@h:port/db":                          "URL",
		"postgres://a:s3cret/or#this@h/db":                       "URL",
		"postgres://a:s3cret%zz@h/db":                            "URL",
		"postgres://a@h/db?password=s3cret&sslrootcert=/nowhere": "",
		"postgres://a:s3cret@h/db?listen=b@c":                    "listen",
		"postgres://a:s3cret@127.0.0.1:1/db?connect_timeout=5":   "",
	})
	if _, err := New(nil, nil); driver.ClassOf(err) != driver.Refused {
		t.Errorf("New(nil): %v", err)
	}
}

// TestOpenErrors checks that the error of an unreachable server is one line,
// with the address and each cause once, although the client library tries with
// TLS and without.
func TestOpenErrors(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://a@127.0.0.1:1/db": "pglock: 127.0.0.1:1: store unavailable: dial tcp 127.0.0.1:1: connect: connection refused",
		"postgres://a@127.0.0.1:1,127.0.0.1:2/db": "pglock: 127.0.0.1:1,127.0.0.1:2: store unavailable: " +
			"dial tcp 127.0.0.1:1: connect: connection refused; dial tcp 127.0.0.1:2: connect: connection refused",
		servers.Postgres(t, servers.PostgresOptions{Password: "p"}).URL("app", ""): "",
	} {
		_, err := Open(t.Context(), strings.Replace(url, ":p@", ":wrong@", 1))
		if err == nil || want != "" && err.Error() != want || strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "refused TLS") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestSchema checks the options for schema and prefix, and the statements for
// users who may not create tables.
//
// Covers: F66.
func TestSchema(t *testing.T) {
	s := servers.SharedPostgres(t)
	ctx := context.Background()

	// The client creates the tables in a schema whose name needs quotes.
	d := openOn(t, s.URL("postgres", "schema=order&table_prefix=x_"))
	tk := ticket(1, "n")
	mustJoin(t, d, tk, driver.Held)
	if n := s.Value(t, `SELECT count(*) FROM "order".x_line WHERE held = 1`); n != 1 {
		t.Errorf("%d lines in the schema", n)
	}
	mustLeave(t, d, tk)

	// The error of a user without rights says what to do. Once another user has
	// run the printed statements, the user can lock.
	_, err := Open(ctx, s.URL("app", "schema=locks"))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "holdfast schema postgres") {
		t.Fatalf("without tables and rights: %v", err)
	}
	o, err := OptionsOf(s.URL("app", "schema=locks"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := Schema(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Exec(t, text)
	_, err = Open(ctx, s.URL("app", "schema=locks"))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "permission denied") {
		t.Fatalf("without rights: %v", err)
	}
	for queue := range strings.Lines(text) {
		if grant, ok := strings.CutPrefix(queue, "-- GRANT"); ok {
			s.Exec(t, "GRANT"+grant)
		}
	}
	app := openOn(t, s.URL("app", "schema=locks"))
	mustJoin(t, app, tk, driver.Held)
	mustLeave(t, app, tk)

	// A later layout is refused and left as it is.
	s.Exec(t, "UPDATE locks.holdfast_store SET layout = 99")
	_, err = Open(ctx, s.URL("app", "schema=locks"))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "upgrade this program first") {
		t.Errorf("a later layout: %v", err)
	}
	if _, err := Schema(&Options{Schema: "a.b"}); err == nil {
		t.Error("Schema with a bad name")
	}
}

// TestTablesCreatedAtOnce checks that eight clients can create the tables at
// once.
func TestTablesCreatedAtOnce(t *testing.T) {
	s := servers.SharedPostgres(t)
	tablesAt(t, s, s.URL("postgres", own())).CreatedAtOnce(t)
}

// TestTLSWithPassword checks TLS with a verified server certificate, and a
// password.
func TestTLSWithPassword(t *testing.T) {
	s := servers.Postgres(t, servers.PostgresOptions{TLS: true, Password: "s3cret pass/word"})
	d := openOn(t, s.URL("postgres", "sslmode=verify-full&sslrootcert="+s.Certs.CA))
	tk := ticket(1, "n")
	mustJoin(t, d, tk, driver.Held)
	if err := d.Watch(t.Context(), func(string, driver.Status) {}); err != nil {
		t.Error(err)
	}
	another := servers.NewCerts(t, t.TempDir())
	for what, c := range map[string]struct{ query, name string }{
		"an unknown authority": {"sslmode=verify-full", ""},
		"another authority":    {"sslmode=verify-full&sslrootcert=" + another.CA, ""},
		"another name":         {"sslmode=verify-full&sslrootcert=" + s.Certs.CA, "elsewhere"},
	} {
		config, o, err := parseURL(s.URL("postgres", c.query))
		if err != nil {
			t.Fatal(err)
		}
		if c.name != "" {
			config.ConnConfig.TLSConfig.ServerName = c.name
		}
		if _, err = open(context.Background(), config, o); driver.ClassOf(err) != driver.Refused || !strings.Contains(fmt.Sprint(err), "certificate") {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the password is in %v", what, err)
		}
	}
	wrong := strings.Replace(s.URL("postgres", "sslmode=require"), "s3cret", "other", 1)
	_, err := Open(context.Background(), wrong)
	if driver.ClassOf(err) != driver.Refused || strings.Contains(err.Error(), "pass/word") || strings.Contains(err.Error(), "other") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestPoolOfOne checks that a user's pool of one connection stays open.
func TestPoolOfOne(t *testing.T) {
	ctx := context.Background()
	url := servers.SharedPostgres(t).URL("postgres", "pool_max_conns=1")
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	d, err := New(pool, &Options{TablePrefix: prefixOf(own())})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 10)
	if err := d.Watch(ctx, func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	sqlcases.HandsOff(t, d, d, told, 1)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := pool.Ping(ctx); err != nil {
		t.Errorf("the pool after Close: %v", err)
	}
}
