package servers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// MariaDBOptions are the options of a MariaDB or MySQL server. The zero value
// is a server that writes every commit to the disk.
type MariaDBOptions struct {
	Settings []string // "name=value", as on the command line
	Env      []string // of the process, besides the test's own
	TLS      bool     // the server has a certificate, see MariaDBServer.Certs
}

// MariaDBPassword is the password of a server's users.
const MariaDBPassword = "s3cret/pass"

// MariaDBServer is a running MariaDB, or the MySQL that HOLDFAST_MARIADB_SERVER
// names, with the database locks, the user holdfast who may do everything, and
// the user app who may do nothing yet.
type MariaDBServer struct {
	*Process
	Port  int
	MySQL bool   // the server is a MySQL
	Certs *Certs // with MariaDBOptions.TLS

	opts MariaDBOptions
	bin  string
	dir  string
}

// MariaDB starts a server for one test. The server ends with the test; a test
// that failed shows the server's log. HOLDFAST_MARIADB_SERVER may name another
// program than the installed mariadbd, also MySQL's mysqld; a MariaDB has its
// mariadb-install-db beside it or in the PATH.
func MariaDB(t testing.TB, opts MariaDBOptions) *MariaDBServer {
	t.Helper()
	fresh := freshFor(t)
	return single(t, "mariadb", func(dir string) *MariaDBServer {
		return newMariaDB(t, fresh, opts, dir)
	})
}

// SharedMariaDB returns the one plain server, without options, that the tests
// of the package share. The package's TestMain has to be [Main].
func SharedMariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	fresh := freshFor(t)
	s := share(t, "mariadb", func(dir string) *MariaDBServer {
		return newMariaDB(t, fresh, MariaDBOptions{}, dir)
	})
	t.Cleanup(func() { s.logOnFailure(t) })
	return s
}

func (s *MariaDBServer) logOnFailure(t testing.TB) {
	if t.Failed() {
		t.Logf("mariadb on port %d said:\n%s", s.Port, s.Log())
	}
}

func (s *MariaDBServer) stop() { s.Stop() }

func newMariaDB(t testing.TB, fresh *freshMariaDB, opts MariaDBOptions, dir string) *MariaDBServer {
	t.Helper()
	s := copyMariaDB(t, fresh, opts, dir)
	queries := []string{"CREATE DATABASE locks"}
	for _, user := range []string{"holdfast", "app"} {
		queries = append(queries, "CREATE USER "+user+"@'%' IDENTIFIED BY '"+MariaDBPassword+"'")
	}
	s.Exec(t, append(queries, "GRANT ALL ON *.* TO holdfast@'%'")...)
	return s
}

