package sqlitelock

import (
	"context"
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/multiproc"
)

func TestMain(m *testing.M) {
	multiproc.Child(func(target string) (driver.Driver, error) { return OpenURL(context.Background(), target) })
	runChild()
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait more than they compute
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// openAt opens the file at path and closes it with the test.
func openAt(t drivertest.T, path string, o *Options) *Driver {
	t.Helper()
	d, err := Open(context.Background(), path, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// store is a file and a clock that can be set.
type store struct {
	path  string
	step  atomic.Int64
	stall sync.RWMutex // while locked, requests stop before their first statement
	mu    sync.Mutex
	open  []*Driver
}

func (s *store) clock() clock {
	c := systemClock
	c.boot = func() (time.Duration, error) {
		s.stall.RLock()
		defer s.stall.RUnlock()
		d, err := sinceBoot()
		// The machine may have started just now. The added day keeps the clock
		// after its start.
		return d + 24*time.Hour + time.Duration(s.step.Load()), err
	}
	c.wall = func() time.Time { return time.Now().Add(time.Duration(s.step.Load())) }
	return c
}

func (s *store) client(t drivertest.T) driver.Driver {
	t.Helper()
	d, err := open(context.Background(), s.path, nil, s.clock())
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, d)
	return d
}

// pause silences the store until resume is called.
func (s *store) pause() (resume func()) {
	s.stall.Lock()
	return s.stall.Unlock
}

// raw opens the file without the driver.
func raw(t drivertest.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatalf("%v", err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t drivertest.T, db *sql.DB, stmt string, args ...any) {
	t.Helper()
	if _, err := db.Exec(stmt, args...); err != nil {
		t.Fatalf("%s: %v", stmt, err)
	}
}

func remove(t drivertest.T, path string) {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatalf("%v", err)
		}
	}
}

// harness describes the store to the suite.
func (s *store) harness(dir string) drivertest.Harness {
	return drivertest.Harness{
		TellsLeft: true,
		Open:      s.client,
		TTL:       time.Second,
		Waiters:   300,
		Pause:     func(t drivertest.T) func() { return s.pause() },
		Restart: func(t drivertest.T) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, d := range s.open {
				if !d.closed.Load() {
					d.reopen()
				}
			}
		},
		LoseData: func(t drivertest.T) { remove(t, s.path) },
		Snapshot: func(t drivertest.T) func() {
			copied := filepath.Join(dir, "copy.db")
			run(t, raw(t, s.path), "VACUUM INTO ?", copied)
			return func() {
				remove(t, s.path)
				if err := os.Rename(copied, s.path); err != nil {
					t.Fatalf("%v", err)
				}
			}
		},
		StepClock: func(t drivertest.T, d time.Duration) { s.step.Add(int64(d)) },
		LeaveOut:  map[string]string{"close-silent": ownClose},
		Elsewhere: s.elsewhere(dir),
		Rows: func(t drivertest.T) (n int) {
			if err := raw(t, s.path).QueryRow("SELECT count(*) FROM holdfast_line").Scan(&n); err != nil {
				t.Fatalf("%v", err)
			}
			return n
		},
	}
}

func TestDriverConformance(t *testing.T) {
	dir := t.TempDir()
	s := &store{path: filepath.Join(dir, "locks.db")}
	drivertest.Run(t, s.harness(dir))
}

func TestLocksAcrossProcesses(t *testing.T) {
	t.Parallel()
	multiproc.Run(t, multiproc.Store{TTL: 2 * time.Second, Fresh: func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	}})
}

// mail collects the pushes to a client.
type mail struct {
	mu   sync.Mutex
	told []string
	gaps int
}

func (m *mail) all() ([]string, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.told), m.gaps
}

// watched starts the pushes of a client.
func watched(t *testing.T, d *Driver) *mail {
	t.Helper()
	m := new(mail)
	err := d.Watch(context.Background(), func(id string, p driver.Status) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if id == "" {
			m.gaps++
		} else {
			m.told = append(m.told, id+" "+p.State.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// until waits for a condition.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("still not: %s", what)
		}
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var stores sync.Map // each case has its own file, so that cases do not wait for each other's commits
	of := func(t drivertest.T) *store {
		path := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-"))
		s, _ := stores.LoadOrStore(path, &store{path: path})
		return s.(*store)
	}
	drivertest.RunLocks(t, drivertest.Harness{
		Open:  func(t drivertest.T) driver.Driver { return of(t).client(t) },
		Pause: func(t drivertest.T) func() { return of(t).pause() },
		TTL:   4 * time.Second, // a busy machine can renew its leases in time
	})
}

// reopen drops the connection; the next request opens it again.
func (d *Driver) reopen() {
	_ = d.worker.do(context.Background(), false, func(sqlqueue.DB) ([]sqlqueue.Push, error) {
		err := d.worker.conn.close()
		d.worker.conn = nil
		d.reportGap()
		return nil, err
	})
}
