package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// PostgresOptions are the options of a PostgreSQL server. The zero value is a
// server that writes every commit to the disk and asks for no password.
type PostgresOptions struct {
	Settings []string // "name=value", as in postgresql.conf
	Env      []string // of the process, besides the test's own
	Password string   // of the users postgres and app; empty: none is required
	TLS      bool     // TLS only, see PostgresServer.Certs
}

// PostgresServer is a running PostgreSQL with the database postgres, the
// superuser postgres and the user app, who may do nothing yet.
type PostgresServer struct {
	*Process
	Port     int
	Password string
	Certs    *Certs // with PostgresOptions.TLS

	opts PostgresOptions
	bin  string
	dir  string
}

// Postgres starts a server for one test. The server ends with the test; a test
// that failed shows the server's log. HOLDFAST_POSTGRES_SERVER may name another
// program than the installed postgres; initdb has to be beside it.
func Postgres(t testing.TB, opts PostgresOptions) *PostgresServer {
	t.Helper()
	fresh := freshPostgres(t)
	return single(t, "postgres", func(dir string) *PostgresServer {
		return newPostgres(t, fresh, opts, dir)
	})
}

// SharedPostgres returns the one plain server, without options, that the tests
// of the package share. The package's TestMain has to be [Main].
func SharedPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	fresh := freshPostgres(t)
	s := share(t, "postgres", func(dir string) *PostgresServer {
		return newPostgres(t, fresh, PostgresOptions{}, dir)
	})
	t.Cleanup(func() { s.logOnFailure(t) })
	return s
}

func (s *PostgresServer) logOnFailure(t testing.TB) {
	if t.Failed() {
		t.Logf("postgres on port %d said:\n%s", s.Port, s.Log())
	}
}

func (s *PostgresServer) stop() { s.Stop() }

// findPostgres returns the folder of the programs of the newest server.
func findPostgres(t testing.TB) string {
	t.Helper()
	programs := []string{"postgres"}
	for _, bin := range postgresFolders() {
		programs = append(programs, bin+"/postgres")
	}
	return filepath.Dir(Find(t, "HOLDFAST_POSTGRES_SERVER", "postgresql (13 or later)", programs...))
}

// postgresFolders returns the folders in which packages of systems put the programs,
// those of the newest version first.
func postgresFolders() (folders []string) {
	for v := 30; v >= 13; v-- {
		folders = append(folders,
			fmt.Sprintf("/usr/lib/postgresql/%d/bin", v), fmt.Sprintf("/usr/pgsql-%d/bin", v),
			fmt.Sprintf("/opt/homebrew/opt/postgresql@%d/bin", v))
	}
	return folders
}

// postgresData is a data folder that no server runs on.
type postgresData string

func (postgresData) stop() {}

// freshPostgres returns a data folder that servers of the package's tests copy, or "" if
// the package's TestMain is not [Main], which removes it.
func freshPostgres(t testing.TB) postgresData {
	t.Helper()
	if !shared.cleaned {
		return ""
	}
	bin := findPostgres(t)
	return share(t, "postgres-fresh", func(dir string) postgresData {
		data := filepath.Join(dir, "data")
		initPostgres(t, bin, dir, data)
		return postgresData(data)
	})
}

// initPostgres creates a data folder in a folder, which gets the user of servers.
func initPostgres(t testing.TB, bin, dir, data string) {
	t.Helper()
	if err := chownToServerUser(dir); err != nil {
		t.Fatal(err)
	}
	path, args := asServerUser(filepath.Join(bin, "initdb"),
		[]string{"-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"})
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
}

func newPostgres(t testing.TB, fresh postgresData, opts PostgresOptions, dir string) *PostgresServer {
	t.Helper()
	s := &PostgresServer{Password: opts.Password, opts: opts, dir: dir, bin: findPostgres(t)}
	if fresh == "" {
		initPostgres(t, s.bin, dir, s.data())
	} else if err := copyData(string(fresh), s.data()); err != nil {
		t.Fatal(err)
	}
	if err := chownToServerUser(dir); err != nil {
		t.Fatal(err)
	}
	if opts.TLS {
		s.Certs = NewCerts(t, dir)
		for _, file := range []string{s.Certs.Cert, s.Certs.Key, s.Certs.CA} {
			if err := chownToServerUser(file); err != nil {
				t.Fatal(err)
			}
		}
		if err := chownToServerUser(dir); err != nil {
			t.Fatal(err)
		}
	}
	onFreePort(t, &s.Port, s.boot)
	s.Exec(t, "CREATE ROLE app LOGIN")
	if opts.Password != "" {
		s.demand(t)
	}
	return s
}

