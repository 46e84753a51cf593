package servers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ZooKeeperOptions are the options of a ZooKeeper. The zero value is a single
// server.
type ZooKeeperOptions struct {
	Members int           // of the ensemble; 0 and 1 are a single server
	Tick    time.Duration // the server's tickTime; 0 is 200 ms, 500 ms in an ensemble
	TLS     bool          // serves TLS too, and asks clients for certificates; see ZooKeeperServer.Certs
	Config  []string      // more lines of the configuration
	Env     []string      // of the processes, besides the test's own
	Hosts   []*Host       // of the members; nil: all on the test's machine
}

// ZooKeeperServer is a running ZooKeeper, of one member or several.
type ZooKeeperServer struct {
	Members []*ZooKeeperMember
	Tick    time.Duration
	Certs   *Certs // with ZooKeeperOptions.TLS
}

// ZooKeeperMember is one server of an ensemble.
type ZooKeeperMember struct {
	*Process
	Port   int
	Secure int   // port for TLS, 0 for none
	Host   *Host // where it runs

	java, dir string
	env       []string
}

// zookeeperJars are the jars in /usr/share/java that the server needs: those of
// Debian's libzookeeper-java and of the packages on which it depends. A jar of
// Debian's may name others in /usr/share/java, which count as if they followed
// it. So a jar's own dependencies come before it; otherwise a newer server
// would get the system's.
var zookeeperJars = []string{
	"zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-common", "netty-buffer", "netty-transport",
	"netty-handler", "netty-codec", "netty-resolver",
	"netty-transport-native-unix-common", "netty-transport-native-epoll", "metrics-core", "snappy-java", "commons-cli", "commons-io",
	"zookeeper",
}

// JavaClasses returns the class path of these Debian jars, which are in
// /usr/share/java or in the folder that HOLDFAST_JARS names. A missing jar ends
// the test as in [Find]; install says how to get it.
func JavaClasses(t testing.TB, install string, jars ...string) string {
	t.Helper()
	folder := os.Getenv("HOLDFAST_JARS")
	if folder == "" {
		folder = "/usr/share/java"
	}
	var paths []string
	for _, jar := range jars {
		path := filepath.Join(folder, jar+".jar")
		if _, err := os.Stat(path); err != nil {
			Lack(t, fmt.Sprintf("%v; install %s, or set HOLDFAST_JARS to the folder of its jars", err, install))
		}
		paths = append(paths, path)
	}
	return strings.Join(paths, ":")
}

// ZooKeeperClasses returns the class path of server and client.
func ZooKeeperClasses(t testing.TB) string {
	t.Helper()
	return JavaClasses(t, "libzookeeper-java", zookeeperJars...)
}

// Java returns the path of the Java runtime; HOLDFAST_JAVA may name another.
func Java(t testing.TB) string {
	t.Helper()
	return Find(t, "HOLDFAST_JAVA", "default-jdk-headless", "java")
}

// ZooKeeper starts a ZooKeeper for one test. It ends with the test; a test that
// failed shows the server's log.
func ZooKeeper(t testing.TB, opts ZooKeeperOptions) *ZooKeeperServer {
	t.Helper()
	s := newZooKeeper(t, opts, testFolder(t, "zookeeper"))
	t.Cleanup(func() {
		s.stop()
		s.logOnFailure(t)
	})
	return s
}

// SharedZooKeeper returns the one single server that the tests of the package
// share. The package's TestMain has to be [Main].
func SharedZooKeeper(t testing.TB) *ZooKeeperServer {
	t.Helper()
	s := share(t, "zookeeper", func(dir string) *ZooKeeperServer {
		return newZooKeeper(t, ZooKeeperOptions{}, dir)
	})
	t.Cleanup(func() { s.logOnFailure(t) })
	return s
}

func (s *ZooKeeperServer) logOnFailure(t testing.TB) {
	if t.Failed() {
		for _, m := range s.Members {
			t.Logf("zookeeper on port %d said:\n%s", m.Port, m.Log())
		}
	}
}

