package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// EtcdVersion is one of the two releases that tests run.
type EtcdVersion string

// The releases: the newest one, built from the sources that the Go module proxy
// has, and the old one that Debian 12 ships.
const (
	EtcdNewest EtcdVersion = "3.7"
	EtcdOld    EtcdVersion = "3.4"
)

// etcdRelease is the release from whose sources EtcdNewest is built.
const etcdRelease = "v3.7.3"

// EtcdOptions are the options of an etcd. The zero value is one member of the
// newest release, without TLS.
type EtcdOptions struct {
	Version EtcdVersion // EtcdNewest when empty
	Members int         // of the cluster; 0 and 1 are a single server
	TLS     bool        // serves TLS only, and asks clients for certificates; see EtcdServer.Certs
	Args    []string    // more arguments, such as "--auth-token-ttl", "5"
	Hosts   []*Host     // of the members; nil: all on the test's machine
}

// EtcdServer is a running etcd, of one member or several.
type EtcdServer struct {
	Members []*EtcdMember
	Certs   *Certs // with EtcdOptions.TLS

	opts EtcdOptions
}

// EtcdMember is one server of a cluster.
type EtcdMember struct {
	*Process
	Port int   // for clients
	Host *Host // where it runs

	path, dir string
	args      []string
	tls       bool
	ahead     time.Duration // how far its monotonic clock is ahead
}

// Etcd starts an etcd for one test. The etcd ends with the test; a test that
// failed shows the server's log.
func Etcd(t testing.TB, opts EtcdOptions) *EtcdServer {
	t.Helper()
	s := newEtcd(t, opts, testFolder(t, "etcd"))
	t.Cleanup(func() {
		s.stop()
		s.logOnFailure(t)
	})
	return s
}

// SharedEtcd returns the one single server of this release that the tests of
// the package share. The package's TestMain has to be [Main].
func SharedEtcd(t testing.TB, v EtcdVersion) *EtcdServer {
	t.Helper()
	s := share(t, "etcd-"+string(v), func(dir string) *EtcdServer {
		return newEtcd(t, EtcdOptions{Version: v}, dir)
	})
	t.Cleanup(func() { s.logOnFailure(t) })
	return s
}

func (s *EtcdServer) logOnFailure(t testing.TB) {
	if t.Failed() {
		for _, m := range s.Members {
			t.Logf("etcd on port %d said:\n%s", m.Port, m.Log())
		}
	}
}

func (s *EtcdServer) stop() {
	for _, m := range s.Members {
		m.Kill() // its data need not be saved
	}
}

func newEtcd(t testing.TB, opts EtcdOptions, dir string) *EtcdServer {
	t.Helper()
	var path string
	if opts.Version == EtcdOld {
		path = Find(t, "HOLDFAST_ETCD34", "etcd-server of Debian 12", "etcd")
	} else {
		path = newestEtcd(t, "HOLDFAST_ETCD", "server")
	}
	var certs *Certs
	if opts.TLS {
		certs = NewCerts(t, dir)
	}
	var err error
	for range 3 { // another process may take a port first
		s := &EtcdServer{Certs: certs, opts: opts}
		if err = s.boot(path, dir); err == nil {
			return s
		}
		s.wipe()
	}
	t.Fatal(err)
	return nil
}

func (s *EtcdServer) wipe() {
	for _, m := range s.Members {
		if m.Process != nil {
			m.Kill()
		}
		os.RemoveAll(m.dir)
	}
}

