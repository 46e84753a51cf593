package servers

import (
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is the body of a TestMain: it runs the tests of the package, ends the
// servers they shared, checks that no goroutine is left, and exits.
func Main(m *testing.M, opts ...goleak.Option) {
	DefaultSignals()
	shared.cleaned = true
	goleak.VerifyTestMain(stopping{m, opts}, opts...)
}

type stopping struct {
	m    *testing.M
	opts []goleak.Option
}

// Run implements goleak.TestingM.
func (s stopping) Run() int {
	code := s.m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, server := range shared.servers {
		server.stop()
	}
	for _, dir := range shared.dirs {
		os.RemoveAll(dir)
	}
	awaitGoroutines(s.opts)
	return code
}

// awaitGoroutines waits until goleak finds nothing, for 30 seconds at most. Goleak
// itself waits for half a second, which is too short on a busy machine, and for
// libraries whose Close leaves goroutines that end by themselves: rueidis sleeps
// for seconds before it asks a cluster for its nodes.
func awaitGoroutines(opts []goleak.Option) {
	for end := time.Now().Add(30 * time.Second); goleak.Find(opts...) != nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

// shared holds the servers that the tests of one package share, by key; to
// start one for each test would take longer than the tests.
var shared struct {
	sync.Mutex
	servers map[string]sharable
	dirs    []string
	cleaned bool // by Main, when the tests have ended
}

type sharable interface{ stop() }

// share returns the server of this key, and starts it if there is none. A test
// that needs to break its server starts one of its own.
func share[S sharable](t testing.TB, key string, start func(dir string) S) S {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if s, ok := shared.servers[key]; ok {
		return s.(S)
	}
	dir, err := newFolder(key)
	if err != nil {
		t.Fatal(err)
	}
	shared.dirs = append(shared.dirs, dir)
	s := start(dir)
	if shared.servers == nil {
		shared.servers = make(map[string]sharable)
	}
	shared.servers[key] = s
	return s
}

// single starts a server for one test, in a folder of its own. The server ends
// with the test; a test that failed shows the server's log.
func single[S interface {
	sharable
	logOnFailure(testing.TB)
}](t testing.TB, kind string, start func(dir string) S) S {
	t.Helper()
	s := start(testFolder(t, kind))
	t.Cleanup(func() {
		s.stop()
		s.logOnFailure(t)
	})
	return s
}

// onFreePort boots a server on a port that it sets. Another process may take
// the port first, so onFreePort tries three ports.
func onFreePort(t testing.TB, port *int, boot func() error) {
	t.Helper()
	var err error
	for range 3 {
		*port = FreePort(t)
		if err = boot(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
