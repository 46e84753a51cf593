package servers

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// PgBouncerServer is a running PgBouncer in front of a PostgreSQL.
type PgBouncerServer struct {
	*Process
	Port int
}

// PgBouncer starts a pooler in front of s for one test. mode is "transaction"
// or "session"; size is the maximum number of connections to the server.
func PgBouncer(t testing.TB, s *PostgresServer, mode string, size int) *PgBouncerServer {
	t.Helper()
	path := Find(t, "HOLDFAST_PGBOUNCER", "pgbouncer", "pgbouncer")
	return single(t, "pgbouncer", func(dir string) *PgBouncerServer {
		b := &PgBouncerServer{}
		onFreePort(t, &b.Port, func() error { return b.boot(s, path, dir, mode, size) })
		return b
	})
}

func (b *PgBouncerServer) stop() { b.Stop() }

func (b *PgBouncerServer) logOnFailure(t testing.TB) {
	if t.Failed() {
		t.Logf("pgbouncer on port %d said:\n%s", b.Port, b.Log())
	}
}

func (b *PgBouncerServer) boot(s *PostgresServer, path, dir, mode string, size int) (err error) {
	users := filepath.Join(dir, "users.txt")
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
default_pool_size = %d
max_client_conn = 1000
`, s.Port, b.Port, users, mode, size)
	for file, content := range map[string]string{users: "\"postgres\" \"\"\n\"app\" \"\"\n", config: text} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
		if err := chownToServerUser(file); err != nil {
			return err
		}
	}
	if err := chownToServerUser(dir); err != nil {
		return err
	}
	program, args := asServerUser(path, []string{config})
	b.Process, err = start(Spec{
		Name: "pgbouncer",
		Path: program,
		Args: args,
		Dir:  dir,
		Stop: syscall.SIGTERM,
		Ready: func(ctx context.Context) error {
			_, err := psql(ctx, b.URL("postgres", "sslmode=disable"), "")
			return err
		},
	})
	return err
}

// URL returns the pooler's address for a user, with these options in its
// query.
func (b *PgBouncerServer) URL(user, query string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(user), Host: "127.0.0.1:" + strconv.Itoa(b.Port),
		Path: "/postgres", RawQuery: query,
	}
	return u.String()
}
