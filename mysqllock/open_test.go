package mysqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// TestBadURLs checks that unusable URLs are refused before anything is sent,
// and that no error contains a password.
func TestBadURLs(t *testing.T) {
	sqlcases.RefusesURLs(t, func(url string) (driver.Driver, error) { return Open(context.Background(), url) }, map[string]string{
		"postgres://a:s3cret@h/db":                      "begins with mysql://",
		"mysql://a:s3cret@h/db?colour=red":              `unknown option "colour"`,
		"mysql://a:s3cret@h/db?max_conns=2&max_conns=3": "given 2 times",
		"mysql://a:s3cret@h/db?max_conns=none":          "max_conns is not a number",
		"mysql://a:s3cret@h/db?connect_timeout=5":       "connect_timeout is not a time",
		"mysql://a:s3cret@h/db?table_prefix=A-b":        "table prefix",
		"mysql://a:s3cret@h/db?tls=perhaps":             "tls is none of",
		"mysql://a:s3cret@h/db?tls=false&tls_ca=x":      "goes with no other option",
		"mysql://a:s3cret@h/db?tls_ca=/nowhere":         "tls_ca",
		"mysql://a:s3cret@h/db?tls_cert=/nowhere":       "tls_cert",
		"mysql://a:s3cret@h/db?x=%zz":                   "options of the URL",
		"mysql://a:s3cret@h:port/db":                    "URL cannot be read",
		"mysql://a:s3cret/or#this@h/db":                 "URL cannot be read",
		"mysql://a:s3cret%zz@h/db":                      "URL cannot be read",
		"mysql://a:s3cret@h":                            "names no database",
		"mariadb://a:s3cret@h/a/b":                      "names no database",
		"mariadb://a:s3cret@/db":                        "names no host",
		"mysql://a:s3cret@127.0.0.1:1/db":               "",
	})
	_, err := Open(t.Context(), "mysql://a:s3cret@127.0.0.1:1/db")
	if want := "mysqllock: 127.0.0.1:1: store unavailable: mysql: dial tcp 127.0.0.1:1: connect: connection refused"; fmt.Sprint(err) != want {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := New(nil, nil); driver.ClassOf(err) != driver.Refused {
		t.Errorf("New(nil): %v", err)
	}
	other := sql.OpenDB(connector{})
	defer other.Close()
	if _, err := New(other, nil); driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "go-sql-driver") {
		t.Errorf("New of another database: %v", err)
	}
}

// connector is a connector of another client library.
type connector struct{ sqldriver.Connector }

// Driver implements sqldriver.Connector.
func (connector) Driver() sqldriver.Driver { return nil }

// TestSchema checks the option for the prefix, and the statements for users who
// may not create tables.
//
// Covers: F66.
func TestSchema(t *testing.T) {
	s := servers.SharedMariaDB(t)
	ctx := context.Background()
	options := own()
	_, err := Open(ctx, s.URL("app", options))
	if driver.ClassOf(err) != driver.Refused {
		t.Fatalf("without any rights: %v", err)
	}
	s.Exec(t, "CREATE TABLE mine (n int PRIMARY KEY)")
	s.Exec(t, "GRANT SELECT ON locks.mine TO app@'%'") // it may use the database now
	_, err = Open(ctx, s.URL("app", options))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "rights") && !strings.Contains(err.Error(), "holdfast schema mysql") && !strings.Contains(err.Error(), "lacks SELECT") {
		t.Fatalf("without tables and rights: %v", err)
	}
	s.Exec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON locks.* TO app@'%'")
	_, err = Open(ctx, s.URL("app", options))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "holdfast schema mysql") {
		t.Fatalf("without tables and the right to make them: %v", err)
	}
	s.Exec(t, "REVOKE SELECT, INSERT, UPDATE, DELETE ON locks.* FROM app@'%'")
	o, err := OptionsOf(s.URL("app", options))
	if err != nil {
		t.Fatal(err)
	}
	text, err := Schema(o)
	if err != nil {
		t.Fatal(err)
	}
	var grants []string
	for queue := range strings.Lines(text) {
		queue = strings.TrimSuffix(strings.TrimSpace(queue), ";")
		if grant, ok := strings.CutPrefix(queue, "-- GRANT"); ok {
			grants = append(grants, "GRANT"+strings.Replace(grant, "TO app", "TO app@'%'", 1))
		} else if !strings.HasPrefix(queue, "--") {
			s.Exec(t, queue)
		}
	}
	_, err = Open(ctx, s.URL("app", options))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "denied") {
		t.Fatalf("without rights on the tables: %v", err)
	}
	for _, grant := range grants {
		s.Exec(t, grant)
	}
	app := openOn(t, s.URL("app", options))
	tk := ticket(1, "n")
	mustJoin(t, app, tk, driver.Held)
	mustLeave(t, app, tk)

	// A later layout is refused and left as it is.
	s.Exec(t, "UPDATE "+prefixOf("?"+options)+"store SET layout = 99")
	_, err = Open(ctx, s.URL("app", options))
	if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), "upgrade this program first") {
		t.Errorf("a later layout: %v", err)
	}
	if _, err := Schema(&Options{TablePrefix: "a.b"}); err == nil {
		t.Error("Schema with a bad name")
	}
}

