package sqlitelock

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// elsewhere returns the ways to see the file that differ from those of its
// other users.
func (s *store) elsewhere(dir string) []drivertest.Elsewhere {
	boot := func(id string) func(drivertest.T) (driver.Driver, error) {
		return func(drivertest.T) (driver.Driver, error) {
			c := s.clock()
			c.id = func() (string, error) { return id, nil }
			return openAs(s.path, c)
		}
	}
	link := filepath.Join(dir, "link.db")
	second := filepath.Join(dir, "mounted", "locks.db")
	return []drivertest.Elsewhere{
		{How: "with another boot id", Open: boot("another time:[1]")},
		{How: "from another time namespace", Open: func(t drivertest.T) (driver.Driver, error) {
			id, err := bootID()
			if err != nil {
				t.Fatalf("%v", err)
			}
			kernel, _, _ := strings.Cut(id, " ")
			return boot(kernel + " time:[1]")(t)
		}},
		{How: "by a symbolic link", Open: func(t drivertest.T) (driver.Driver, error) {
			name := filepath.Join(dir, "symbolic.db")
			must(t, os.Symlink(s.path, name))
			return openAs(name, s.clock())
		}},
		{How: "by a hard link", Open: func(t drivertest.T) (driver.Driver, error) {
			must(t, os.Link(s.path, link))
			defer func() { must(t, os.Remove(link)) }()
			if d, err := openAs(s.path, s.clock()); err == nil {
				_ = d.Close()
				t.Errorf("a file with two names was opened by its first one")
			}
			return openAs(link, s.clock())
		}},
		{How: "by a mount of the file", Open: func(t drivertest.T) (driver.Driver, error) {
			must(t, os.MkdirAll(filepath.Dir(second), 0o700))
			must(t, os.WriteFile(second, nil, 0o600))
			unmount := bind(t, s.path, second)
			t.Cleanup(unmount)
			return openAs(second, s.clock())
		}},
		{How: "by a mount of its folder", Open: func(t drivertest.T) (driver.Driver, error) {
			folder := filepath.Join(dir, "folder")
			must(t, os.MkdirAll(folder, 0o700))
			unmount := bind(t, filepath.Dir(s.path), folder)
			t.Cleanup(unmount)
			return openAs(filepath.Join(folder, filepath.Base(s.path)), s.clock())
		}},
	}
}