func newZooKeeper(t testing.TB, opts ZooKeeperOptions, dir string) *ZooKeeperServer {
	t.Helper()
	n := max(opts.Members, 1)
	if opts.Tick == 0 {
		if opts.Tick = 200 * time.Millisecond; n > 1 {
			opts.Tick = 500 * time.Millisecond
		}
	}
	java, classes := Java(t), ZooKeeperClasses(t)
	var certs *Certs
	var err error
	if opts.TLS {
		certs = NewCerts(t, dir)
		store := certs.Store(t)
		opts.Config = append([]string{
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location=" + store, "ssl.keyStore.type=PEM",
			"ssl.trustStore.location=" + certs.CA, "ssl.trustStore.type=PEM",
		}, opts.Config...)
	}
	for range 3 { // another process may take a port first
		s := &ZooKeeperServer{Tick: opts.Tick, Certs: certs}
		var ensemble []string
		for i := range n {
			m := &ZooKeeperMember{Port: FreePort(t), Host: hostOf(opts.Hosts, i), java: java, dir: filepath.Join(dir, strconv.Itoa(i+1)), env: opts.Env}
			if opts.TLS {
				m.Secure = FreePort(t)
			}
			s.Members = append(s.Members, m)
			if n > 1 {
				ensemble = append(ensemble, fmt.Sprintf("server.%d=%s:%d:%d", i+1, m.Host.Addr(), FreePort(t), FreePort(t)))
			}
		}
		var wait sync.WaitGroup
		errs := make([]error, n)
		for i, m := range s.Members {
			if err = m.configure(i+1, opts, ensemble, classes); err != nil {
				t.Fatal(err)
			}
			wait.Go(func() { errs[i] = m.boot() })
		}
		wait.Wait()
		err = nil
		for _, e := range errs {
			if e != nil {
				err = e
			}
		}
		if err == nil {
			return s
		}
		s.stop()
	}
	t.Fatal(err)
	return nil
}

