package servers

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Standby copies the server and starts the copy: a standby that follows this
// server, answers reads and refuses writes, until it is promoted. It ends with
// the test. The server must not have a password.
func (s *PostgresServer) Standby(t testing.TB) *PostgresServer {
	t.Helper()
	return single(t, "postgres", func(dir string) *PostgresServer { return s.standbyIn(t, dir) })
}

// standbyIn is Standby, in a folder.
func (s *PostgresServer) standbyIn(t testing.TB, dir string) *PostgresServer {
	t.Helper()
	if err := chownToServerUser(dir); err != nil {
		t.Fatal(err)
	}
	b := &PostgresServer{opts: PostgresOptions{Settings: s.opts.Settings}, bin: s.bin, dir: dir}
	real, err := filepath.EvalSymlinks(filepath.Join(s.bin, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	path, args := asServerUser(filepath.Join(filepath.Dir(real), "pg_basebackup"),
		[]string{"-D", b.data(), "-d", s.URL("postgres", "sslmode=disable"), "-R", "-X", "stream", "-c", "fast", "--no-sync"})
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	onFreePort(t, &b.Port, b.boot)
	return b
}

// Promote makes a standby accept writes.
func (s *PostgresServer) Promote(t testing.TB) {
	t.Helper()
	s.Exec(t, "SELECT pg_promote(true, 60)")
}
