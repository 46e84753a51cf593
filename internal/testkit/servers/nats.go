package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// natsRelease is the version of nats-server that the tests build. That of Debian 12
// has no TTLs of messages.
const natsRelease = "v2.15.2"

// NATS is a nats-server with JetStream. Its files, its port and its configuration
// stay the same over restarts.
type NATS struct {
	*Process
	spec   Spec
	port   int
	config string // of the configuration file
	dir    string // of its files
}

// StartNATS starts a server of the test's own. The lines of more, which may be
// empty, are added to its configuration.
func StartNATS(t testing.TB, more string) *NATS {
	t.Helper()
	s := newNATS(t, testFolder(t, "nats"), more)
	s.Start(t)
	t.Cleanup(func() { s.Process.Stop() })
	return s
}

// SharedNATS returns a server that the tests of a package share.
func SharedNATS(t testing.TB) *NATS {
	t.Helper()
	return share(t, "nats", func(dir string) *NATS {
		s := newNATS(t, dir, "")
		s.Start(t)
		return s
	})
}

func (s *NATS) stop() { s.Process.Stop() }

func newNATS(t testing.TB, dir, more string) *NATS {
	t.Helper()
	path := os.Getenv("HOLDFAST_NATS_SERVER")
	if path == "" {
		var err error
		if path, err = NATSBuild(); err != nil {
			Lack(t, fmt.Sprintf("nats-server %s cannot be built: %v; or set HOLDFAST_NATS_SERVER to its path", natsRelease, err))
		}
	}
	s := &NATS{port: FreePort(t), config: filepath.Join(dir, "nats.conf"), dir: filepath.Join(dir, "data")}
	text := fmt.Sprintf("listen: %q\n", s.Addr())
	if !strings.Contains(more, "jetstream") {
		text += fmt.Sprintf("jetstream: {store_dir: %q, max_mem: 64M, max_file: 1G}\n", s.dir)
	}
	if err := os.WriteFile(s.config, []byte(text+more), 0o600); err != nil {
		t.Fatal(err)
	}
	s.spec = Spec{
		Name: "nats-server", Path: path, Args: []string{"-c", s.config},
		Ready: func(ctx context.Context) error { return natsReady(ctx, s.Addr()) },
	}
	return s
}

// natsReady returns nil when a server greets a client.
func natsReady(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(end)
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "INFO ") {
		err = errors.New("its greeting is not that of NATS")
	}
	return err
}

// Start starts the server again after it was stopped or killed.
func (s *NATS) Start(t testing.TB) {
	t.Helper()
	s.Process = Start(t, s.spec)
}

// Addr returns the server's host and port.
func (s *NATS) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL returns the server's address.
func (s *NATS) URL() string { return "nats://" + s.Addr() }

// Data returns the folder of JetStream's files.
func (s *NATS) Data() string { return s.dir }

var natsBuild = sync.OnceValues(buildNATS)

// NATSBuild builds nats-server unless it was built before, and returns its path.
// The build takes half a minute the first time.
func NATSBuild() (path string, err error) { return natsBuild() }

func buildNATS() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "holdfast-test", "nats-"+natsRelease)
	path := filepath.Join(dir, "nats-server")
	if executable(path) {
		return path, nil
	}
	tmp, err := os.MkdirTemp("", "holdfast-nats-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	const server = "github.com/nats-io/nats-server/v2"
	out := filepath.Join(tmp, "nats-server")
	for _, args := range [][]string{
		{"mod", "init", "nats.build"},
		{"get", server + "@" + natsRelease},
		{"build", "-o", out, server},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = tmp
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, text)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return path, install(out, path)
}