// configure writes the configuration that the server reads at its start.
func (m *ZooKeeperMember) configure(id int, opts ZooKeeperOptions, ensemble []string, classes string) error {
	lines := []string{
		fmt.Sprintf("tickTime=%d", opts.Tick.Milliseconds()),
		"dataDir=" + filepath.Join(m.dir, "data"),
		fmt.Sprintf("clientPort=%d", m.Port),
		"clientPortAddress=" + m.Host.Addr(),
		"maxClientCnxns=0",
		"maxSessionTimeout=600000",
		"admin.enableServer=false",
		"4lw.commands.whitelist=*",
		"initLimit=60",
		"syncLimit=10",
	}
	if m.Secure != 0 {
		lines = append(lines, fmt.Sprintf("secureClientPort=%d", m.Secure), "secureClientPortAddress="+m.Host.Addr())
	}
	lines = append(lines, ensemble...)
	lines = append(lines, opts.Config...)
	if err := os.MkdirAll(filepath.Join(m.dir, "data"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.dir, "data", "myid"), fmt.Appendf(nil, "%d\n", id), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.dir, "classes"), []byte(classes), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, "zoo.cfg"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (m *ZooKeeperMember) boot() error {
	classes, err := os.ReadFile(filepath.Join(m.dir, "classes"))
	if err != nil {
		return err
	}
	p, err := start(Spec{
		Name: "zookeeper",
		Path: m.java,
		Args: []string{
			"-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
			"-Dzookeeper.4lw.commands.whitelist=*",
			"-cp", string(classes),
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(m.dir, "zoo.cfg"),
		},
		Env:  m.env,
		Dir:  m.dir,
		Host: m.Host,
		Ready: func(ctx context.Context) error {
			answer, err := m.ask(ctx, "srvr")
			if err == nil && !strings.Contains(answer, "Mode:") {
				err = fmt.Errorf("srvr: %s", strings.TrimSpace(answer))
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	m.Process = p
	return nil
}

func (s *ZooKeeperServer) stop() {
	for _, m := range s.Members {
		if m.Process != nil {
			m.Kill()
		}
	}
}

// ask sends one of the server's commands of four letters.
func (m *ZooKeeperMember) ask(ctx context.Context, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(end); err != nil {
			return "", err
		}
	}
	if _, err := conn.Write([]byte(command)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	return string(bytes.TrimSpace(b)), err
}

// Ask sends one of the server's commands of four letters, such as "mntr", and
// fails the test if there is no answer.
func (m *ZooKeeperMember) Ask(t testing.TB, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	answer, err := m.ask(ctx, command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return answer
}

// Leads reports whether the member leads its ensemble, or is alone.
func (m *ZooKeeperMember) Leads(t testing.TB) bool {
	t.Helper()
	answer := m.Ask(t, "srvr")
	return strings.Contains(answer, "Mode: leader") || strings.Contains(answer, "Mode: standalone")
}

// Addr returns host and port.
func (m *ZooKeeperMember) Addr() string { return net.JoinHostPort(m.Host.Addr(), strconv.Itoa(m.Port)) }

// SecureURL returns the address for TLS as zklock takes it, with these options
// in its query, which may be empty. It names no certificates.
func (s *ZooKeeperServer) SecureURL(query string) string {
	var addrs []string
	for _, m := range s.Members {
		addrs = append(addrs, net.JoinHostPort(m.Host.Addr(), strconv.Itoa(m.Secure)))
	}
	u := "zks://" + strings.Join(addrs, ",") + "?tick=" + (2 * s.Tick).String()
	return u + "&" + patient(query)
}

// Data returns the folder of the member's data.
func (m *ZooKeeperMember) Data() string { return filepath.Join(m.dir, "data") }

// Renumber restarts a single server with this as its last zxid: the server
// takes the zxid from the name of the snapshot that it wrote at its start.
// Later changes are lost.
func (m *ZooKeeperMember) Renumber(t testing.TB, zxid int64) {
	t.Helper()
	m.Kill()
	files, err := filepath.Glob(filepath.Join(m.Data(), "version-2", "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	newest, last := "", int64(-1)
	for _, file := range files {
		var n int64
		if _, err := fmt.Sscanf(filepath.Base(file), "snapshot.%x", &n); err == nil && n > last {
			newest, last = file, n
		}
	}
	for _, file := range files {
		if file == newest {
			err = os.Rename(file, filepath.Join(filepath.Dir(file), fmt.Sprintf("snapshot.%x", zxid)))
		} else {
			err = os.Remove(file)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m.Restart(t)
}

// Restart starts a member that was killed, with the data it has written, and
// returns when it serves.
func (m *ZooKeeperMember) Restart(t testing.TB) {
	t.Helper()
	m.Kill()
	if err := m.boot(); err != nil {
		t.Fatal(err)
	}
}

// Addrs returns host and port of all members.
func (s *ZooKeeperServer) Addrs() []string {
	var addrs []string
	for _, m := range s.Members {
		addrs = append(addrs, m.Addr())
	}
	return addrs
}

// URL returns the address as zklock takes it, with this chroot, which may be
// empty, and these options in its query: "root=/x" without the question mark.
// The URL gives twice the tick, so that a client that is late on a busy machine
// does not count as one that is in doubt.
func (s *ZooKeeperServer) URL(chroot, query string) string {
	u := "zk://" + strings.Join(s.Addrs(), ",") + chroot + "?tick=" + (2 * s.Tick).String()
	return u + "&" + patient(query)
}

// patient gives a URL's options twice the time for the first answer that the
// stores give by default, unless they name one: a test's server shares a busy
// machine.
func patient(query string) string {
	if strings.Contains(query, "dial_timeout=") {
		return query
	}
	return strings.TrimSuffix("dial_timeout=10s&"+query, "&")
}
