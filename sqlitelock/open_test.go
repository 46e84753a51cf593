package sqlitelock

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// refused checks that Open fails on path with class and words, and leaves the
// file unchanged.
func refused(t *testing.T, path string, class driver.Class, words ...string) {
	t.Helper()
	before, _ := os.ReadFile(path)
	d, err := Open(context.Background(), path, nil)
	if err == nil {
		_ = d.Close()
		t.Errorf("%s was opened", path)
		return
	}
	if c := driver.ClassOf(err); c != class {
		t.Errorf("the class of %q is %v, want %v", err, c, class)
	}
	for _, w := range append(words, filepath.Base(path)) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	if strings.ContainsRune(err.Error(), '\n') {
		t.Errorf("%q is more than one line", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Errorf("%s was changed", path)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := filepath.Join(dir, "foreign.db")
	db := raw(t, foreign)
	run(t, db, "CREATE TABLE users (id INTEGER)")
	marked := filepath.Join(dir, "marked.db")
	run(t, raw(t, marked), "PRAGMA application_id = 77")
	later := filepath.Join(dir, "later.db")
	_ = openAt(t, later, nil).Close()
	run(t, raw(t, later), "PRAGMA user_version = 2")
	broken := filepath.Join(dir, "broken.db")
	_ = openAt(t, broken, nil).Close()
	b, err := os.ReadFile(broken)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < len(b); i++ {
		b[i] = 0xa5
	}
	file("broken.db", string(b))
	if err := os.Mkdir(filepath.Join(dir, "folder.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop.db", filepath.Join(dir, "loop.db")); err != nil {
		t.Fatal(err)
	}

	refused(t, filepath.Join(dir, "folder.db"), driver.Refused, "is a directory")
	refused(t, filepath.Join(dir, "loop.db"), driver.Refused)
	refused(t, filepath.Join(dir, "no", "such", "x.db"), driver.Refused, "does not exist")
	refused(t, file("short.txt", "hello"), driver.Refused, "not an SQLite database")
	refused(t, file("long.txt", strings.Repeat("hello, world\n", 10000)), driver.Refused, "not an SQLite database")
	refused(t, foreign, driver.Refused, "another program")
	refused(t, marked, driver.Refused, "another program")
	refused(t, later, driver.Refused, "later version", "layout is 2", "upgrade this program first")
	refused(t, broken, driver.Refused, "damaged")

	// A pipe has no content to compare.
	if _, err := Open(context.Background(), filepath.Join(dir, "pipe.db"), nil); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("pipe: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("changed my mind"))
	if _, err := Open(ctx, filepath.Join(dir, "x.db"), nil); err == nil || !strings.Contains(err.Error(), "changed my mind") {
		t.Errorf("ended context: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "x.db")); err == nil {
		t.Errorf("a file was made after the context had ended")
	}
}

// TestOpenWithoutRights opens files as an ordinary user who may not write to
// the file, or to the folder.
func TestOpenWithoutRights(t *testing.T) {
	base := reachable(t)
	asNobody := func(cmd *exec.Cmd) {}
	if os.Geteuid() == 0 {
		asNobody = as(base, nobody, nobody) // root may do everything
	}
	for name, c := range map[string]struct {
		dir, file fs.FileMode
		words     string
	}{
		"read-only file":     {0o777, 0o444, "may not"},
		"unreadable file":    {0o777, 0o000, "may not"},
		"read-only folder":   {0o555, 0o666, "may not"},
		"no file, no folder": {0o555, 0, "permission denied"},
	} {
		dir := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "locks.db")
		if !strings.HasPrefix(name, "no file") {
			_ = openAt(t, path, nil).Close()
			if err := os.Chmod(path, c.file); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range []string{base, dir} {
			mode := c.dir
			if p == base {
				mode = 0o755
			}
			if err := os.Chmod(p, mode); err != nil {
				t.Fatal(err)
			}
		}
		child := spawn(t, asNobody, "open", path)
		child.expect("ready")
		child.say("go")
		if s := child.line(); !strings.HasPrefix(s, "error: ") || !strings.Contains(s, c.words) || !strings.Contains(s, "locks.db") {
			t.Errorf("%s: the child says %q", name, s)
		}
		child.kill()
		_ = os.Chmod(dir, 0o700)
	}
}

func TestModesOfFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state", "holdfast", "locks.db")
	if _, err := Open(context.Background(), path, nil); err == nil {
		t.Fatal("a folder was made without being asked for")
	}
	d := openAt(t, path, &Options{CreateDir: true})
	watched(t, d)
	for name, want := range map[string]fs.FileMode{
		filepath.Dir(filepath.Dir(path)):         0o700 | fs.ModeDir,
		filepath.Dir(path):                       0o700 | fs.ModeDir,
		path:                                     0o600,
		path + "-wal":                            0o600,
		path + "-shm":                            0o600,
		path + "-wake":                           0o700 | fs.ModeDir,
		filepath.Join(path+"-wake", d.address()): 0o600,
	} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	// A user with access to the file has access to the folder.
	if err := os.Chmod(path, 0o660); err != nil {
		t.Fatal(err)
	}
	if dirMode, mode := d.beside.modes(); dirMode != 0o770 || mode != 0o660 {
		t.Errorf("modes are %v and %v", dirMode, mode)
	}
}

func TestIdentityOfFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "locks.db")
	identity := func(path string) string {
		t.Helper()
		id, err := openAt(t, path, nil).Identity(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one := identity(path)
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if id := identity(link); id != one {
		t.Errorf("through a link it is %q, else %q", id, one)
	}
	t.Chdir(dir)
	if id := identity("./locks.db"); id != one {
		t.Errorf("from its folder it is %q, else %q", id, one)
	}
	if id := identity(filepath.Join(dir, "other.db")); id == one {
		t.Errorf("two files are %q", id)
	}
}

// TestOddPaths uses file names that have a meaning for SQLite or in URLs.
func TestOddPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a b.db", "file:x.db", "x.db?mode=memory", "50%.db", "ü#.db", "%2e", "-x", "new\nline"} {
		d := openAt(t, filepath.Join(dir, name), nil)
		if p, err := d.Join(context.Background(), mutex("a:1", "n"), true); err != nil || p.State != driver.Held {
			t.Errorf("%q: %+v, %v", name, p, err)
		}
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%q: %v", name, err)
		}
	}
}

var update = flag.Bool("update", false, "write testdata anew")

// TestSchema compares the tables with testdata. A change needs another layout
// version, and a way from the old one.
//
// Covers: F66.
func TestSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	_ = openAt(t, path, nil).Close()
	db := raw(t, path)
	rows, err := db.Query("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all strings.Builder
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all.WriteString(s + ";\n")
	}
	for _, pragma := range []string{"application_id", "user_version", "journal_mode"} {
		var v string
		if err := db.QueryRow("PRAGMA " + pragma).Scan(&v); err != nil {
			t.Fatal(err)
		}
		all.WriteString("PRAGMA " + pragma + " = " + v + ";\n")
	}
	golden := filepath.Join("testdata", "layout1.sql")
	if *update {
		if err := os.WriteFile(golden, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if all.String() != string(want) {
		t.Errorf("the tables are\n%s\nwant\n%s", all.String(), want)
	}
}