func must(t drivertest.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// openAs opens a file. With an error, the interface is nil.
func openAs(path string, c clock) (driver.Driver, error) {
	d, err := open(context.Background(), path, nil, c)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// started returns a clock with another boot id and the given time since the
// machine started.
func started(id string, up time.Duration, wall time.Time) clock {
	return clock{
		boot: func() (time.Duration, error) { return up, nil },
		id:   func() (string, error) { return id, nil },
		wall: func() time.Time { return wall },
	}
}

// TestF127_RestartVoidsHolds restarts the machine: earlier holders are dead,
// and tokens go on.
//
// Covers: F17.
func TestF127_RestartVoidsHolds(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "locks.db")
	now := time.Now()
	d, err := open(ctx, path, nil, started("first ns:1", 1000*time.Hour, now))
	must(t, err)
	holder, reader, waiter, buried := mutex("a:1", "n"), mutex("a:2", "n"), mutex("a:3", "n"), mutex("a:4", "n")
	for _, t := range []*driver.Ticket{holder, reader, waiter} {
		t.Limit = 2
	}
	waiter.Units = 2
	var token uint64
	for _, tk := range []*driver.Ticket{holder, reader, waiter} {
		p, err := d.Join(ctx, tk, true)
		must(t, err)
		token = max(token, p.Token)
	}
	_, err = d.Leave(ctx, []driver.Ref{{Ticket: buried, JoinPending: true}})
	must(t, err)
	must(t, d.Close())

	d, err = open(ctx, path, nil, started("first ns:1", 1000*time.Hour+time.Second, now))
	must(t, err)
	if queue, err := d.Inspect(ctx, "n"); err != nil || len(queue.Tickets) != 3 {
		t.Errorf("before the restart, the queue is %+v, %v", queue, err)
	}
	must(t, d.Close())

	// The clock since the start is far behind, and the wall clock is wrong.
	d, err = open(ctx, path, nil, started("second ns:1", time.Minute, time.Unix(0, 0)))
	must(t, err)
	defer func() { must(t, d.Close()) }()
	if queue, err := d.Inspect(ctx, "n"); err != nil || len(queue.Tickets) != 0 || queue.Token != token {
		t.Errorf("after the restart, the queue is %+v, %v", queue, err)
	}
	next := mutex("b:1", "n")
	if p, err := d.Join(ctx, next, true); err != nil || p.State != driver.Held || p.Token <= token {
		t.Errorf("after token %d: %+v, %v", token, p, err)
	}
}

// TestF127_AnotherBootIDIsRefusedWhileInUse checks that another boot id does
// not count as a restart while a driver with the earlier one has the file open,
// and that no holds are voided.
func TestF127_AnotherBootIDIsRefusedWhileInUse(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "locks.db")
	now := time.Now()
	host, inside := started("host ns:1", time.Hour, now), started("container ns:1", time.Hour, now)
	first, err := open(ctx, path, nil, host)
	must(t, err)
	second, err := open(ctx, path, nil, host)
	must(t, err)
	p, err := first.Join(ctx, mutex("a:1", "n"), true)
	must(t, err)
	refuse := func(c clock, words string) {
		t.Helper()
		d, err := open(ctx, path, nil, c)
		if err == nil {
			_ = d.Close()
			t.Fatal("opened")
		}
		if driver.ClassOf(err) != driver.Refused || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: %v", driver.ClassOf(err), err)
		}
	}
	refuse(inside, "processes with another boot id")
	refuse(started("host ns:2", time.Hour, now), "another time namespace")
	first.reopen() // a closed connection alone does not end the use
	must(t, second.Close())
	refuse(inside, "processes with another boot id")

	// The file by which drivers know of each other is removed: they create it
	// again.
	must(t, os.Remove(first.beside.usersPath()))
	if queue, err := first.Inspect(ctx, "n"); err != nil || len(queue.Tickets) != 1 {
		t.Errorf("the queue is %+v, %v", queue, err)
	}
	refuse(inside, "processes with another boot id")

	// An older file of an earlier start replaces this one. The drivers that use
	// it agree on the start, so its contents do not count.
	older := filepath.Join(t.TempDir(), "older.db")
	old, err := open(ctx, older, nil, started("earlier ns:1", time.Hour, now))
	must(t, err)
	_, err = old.Join(ctx, mutex("z:1", "n"), true)
	must(t, err)
	must(t, old.Close())
	second, err = open(ctx, path, nil, host)
	must(t, err)
	remove(t, path)
	must(t, os.Rename(older, path))
	for _, d := range []*Driver{first, second} {
		if queue, err := d.Inspect(ctx, "n"); err != nil || len(queue.Tickets) != 0 {
			t.Errorf("the queue is %+v, %v", queue, err)
		}
	}
	must(t, first.Close())
	refuse(inside, "processes with another boot id")
	must(t, second.Close())

	d, err := open(ctx, path, nil, inside)
	must(t, err)
	next, err := d.Join(ctx, mutex("b:1", "n"), true)
	if err != nil || next.State != driver.Held || next.Token <= p.Token {
		t.Errorf("when all have gone: %+v, %v", next, err)
	}
	refuse(host, "processes with another boot id")
	must(t, d.Close())
}

// TestF127_SameBootIDBlocksForOneTTL restarts the machine with the same boot
// id, as boards without a random seed do. The dead holders block for one TTL,
// not for as long as the machine had been up.
func TestF127_SameBootIDBlocksForOneTTL(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "locks.db")
	now := time.Now()
	d, err := open(ctx, path, nil, started("same ns:1", 240*time.Hour, now))
	must(t, err)
	dead := mutex("a:1", "n")
	dead.TTL = 30 * time.Second
	_, err = d.Join(ctx, dead, true)
	must(t, err)
	must(t, d.Close())
	keep := driver.Keep(dead.TTL)
	for at, want := range []driver.State{driver.Waiting, driver.Waiting, driver.Held} {
		up := time.Minute + []time.Duration{0, keep - time.Second, keep}[at]
		d, err := open(ctx, path, nil, started("same ns:1", up, now))
		must(t, err)
		if p, err := d.Join(ctx, mutex("b:1", "n"), true); err != nil || p.State != want || p.Recheck > keep {
			t.Errorf("up for %v: %+v, %v; want %v", up, p, err, want)
		}
		must(t, d.Close())
	}
}

// TestF128_TwoNamesAreRefused checks the errors for a file with two names and
// for a mounted file.
func TestF128_TwoNamesAreRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "locks.db")
	must(t, openAt(t, path, nil).Close())
	link := filepath.Join(dir, "link.db")
	must(t, os.Link(path, link))
	refused(t, path, driver.Refused, "2 names (hard links)", "remove all but one")
	refused(t, link, driver.Refused, "2 names (hard links)")
	must(t, os.Remove(link))
	must(t, openAt(t, path, nil).Close())

	mounted := filepath.Join(dir, "mounted.db")
	must(t, os.WriteFile(mounted, nil, 0o600))
	unmount := bind(t, path, mounted)
	defer unmount()
	refused(t, mounted, driver.Refused, "is a mount point", "mount the file's folder")
	must(t, openAt(t, path, nil).Close())
}