// demand makes the server require the password, and TLS if it has TLS.
func (s *PostgresServer) demand(t testing.TB) {
	t.Helper()
	s.Exec(t, "ALTER ROLE postgres PASSWORD '"+s.Password+"'", "ALTER ROLE app PASSWORD '"+s.Password+"'")
	kind := "host"
	if s.opts.TLS {
		kind = "hostssl"
	}
	rules := kind + " all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Exec(t, "SELECT pg_reload_conf()") // sends a signal, which takes its time
	open := *s
	open.Password = ""
	waitFor(t, "the server demands the password", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		_, err := psql(ctx, open.url(), "")
		return err != nil
	})
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

// URL returns the server's address for a user, with these options in its
// query.
func (s *PostgresServer) URL(user, query string) string {
	u := url.URL{Scheme: "postgres", Host: "127.0.0.1:" + strconv.Itoa(s.Port), Path: "/postgres", RawQuery: query}
	if s.Password != "" {
		u.User = url.UserPassword(user, s.Password)
	} else {
		u.User = url.User(user)
	}
	return u.String()
}

func (s *PostgresServer) boot() error {
	args := []string{"-D", s.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-k", s.dir,
		"-c", "max_connections=400", "-c", "shared_buffers=64MB",
		"-c", "password_encryption=scram-sha-256"} // before 14 the default is md5
	for _, setting := range s.opts.Settings {
		args = append(args, "-c", setting)
	}
	if s.opts.TLS {
		args = append(args, "-c", "ssl=on", "-c", "ssl_cert_file="+s.Certs.Cert, "-c", "ssl_key_file="+s.Certs.Key)
	}
	path, args := asServerUser(filepath.Join(s.bin, "postgres"), args)
	p, err := start(Spec{
		Name: "postgres",
		Path: path,
		Args: args,
		Env:  s.opts.Env,
		Dir:  s.dir,
		Stop: syscall.SIGINT,
		Ready: func(ctx context.Context) error {
			_, err := psql(ctx, s.url(), "")
			return err
		},
	})
	if err != nil {
		return err
	}
	s.Process = p
	return nil
}

// url is the superuser's address, which requires no password as long as pg_hba.conf
// is that of initdb.
func (s *PostgresServer) url() string {
	query := "sslmode=disable"
	if s.opts.TLS {
		query = "sslmode=prefer"
	}
	return s.URL("postgres", query)
}

// Exec runs statements as the superuser, as one transaction.
func (s *PostgresServer) Exec(t testing.TB, statements ...string) {
	t.Helper()
	s.mustQuery(t, strings.Join(statements, "; "))
}

// Value runs a statement that returns one number.
func (s *PostgresServer) Value(t testing.TB, sql string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s.mustQuery(t, sql), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func (s *PostgresServer) mustQuery(t testing.TB, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	answer, err := psql(ctx, s.url(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// EndConnection ends a connection, by the id of its process, and returns when
// the connection is gone.
func (s *PostgresServer) EndConnection(pid uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	_, err := psql(ctx, s.url(), fmt.Sprintf(`DO $$ BEGIN
	PERFORM pg_terminate_backend(%[1]d);
	WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = %[1]d) LOOP
		PERFORM pg_sleep(0.001);
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
END $$`, pid))
	return err
}

// Restart stops the server in an orderly way and starts it again, on the same
// port and with its data.
func (s *PostgresServer) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	s.startAgain(t)
}

// Crash ends the server as a loss of power would, except that the operating
// system keeps its memory, and starts it again; the server recovers from its
// log.
func (s *PostgresServer) Crash(t testing.TB) {
	t.Helper()
	s.signal(syscall.SIGQUIT) // without a check point
	<-s.done
	s.startAgain(t)
}

func (s *PostgresServer) startAgain(t testing.TB) {
	t.Helper()
	if err := s.boot(); err != nil {
		t.Fatal(err)
	}
}

// Pause stops all processes of the server at once, until resume is called.
func (s *PostgresServer) Pause(t testing.TB) (resume func()) {
	t.Helper()
	s.Process.Pause(t)
	pids := childrenOf(s.pid)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range pids {
		awaitStop(pid)
	}
	return func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		s.Resume(t)
	}
}

// childrenOf returns the processes whose parent has this id.
func childrenOf(parent int) (pids []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// pid (name) state parent …
		text := string(b)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// serverUser returns the user that runs servers that refuse to run as root; nil
// means that this process need not change its user.
func serverUser() (*user.User, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return u, nil
		}
	}
	return nil, errors.New("root may not run this server, and there is no user postgres or nobody")
}

// chownToServerUser gives a file or a folder to the user of servers.
func chownToServerUser(path string) error {
	u, err := serverUser()
	if err != nil || u == nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return os.Chown(path, uid, gid)
}

// asServerUser returns the command that runs a program as the user of servers.
// The process is the program itself: setpriv changes its user and becomes the
// program.
func asServerUser(program string, args []string) (string, []string) {
	u, err := serverUser()
	if err != nil || u == nil {
		return program, args
	}
	return "setpriv", append([]string{"--reuid=" + u.Uid, "--regid=" + u.Gid, "--clear-groups", "--pdeathsig=KILL", "--", program}, args...)
}