// boot creates the members and starts them together: no member is ready without
// a majority.
func (s *EtcdServer) boot(path, dir string) error {
	n := max(s.opts.Members, 1)
	scheme := "http"
	if s.opts.TLS {
		scheme = "https"
	}
	var cluster []string
	for i := range n {
		client, err := freePort()
		if err != nil {
			return err
		}
		peer, err := freePort()
		if err != nil {
			return err
		}
		name := "m" + strconv.Itoa(i)
		host := hostOf(s.opts.Hosts, i)
		own := scheme + "://" + net.JoinHostPort(host.Addr(), strconv.Itoa(client))
		peerURL := "http://" + net.JoinHostPort(host.Addr(), strconv.Itoa(peer))
		cluster = append(cluster, name+"="+peerURL)
		m := &EtcdMember{Port: client, Host: host, path: path, dir: filepath.Join(dir, fmt.Sprint(name, "-", client)), tls: s.opts.TLS}
		m.args = []string{"--name", name, "--data-dir", m.dir, "--logger", "zap", "--log-level", "warn",
			"--listen-client-urls", own, "--advertise-client-urls", own,
			"--listen-peer-urls", peerURL, "--initial-advertise-peer-urls", peerURL}
		if s.Certs != nil {
			m.args = append(m.args, "--cert-file", s.Certs.Cert, "--key-file", s.Certs.Key,
				"--trusted-ca-file", s.Certs.CA, "--client-cert-auth")
		}
		s.Members = append(s.Members, m)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, m := range s.Members {
		m.args = append(m.args, "--initial-cluster", strings.Join(cluster, ","))
		m.args = append(m.args, s.opts.Args...)
		wg.Go(func() { errs[i] = m.boot() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (m *EtcdMember) boot() error {
	path, args := m.path, m.args
	if m.ahead > 0 {
		path, args = "unshare", append([]string{"--time", "--monotonic", strconv.Itoa(int(m.ahead.Seconds())), "--", path}, args...)
	}
	p, err := start(Spec{Name: "etcd", Path: path, Args: args, Host: m.Host, Ready: m.healthy})
	if err != nil {
		return err
	}
	m.Process = p
	return nil
}

// healthy returns nil if the member has a leader. Of a member with TLS, it only
// checks that it listens.
func (m *EtcdMember) healthy(ctx context.Context) error {
	var dial net.Dialer
	conn, err := dial.DialContext(ctx, "tcp", m.Addr())
	if err != nil {
		return err
	}
	conn.Close()
	if m.tls {
		return nil
	}
	body, err := m.get(ctx, "/health")
	if err != nil {
		return err
	}
	if !strings.Contains(body, `"true"`) {
		return fmt.Errorf("it says of its health: %s", body)
	}
	return nil
}

// get requests a page of a member without TLS.
func (m *EtcdMember) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Addr()+path, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// Addr returns host and port for clients.
func (m *EtcdMember) Addr() string { return net.JoinHostPort(m.Host.Addr(), strconv.Itoa(m.Port)) }

// Restart kills the member, if it runs, and starts it again with its data.
func (m *EtcdMember) Restart(t testing.TB) {
	t.Helper()
	m.Kill()
	if err := m.boot(); err != nil {
		t.Fatal(err)
	}
}

// Snapshot copies the member's data, and returns a function that restores them:
// both kill the member and start it again.
func (m *EtcdMember) Snapshot(t testing.TB) (restore func()) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "data")
	change := func(how func() error) {
		t.Helper()
		m.Kill()
		if err := errors.Join(how(), m.boot()); err != nil {
			t.Fatal(err)
		}
	}
	change(func() error { return os.CopyFS(copied, os.DirFS(m.dir)) })
	return func() {
		t.Helper()
		change(func() error {
			if err := os.RemoveAll(m.dir); err != nil {
				return err
			}
			return os.CopyFS(m.dir, os.DirFS(copied))
		})
	}
}

// Endpoints returns the addresses of all members, with their scheme.
func (s *EtcdServer) Endpoints() []string {
	scheme := "http://"
	if s.Certs != nil {
		scheme = "https://"
	}
	var es []string
	for _, m := range s.Members {
		es = append(es, scheme+m.Addr())
	}
	return es
}

// URL returns the cluster's address as etcdlock takes it, with these options in
// its query: "prefix=x" without the question mark.
func (s *EtcdServer) URL(query string) string {
	var hosts []string
	for _, m := range s.Members {
		hosts = append(hosts, m.Addr())
	}
	u := "etcd://" + strings.Join(hosts, ",")
	if s.Certs != nil {
		u = "etcds://" + strings.Join(hosts, ",")
		q := "ca=" + s.Certs.CA + "&cert=" + s.Certs.ClientCert + "&key=" + s.Certs.ClientKey
		query = strings.TrimSuffix(q+"&"+query, "&")
	}
	return u + "?" + patient(query)
}

// Ctl returns the command that runs etcdctl of the server's release.
func (s *EtcdServer) Ctl(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	var path string
	if s.opts.Version == EtcdOld {
		path = Find(t, "HOLDFAST_ETCDCTL34", "etcd-client of Debian 12", "etcdctl")
	} else {
		path = newestEtcd(t, "HOLDFAST_ETCDCTL", "etcdctl")
	}
	cmd := exec.Command(path, append([]string{"--endpoints", strings.Join(s.Endpoints(), ",")}, args...)...)
	return cmd
}

// newestEtcd returns the path of a program of the newest release: the program
// that env names, or else one in the user's cache folder, which is built now
// unless it was built before.
func newestEtcd(t testing.TB, env, program string) string {
	t.Helper()
	if path := os.Getenv(env); path != "" {
		return path
	}
	dir, err := EtcdBuild()
	if err != nil {
		Lack(t, fmt.Sprintf("etcd %s cannot be built: %v; or set %s to the path of %s", etcdRelease, err, env, program))
	}
	return filepath.Join(dir, program)
}

var etcdBuild = sync.OnceValues(buildEtcd)

// EtcdBuild builds server and etcdctl of the newest release, unless they exist,
// and returns their folder. The build takes two minutes the first time.
func EtcdBuild() (dir string, err error) { return etcdBuild() }

func buildEtcd() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "holdfast-test", "etcd-"+etcdRelease)
	programs := []string{"server", "etcdctl"}
	there := true
	for _, p := range programs {
		_, err := os.Stat(filepath.Join(dir, p))
		there = there && err == nil
	}
	if there {
		return dir, nil
	}
	// A module of its own, because the release's go.mod has replacements that
	// go install refuses; required by another module they have no effect.
	tmp, err := os.MkdirTemp("", "holdfast-etcd-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	const server, ctl = "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdctl/v3"
	out := filepath.Join(tmp, "out") + string(filepath.Separator)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"mod", "init", "etcd.build"},
		{"get", server + "@" + etcdRelease, ctl + "@" + etcdRelease},
		{"build", "-o", out, server, ctl},
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
	for _, p := range programs { // in one step, because another process may build them too
		if err := install(filepath.Join(out, p), filepath.Join(dir, p)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func install(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}