// TestTablesCreatedAtOnce checks that eight clients can create the tables at
// once, with the other scheme of URLs.
func TestTablesCreatedAtOnce(t *testing.T) {
	s := servers.SharedMariaDB(t)
	tablesAt(t, s, strings.Replace(s.URL("holdfast", own()), "mysql:", "mariadb:", 1)).CreatedAtOnce(t)
}

// TestTLSIsVerified checks TLS with a verified server certificate, a wrong
// password, a server without TLS, and a missing database.
func TestTLSIsVerified(t *testing.T) {
	s := servers.MariaDB(t, servers.MariaDBOptions{TLS: true})
	d := openOn(t, s.URL("holdfast", "tls_ca="+s.Certs.CA))
	tk := ticket(1, "n")
	mustJoin(t, d, tk, driver.Held)
	if err := d.Watch(t.Context(), func(string, driver.Status) {}); err != nil {
		t.Error(err)
	}
	plain := servers.SharedMariaDB(t)
	for what, url := range map[string]string{
		"an unknown authority": s.URL("holdfast", "tls=true"),
		"another name":         s.URL("holdfast", "tls_server_name=elsewhere&tls_ca="+s.Certs.CA),
		"a wrong password":     strings.Replace(s.URL("holdfast", "tls=skip-verify"), "s3cret", "other", 1),
		"no such database":     strings.Replace(s.URL("holdfast", ""), "/locks", "/others", 1),
		"a user without name":  strings.Replace(s.URL("nobody", ""), "s3cret", "other", 1),
	} {
		_, err := Open(context.Background(), url)
		if driver.ClassOf(err) != driver.Refused || strings.Contains(fmt.Sprint(err), "/pass") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Open(context.Background(), plain.URL("holdfast", "tls=true")); driver.ClassOf(err) != driver.Refused {
		t.Errorf("a server without TLS: %v", err)
	}
	openOn(t, plain.URL("holdfast", own()+"&tls=preferred"))
}

// TestUsersPoolStaysOpen checks that a user's pool stays open: one of a single
// connection, which cannot be spared for wake-ups, and one of two.
func TestUsersPoolStaysOpen(t *testing.T) {
	ctx := context.Background()
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	for most := 1; most <= 2; most++ {
		db := poolOf(t, url, nil)
		db.SetMaxOpenConns(most)
		d, err := New(db, &Options{TablePrefix: prefixOf(url)})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan string, 10)
		if err := d.Watch(ctx, func(id string, _ driver.Status) { told <- id }); err != nil {
			t.Fatal(err)
		}
		if d.db.tables.PushesArrive.Load() != (most > 1) {
			t.Errorf("pool of %d: it hears: %v", most, most == 1)
		}
		sqlcases.HandsOff(t, d, d, told, 1)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := db.PingContext(ctx); err != nil {
			t.Errorf("the pool after Close: %v", err)
		}
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections were not given back", n)
		}
	}
}