// copyMariaDB starts a server on a copy of a data folder.
func copyMariaDB(t testing.TB, fresh *freshMariaDB, opts MariaDBOptions, dir string) *MariaDBServer {
	t.Helper()
	s := &MariaDBServer{MySQL: fresh.mysql, opts: opts, dir: dir, bin: fresh.bin}
	if err := chownToServerUser(dir); err != nil {
		t.Fatal(err)
	}
	if err := copyData(fresh.data, s.data()); err != nil {
		t.Fatal(err)
	}
	// The file has MySQL's name for the server; no two servers of a replication
	// may have the same name.
	if err := os.Remove(filepath.Join(s.data(), "auto.cnf")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if opts.TLS {
		s.Certs = NewCerts(t, dir)
		for _, file := range []string{s.Certs.Cert, s.Certs.Key, s.Certs.CA} {
			if err := chownToServerUser(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	onFreePort(t, &s.Port, s.boot)
	return s
}

// freshMariaDB is a data folder that no server runs on.
type freshMariaDB struct {
	bin   string // of the server
	data  string
	mysql bool
}

func freshFor(t testing.TB) *freshMariaDB {
	t.Helper()
	bin := Find(t, "HOLDFAST_MARIADB_SERVER", "mariadb-server", "mariadbd", "mysqld")
	return share(t, "mariadb-fresh", func(dir string) *freshMariaDB { return initMariaDB(t, bin, dir) })
}

func (*freshMariaDB) stop() {}

// mysqlSettings are arguments that MySQL alone takes. Without the first one, a
// server that was not installed looks for a folder that only its package
// creates.
var mysqlSettings = []string{"--secure-file-priv=NULL", "--mysqlx=OFF", "--disable-log-bin"}

func initMariaDB(t testing.TB, bin, dir string) *freshMariaDB {
	t.Helper()
	if err := chownToServerUser(dir); err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) string {
		path, args := asServerUser(program, args)
		cmd := exec.Command(path, args...)
		cmd.Dir = dir
		// A server that starts deletes the temporary tables that it finds, also
		// those of another.
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
		return string(out)
	}
	f := &freshMariaDB{bin: bin, data: filepath.Join(dir, "data")}
	f.mysql = !strings.Contains(run(bin, "--no-defaults", "--version"), "MariaDB")
	if f.mysql {
		run(bin, append([]string{"--no-defaults", "--initialize-insecure", "--datadir=" + f.data}, mysqlSettings...)...)
		return f
	}
	install := "mariadb-install-db"
	if beside := filepath.Join(filepath.Dir(bin), install); executable(beside) {
		install = beside // the installed MariaDB's is for its own files
	}
	run(install, "--no-defaults", "--datadir="+f.data, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-log-file-size=16M", "--innodb-buffer-pool-size=32M")
	return f
}

func (s *MariaDBServer) data() string   { return filepath.Join(s.dir, "data") }
func (s *MariaDBServer) socket() string { return filepath.Join(s.dir, "s") }

// URL returns the server's address for a user, with these options in its
// query.
func (s *MariaDBServer) URL(user, query string) string {
	u := url.URL{Scheme: "mysql", Host: "127.0.0.1:" + strconv.Itoa(s.Port), Path: "/locks", RawQuery: query}
	u.User = url.UserPassword(user, MariaDBPassword)
	return u.String()
}

func (s *MariaDBServer) boot() error {
	args := []string{"--no-defaults", "--datadir=" + s.data(), "--tmpdir=" + s.dir, "--socket=" + s.socket(), "--pid-file=" + filepath.Join(s.dir, "pid"),
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.Port), "--skip-name-resolve", "--performance-schema=OFF",
		"--max-connections=400", "--innodb-buffer-pool-size=64M", "--loose-innodb-log-file-size=16M"} // MySQL 9.7 has no such setting
	if s.MySQL {
		args = append(args, mysqlSettings...)
	}
	for _, setting := range s.opts.Settings {
		args = append(args, "--"+setting)
	}
	if s.opts.TLS {
		args = append(args, "--ssl-cert="+s.Certs.Cert, "--ssl-key="+s.Certs.Key, "--ssl-ca="+s.Certs.CA)
	}
	path, args := asServerUser(s.bin, args)
	p, err := start(Spec{
		Name: "mariadb",
		Path: path,
		Args: args,
		Env:  s.opts.Env,
		Dir:  s.dir,
		Ready: func(ctx context.Context) error {
			if _, err := s.do(ctx, ""); err != nil {
				return err
			}
			return s.checkJoined(ctx)
		},
	})
	if err != nil {
		return err
	}
	s.Process = p
	return nil
}

// delimiter separates the statements that the server's program is given. No text has
// it, so a statement with semicolons is one statement.
const delimiter = "/*end*/"

// do runs a statement as the superuser, on the socket, with the program that comes
// with the server, and returns the rows: a line for each, with a tab between columns.
// The line of the names of columns comes first, unless options say otherwise.
func (s *MariaDBServer) do(ctx context.Context, query string, options ...string) (string, error) {
	path, err := lookUp("", []string{"mariadb", "mysql"})
	if err != nil {
		return "", err
	}
	args := append([]string{"--no-defaults", "--user=root", "--socket=" + s.socket(), "--batch", "--comments", "--binary-mode", "--delimiter=" + delimiter}, options...)
	args = append(args, "--execute="+query)
	answer, err := output(ctx, path, append(args, "--database=locks")...)
	if err != nil && strings.Contains(err.Error(), "ERROR 1049 ") { // it has yet to be made
		answer, err = output(ctx, path, args...)
	}
	return answer, err
}

// Exec runs statements as the superuser, one after the other.
func (s *MariaDBServer) Exec(t testing.TB, queries ...string) {
	t.Helper()
	s.must(t, strings.Join(queries, delimiter))
}

// Value runs a statement that returns one number.
func (s *MariaDBServer) Value(t testing.TB, query string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.must(t, query, "--skip-column-names"), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Transaction returns the value of an expression over the rows of InnoDB's open
// transactions that meet a condition. The server reads those anew only if nobody has
// asked for a tenth of a second, so Transaction waits that long: of tests that ask one
// server at the same time, only one may use it.
func (s *MariaDBServer) Transaction(t testing.TB, value, where string) int64 {
	t.Helper()
	time.Sleep(150 * time.Millisecond)
	return s.Value(t, "SELECT "+value+" FROM information_schema.innodb_trx WHERE "+where)
}

// KillConnections ends the connections that the condition on the process list
// selects, and returns their number.
func (s *MariaDBServer) KillConnections(t testing.TB, where string) (killed int) {
	t.Helper()
	ids := s.must(t, "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'holdfast' AND "+where, "--skip-column-names")
	for id := range strings.FieldsSeq(ids) {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		// The connection may have ended by itself.
		if _, err := s.do(ctx, "KILL "+id); err == nil {
			killed++
		}
		cancel()
	}
	return killed
}

// EndConnection kills a connection, by its id, and returns when it is gone.
// MySQL has answered a query about its connections with the error of one of
// them (1159), so the query is repeated.
func (s *MariaDBServer) EndConnection(id uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	_, _ = s.do(ctx, fmt.Sprintf("KILL %d", id)) // the connection may have ended by itself
	for {
		left, err := s.do(ctx, fmt.Sprintf("SELECT count(*) FROM information_schema.processlist WHERE id = %d", id), "--skip-column-names")
		switch {
		case err == nil && left == "0":
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("connection %d does not end: %w", id, errors.Join(err, ctx.Err()))
		}
		time.Sleep(time.Millisecond)
	}
}

// must is do, within the time that a server has to start.
func (s *MariaDBServer) must(t testing.TB, query string, options ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	answer, err := s.do(ctx, query, options...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return answer
}

// Restart stops the server in an orderly way and starts it again, on the same
// port and with its data.
func (s *MariaDBServer) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	s.startAgain(t)
}

// Crash kills the server and starts it again; the server recovers from its log.
func (s *MariaDBServer) Crash(t testing.TB) {
	t.Helper()
	s.Kill()
	s.startAgain(t)
}

func (s *MariaDBServer) startAgain(t testing.TB) {
	t.Helper()
	if err := s.boot(); err != nil {
		t.Fatal(err)
	}
}
