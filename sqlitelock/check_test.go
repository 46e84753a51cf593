package sqlitelock

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// findings returns the findings of Check, by topic.
func findings(t *testing.T, d *Driver) map[string]driver.Finding {
	t.Helper()
	fs, err := d.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string]driver.Finding)
	for _, f := range fs {
		if f.Detail == "" || (f.Level == driver.OK) != (f.Advice == "") {
			t.Errorf("%+v", f)
		}
		by[f.Topic] = f
	}
	return by
}

func TestCheckFindings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	before, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	good := findings(t, d)
	for _, topic := range []string{"file system", "rights", "journal", "durability", "integrity", "clock", "wake-up", "size", "round trip", "free space"} {
		f, ok := good[topic]
		// The speed of the disk and its free space do not matter here.
		if !ok || f.Level != driver.OK && topic != "round trip" && topic != "free space" {
			t.Errorf("%s: %+v", topic, f)
		}
	}
	if after, err := os.ReadDir(filepath.Dir(path)); err != nil || len(after) != len(before) {
		t.Errorf("there were %v, and are %v", before, after)
	}
	if names := linesOf(t, d); len(names) != 0 {
		t.Errorf("it left %q behind", names)
	}

	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if f := findings(t, d)["rights"]; f.Level != driver.Warning || !strings.Contains(f.Advice, "chmod") {
		t.Errorf("%+v", f)
	}
	if f := findings(t, openAt(t, path, &Options{Sync: SyncNormal}))["durability"]; f.Level != driver.Warning {
		t.Errorf("%+v", f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.Check(ctx); driver.ClassOf(err) != driver.NotDone {
		t.Errorf("Check: %v", err)
	}
}

// TestJournalMode changes the journal mode while no process has the file open.
// The next driver that opens the file returns it to WAL mode.
func TestJournalMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	_ = openAt(t, path, nil).Close()
	run(t, raw(t, path), "PRAGMA journal_mode = DELETE")
	if f := findings(t, openAt(t, path, nil))["journal"]; f.Level != driver.OK || f.Detail != "mode wal" {
		t.Errorf("%+v", f)
	}
}

func linesOf(t *testing.T, d *Driver) (names []string) {
	t.Helper()
	for name, err := range d.Names(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestF104_SharedFileSystem checks that a file system which other machines may
// reach is refused, unless the user allows it; Check then reports it.
func TestF104_SharedFileSystem(t *testing.T) {
	shared := fileSystem{name: "nfs", shared: true}
	var o Options
	if err := o.accept("/mnt/x.db", shared); err == nil || !strings.Contains(err.Error(), "nfs") || !strings.Contains(err.Error(), "/mnt/x.db") {
		t.Errorf("%v", err)
	}
	o.AnyFileSystem = true
	if err := o.accept("/mnt/x.db", shared); err != nil {
		t.Error(err)
	}
	o.AnyFileSystem = false
	if err := o.accept("/mnt/x.db", fileSystem{name: "ext4"}); err != nil {
		t.Error(err)
	}
	where, err := fileSystemOf(t.TempDir())
	if err != nil || where.shared || where.name == "" || where.free == 0 {
		t.Errorf("%+v, %v", where, err)
	}
	if _, err := fileSystemOf("/no/such/directory"); err == nil {
		t.Error("a directory that does not exist has a file system")
	}
}
