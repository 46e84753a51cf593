package sqlitelock

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// hand lets a ticket of b wait behind one of a, and releases the ticket of a.
func hand(t *testing.T, a, b *Driver, number string) (waiting *driver.Ticket) {
	t.Helper()
	ctx := context.Background()
	first, second := mutex("a:"+number, "n"), mutex("b:"+number, "n")
	if p, err := a.Join(ctx, first, true); err != nil || p.State != driver.Held {
		t.Fatal(p, err)
	}
	if p, err := b.Join(ctx, second, true); err != nil || p.State != driver.Waiting {
		t.Fatal(p, err)
	}
	if _, err := a.Leave(ctx, held(first)); err != nil {
		t.Fatal(err)
	}
	return second
}

func leave(t *testing.T, d *Driver, ticket *driver.Ticket) {
	t.Helper()
	if ps, err := d.Leave(context.Background(), held(ticket)); err != nil || ps[0].State != driver.Held {
		t.Fatal(ps, err)
	}
}

// TestMailboxIsRestored removes the clients' files, or their folder. The files
// are created again, the client is notified of a gap, and pushes flow again.
// The same is true without file notifications.
func TestMailboxIsRestored(t *testing.T) {
	for name, o := range map[string]*Options{"notified": nil, "looking": {noNotify: true}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "locks.db")
			a, b := openAt(t, path, nil), openAt(t, path, o)
			told := watched(t, b)
			for i, number := range []string{"1", "2", "3"} {
				second := hand(t, a, b, number)
				until(t, "told", func() bool { all, _ := told.all(); return len(all) == i+1 })
				leave(t, b, second)
				_, before := told.all()
				if i == 1 {
					_ = os.RemoveAll(b.beside.folder()) // the folder may not be empty any more
				} else if err := os.Remove(filepath.Join(b.beside.folder(), b.address())); err != nil {
					t.Fatal(err)
				}
				until(t, "a gap is told", func() bool { _, gaps := told.all(); return gaps > before })
				// The file may have been removed once more.
				until(t, "the file is there", func() bool { _, err := os.Stat(b.watch.Load().path); return err == nil })
			}
			if all, _ := told.all(); !slices.Equal(all, []string{"b:1 held", "b:2 held", "b:3 held"}) {
				t.Errorf("told %q", all)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(b.beside.folder()); !os.IsNotExist(err) {
				t.Errorf("the folder is left behind: %v", err)
			}
		})
	}
}

