package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// RedisOptions are the options of a Redis server. The zero value is a server
// without a password and without persistence.
type RedisOptions struct {
	Args     []string // more arguments, such as "--maxmemory", "1mb"
	Env      []string // of the process, besides the test's own
	Password string   // of the default user
	TLS      bool     // serves TLS only, see RedisServer.Certs
	Certs    *Certs   // with TLS; nil: new ones
	// Durable writes every change to disk before the answer, so that a server
	// that crashed comes back with its data.
	Durable bool
	Host    *Host // where it runs; nil is the test's machine
}

// RedisServer is a running Redis or Valkey.
type RedisServer struct {
	*Process
	Port     int
	Password string
	Certs    *Certs // with RedisOptions.TLS

	opts RedisOptions
	path string
	dir  string
	conf string // a file of settings, which comes first; usually none
}

// Redis starts a server for one test. The server ends with the test; a test
// that failed shows the server's log. HOLDFAST_REDIS_SERVER may name another
// program than the installed redis-server or valkey-server.
func Redis(t testing.TB, opts RedisOptions) *RedisServer {
	t.Helper()
	s := newRedis(t, opts, testFolder(t, "redis"))
	t.Cleanup(func() {
		s.stop()
		s.logOnFailure(t)
	})
	return s
}

func (s *RedisServer) logOnFailure(t testing.TB) {
	if t.Failed() {
		t.Logf("redis on port %d said:\n%s", s.Port, s.Log())
	}
}

// SharedRedis returns the one plain server, without options, that the tests of
// the package share. The package's TestMain has to be [Main].
func SharedRedis(t testing.TB) *RedisServer {
	t.Helper()
	s := share(t, "redis", func(dir string) *RedisServer {
		return newRedis(t, RedisOptions{}, dir)
	})
	t.Cleanup(func() { s.logOnFailure(t) })
	return s
}

// findRedis returns the path of the server.
func findRedis(t testing.TB) string {
	t.Helper()
	return Find(t, "HOLDFAST_REDIS_SERVER", "redis-server (Redis or Valkey, 6.2 or later)", "redis-server", "valkey-server")
}

func newRedis(t testing.TB, opts RedisOptions, dir string) *RedisServer {
	t.Helper()
	s := &RedisServer{
		Password: opts.Password,
		opts:     opts,
		dir:      dir,
		path:     findRedis(t),
	}
	if opts.TLS {
		if s.Certs = opts.Certs; s.Certs == nil {
			s.Certs = NewCerts(t, dir)
		}
	}
	var err error
	for range 3 { // another process may take the port first
		s.Port = FreePort(t)
		if err = s.boot(nil, false); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// boot starts the process; with loading, a server that still reads its data
// counts as ready.
func (s *RedisServer) boot(more []string, loading bool) error {
	port := strconv.Itoa(s.Port)
	var args []string
	if s.conf != "" {
		args = append(args, s.conf)
	}
	args = append(args, "--bind", s.opts.Host.Addr(), "--dir", s.dir, "--save", "", "--daemonize", "no")
	if s.opts.Host != nil { // its clients are on others
		args = append(args, "--protected-mode", "no")
	}
	if s.opts.TLS {
		args = append(args, "--port", "0", "--tls-port", port, "--tls-cert-file", s.Certs.Cert,
			"--tls-key-file", s.Certs.Key, "--tls-ca-cert-file", s.Certs.CA, "--tls-auth-clients", "optional",
			"--tls-client-cert-file", s.Certs.ClientCert, "--tls-client-key-file", s.Certs.ClientKey)
	} else {
		args = append(args, "--port", port)
	}
	if s.opts.Durable {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if s.Password != "" {
		args = append(args, "--requirepass", s.Password)
	}
	args = append(args, s.opts.Args...)
	args = append(args, more...)
	p, err := start(Spec{
		Name: "redis-server",
		Path: s.path,
		Args: args,
		Env:  s.opts.Env,
		Dir:  s.dir,
		Host: s.opts.Host,
		Ready: func(ctx context.Context) error {
			_, err := s.exchange(ctx, "PING")
			if re := RedisError(""); errors.As(err, &re) {
				if strings.HasPrefix(string(re), "LOADING") && !loading {
					return err
				}
				return nil // the server speaks
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	s.Process = p
	return nil
}

func (s *RedisServer) stop() {
	s.Kill() // its data need not be saved
}

// Addr returns host and port.
func (s *RedisServer) Addr() string {
	return net.JoinHostPort(s.opts.Host.Addr(), strconv.Itoa(s.Port))
}

// Host returns the host of the server, nil for the test's machine.
func (s *RedisServer) Host() *Host { return s.opts.Host }

// URL returns the server's address as redislock takes it, with these options
// in its query: "prefix=x&db=1" without the question mark.
func (s *RedisServer) URL(query string) string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), RawQuery: query}
	if s.Password != "" {
		u.User = url.UserPassword("", s.Password)
	}
	if s.opts.TLS {
		u.Scheme = "rediss"
	}
	return u.String()
}

// Crash kills the server and leaves its data where they are.
func (s *RedisServer) Crash(t testing.TB) {
	t.Helper()
	s.Kill()
}

// Restart kills the server, if it runs, and starts it again on its port with
// what data it has written, and with more arguments.
func (s *RedisServer) Restart(t testing.TB, more ...string) {
	t.Helper()
	s.Kill()
	if err := s.boot(more, false); err != nil {
		t.Fatal(err)
	}
}

// RestartEmpty is Restart without any data.
func (s *RedisServer) RestartEmpty(t testing.TB) {
	t.Helper()
	s.Kill()
	s.Wipe(t)
	if err := s.boot(nil, false); err != nil {
		t.Fatal(err)
	}
}

// RestartLoading is Restart, but returns while the server still reads its data
// and answers LOADING.
func (s *RedisServer) RestartLoading(t testing.TB, more ...string) {
	t.Helper()
	s.Kill()
	if err := s.boot(more, true); err != nil {
		t.Fatal(err)
	}
}

// Wipe removes the data of a server that does not run.
func (s *RedisServer) Wipe(t testing.TB) {
	t.Helper()
	for _, pattern := range []string{"*.rdb", "*.aof*", "appendonlydir"} {
		files, err := filepath.Glob(filepath.Join(s.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Do sends one command on a connection of its own and returns the answer: a
// string, an int64, nil, or a []any of these. It fails the test on an error.
func (s *RedisServer) Do(t testing.TB, args ...string) any {
	t.Helper()
	v, err := s.Try(args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return v
}

// Try is Do that returns the error; an answer that is one is a [RedisError].
func (s *RedisServer) Try(args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return s.exchange(ctx, args...)
}

// Info returns one field of INFO, and fails the test when there is none.
func (s *RedisServer) Info(t testing.TB, section, name string) string {
	t.Helper()
	text, _ := s.Do(t, "INFO", section).(string)
	v := field(text, name)
	if v == "" {
		t.Fatalf("INFO %s has no %s", section, name)
	}
	return v
}

// Calls returns how often the server has run a command, from INFO.
func (s *RedisServer) Calls(t testing.TB, command string) int {
	t.Helper()
	text, _ := s.Do(t, "INFO", "commandstats").(string)
	rest, ok := strings.CutPrefix(field(text, "cmdstat_"+strings.ToLower(command)), "calls=")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(fmt.Errorf("INFO commandstats: %w", err))
	}
	return n
}
