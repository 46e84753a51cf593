package backends

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Standby makes a copy of the server and starts it: a standby that follows this
// server, answers reads and refuses writes, until it is promoted. It ends with
// the test. The server must not have a password.
func (s *PostgresServer) Standby(t testing.TB) *PostgresServer {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-postgres-")
	if err == nil {
		err = own(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &PostgresServer{opts: PostgresOptions{Settings: s.opts.Settings}, bin: s.bin, dir: dir}
	real, err := filepath.EvalSymlinks(filepath.Join(s.bin, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	path, args := asServer(filepath.Join(filepath.Dir(real), "pg_basebackup"),
		[]string{"-D", b.data(), "-d", s.URL("postgres", "sslmode=disable"), "-R", "-X", "stream", "-c", "fast", "--no-sync"})
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	b.Port = FreePort(t)
	if err := b.boot(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.stop()
		b.tell(t)
	})
	return b
}

// Promote makes a standby a server that takes writes.
func (s *PostgresServer) Promote(t testing.TB) {
	t.Helper()
	s.Exec(t, "SELECT pg_promote(true, 60)")
}