// TestMailboxContent checks that each line of the file is reported, in whatever
// pieces it was written. A line that cannot be parsed is a gap, and so is an
// overflow of the kernel's queue.
func TestMailboxContent(t *testing.T) {
	d := openAt(t, filepath.Join(t.TempDir(), "locks.db"), nil)
	told := watched(t, d)
	w := d.watch.Load()
	write := func(s string) {
		t.Helper()
		f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(gaps int, want ...string) {
		t.Helper()
		until(t, strings.Join(want, ", "), func() bool {
			all, n := told.all()
			return slices.Equal(all, want) && n == gaps
		})
	}
	write("h 7 x:1\ng x:2\nh 8 x")
	expect(0, "x:1 held", "x:2 gone")
	write(":3\n")
	expect(0, "x:1 held", "x:2 gone", "x:3 held")
	write("?\nh 0 x:4\nh x:5\n\n")
	expect(4, "x:1 held", "x:2 gone", "x:3 held")
	w.notifier.Errors <- fsnotify.ErrEventOverflow
	expect(5, "x:1 held", "x:2 gone", "x:3 held")
	write(strings.Repeat("x", 10000)) // longer than any valid line
	until(t, "a gap is told", func() bool { _, n := told.all(); return n > 5 })
	write("\n")
	// A long file is emptied.
	write(strings.Repeat("h 9 y:1\n", mailboxMax/8+1))
	until(t, "the file is emptied", func() bool {
		info, err := os.Stat(w.path)
		return err == nil && info.Size() == 0
	})
	write("g z:1\n")
	until(t, "told", func() bool { all, _ := told.all(); return slices.Contains(all, "z:1 gone") })
}

// TestDeadMailboxesAreRemoved checks that a killed client's file is removed by
// the next client, and that the files of live clients and foreign files remain.
func TestDeadMailboxesAreRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	c := spawn(t, nil, "turns", "sqlite:"+path, "1")
	c.expect("ready")
	a := openAt(t, path, nil)
	watched(t, a)
	list := func() (names []string) {
		entries, err := os.ReadDir(a.beside.folder())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if names := list(); len(names) != 2 {
		t.Errorf("two clients have %q", names)
	}
	c.kill()
	if err := os.WriteFile(filepath.Join(a.beside.folder(), "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := openAt(t, path, nil)
	watched(t, b)
	want := []string{"README", a.address(), b.address()}
	slices.Sort(want)
	if names := list(); !slices.Equal(names, want) {
		t.Errorf("there are %q, want %q", names, want)
	}
}

// TestAddressStaysInFolder checks that an address from the database cannot lead
// to any other file.
func TestAddressStaysInFolder(t *testing.T) {
	dir := t.TempDir()
	d := openAt(t, filepath.Join(dir, "locks.db"), nil)
	watched(t, d)
	victim := filepath.Join(dir, strings.Repeat("a", addressLen))
	if err := os.WriteFile(victim, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := strings.Repeat("b", addressLen)
	if err := os.Symlink(victim, filepath.Join(d.beside.folder(), link)); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{
		"", ".", "..", "../" + strings.Repeat("a", addressLen-3), "../" + strings.Repeat("a", addressLen),
		strings.Repeat("/", addressLen), strings.Repeat("A", addressLen), strings.Repeat("a", addressLen+1),
		"a\x00" + strings.Repeat("a", addressLen-2), link, strings.Repeat("c", addressLen),
	} {
		if hex := address == link || address == strings.Repeat("c", addressLen); isAddress(address) != hex {
			t.Errorf("%q is an address: %v", address, !hex)
		}
		d.deliver([]sqlqueue.Push{{Wake: address, ID: "x:1", Status: driver.Status{State: driver.Gone}}})
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "mine" {
		t.Errorf("the file now has %q, %v", b, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if n := e.Name(); !strings.HasPrefix(n, "locks.db") && n != filepath.Base(victim) {
			t.Errorf("there is %s", n)
		}
	}
}

// TestWatchOnce checks that Watch without a usable folder is an error and can
// be tried again, that a second watcher is refused, and that pushes end with
// the context.
func TestWatchOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	a, b := openAt(t, path, nil), openAt(t, path, nil)
	if err := os.WriteFile(b.beside.folder(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	never := func(id string, p driver.Status) { t.Errorf("told %s, %+v", id, p) }
	if err := b.Watch(ctx, never); driver.ClassOf(err) != driver.Unavailable {
		t.Errorf("Watch: %v", err)
	}
	if err := os.Remove(b.beside.folder()); err != nil {
		t.Fatal(err)
	}
	if err := b.Watch(ctx, never); err != nil {
		t.Fatal(err)
	}
	if err := b.Watch(ctx, never); driver.ClassOf(err) != driver.Refused {
		t.Errorf("second Watch: %v", err)
	}
	w := b.watch.Load()
	cancel()
	<-w.ended
	leave(t, b, hand(t, a, b, "1"))
}

func TestDecodePush(t *testing.T) {
	for _, line := range []string{"", "h", "h 1", "h 1 ", "h -1 x", "h 01 x", "h 9223372036854775808 x", "h 1  x", "h 1 x y", "g", "g ", "g x y", "x 1 x", "?"} {
		if id, p, ok := decodePush(line); ok || id != "" || p.State != 0 {
			t.Errorf("%q is %q, %+v, %v", line, id, p, ok)
		}
	}
}

// FuzzDecodePush checks that every line is either a gap or exactly what
// encodePush writes.
func FuzzDecodePush(f *testing.F) {
	f.Add("h 12 0192f5c4-5b1c-7cc1-8a67-1f0b8b1b3b1b:7")
	f.Add("g a:1")
	f.Add("?")
	f.Fuzz(func(t *testing.T, line string) {
		id, p, ok := decodePush(line)
		if ok && string(encodePush(id, p)) != line+"\n" {
			t.Fatalf("%q is read as %q, %+v", line, id, p)
		}
		if !ok && (id != "" || p != driver.Status{}) {
			t.Fatalf("%q is not understood, but gives %q, %+v", line, id, p)
		}
		// In the other direction: an encoded id is decoded again, or is a gap.
		for _, p := range []driver.Status{{State: driver.Gone}, {State: driver.Held, Token: 5}} {
			text := strings.TrimSuffix(string(encodePush(line, p)), "\n")
			if got, q, ok := decodePush(text); ok && (got != line || q != p) || !ok && text != "?" {
				t.Fatalf("%q is sent as %q and comes back as %q, %+v", line, text, got, q)
			}
		}
	})
}
