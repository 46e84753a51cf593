package sqlitelock

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
)

// nextLayout is a change of the tables as a later version may have one.
var nextLayout = [][]string{{
	"ALTER TABLE {line} ADD COLUMN note <int> NOT NULL DEFAULT 7",
	"CREATE INDEX {line}_note ON {line} (note)",
}}

// Clients of the next layout change the tables while one of this layout holds
// and one waits; both go on as before.
func TestNextLayout(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "locks.db")
	old := openAt(t, path, nil)
	told := watched(t, old)
	join := func(d *Driver, tk *driver.Ticket, want driver.State) driver.Place {
		t.Helper()
		p, err := d.Join(ctx, tk, true)
		if err != nil || p.State != want {
			t.Fatalf("Join of %s: %+v, %v; want %v", tk.ID, p, err, want)
		}
		return p
	}
	a, b, c := mutex("a:1", "n"), mutex("b:1", "n"), mutex("c:1", "n")
	was := join(old, a, driver.Held)
	join(old, b, driver.Waiting)

	errs := make(chan error)
	nexts := make([]*Driver, 2)
	for i := range nexts {
		go func() {
			var err error
			nexts[i], err = Open(ctx, path, &Options{later: &nextLayout})
			errs <- err
		}()
	}
	for range nexts {
		if err := <-errs; err != nil {
			t.Fatalf("Open with the next layout: %v", err)
		}
	}
	for _, d := range nexts {
		t.Cleanup(func() { _ = d.Close() })
	}
	next := nexts[0]
	var layout, version, noted int64
	err := raw(t, path).QueryRow(`SELECT (SELECT layout FROM holdfast_store), (SELECT user_version FROM pragma_user_version),
		(SELECT count(*) FROM holdfast_line INDEXED BY holdfast_line_note WHERE note = 7)`).Scan(&layout, &version, &noted)
	if want := old.lines.Layout() + 1; err != nil || layout != want || version != want || noted != 1 {
		t.Errorf("layout %d, user_version %d, %d lines with the new column, %v; want %d", layout, version, noted, err, want)
	}
	line, err := next.Inspect(ctx, "n")
	if err != nil || len(line.Tickets) != 2 || line.Tickets[0].ID != a.ID || line.Tickets[0].Token != was.Token || line.Tickets[1].ID != b.ID {
		t.Fatalf("after the change: %+v, %v", line, err)
	}

	join(next, c, driver.Waiting)
	if p, err := old.Renew(ctx, held(a)); err != nil || p[0].State != driver.Held || p[0].Token != was.Token {
		t.Errorf("Renew: %+v, %v; want token %d", p, err, was.Token)
	}
	if p, err := old.Leave(ctx, held(a)); err != nil || p[0].State != driver.Held {
		t.Errorf("Leave: %+v, %v", p, err)
	}
	until(t, "the waiter is told", func() bool { ids, _ := told.all(); return len(ids) == 1 && ids[0] == b.ID+" held" })
	granted := join(old, b, driver.Held)
	if granted.Token <= was.Token {
		t.Errorf("token %d after %d", granted.Token, was.Token)
	}
	if p, err := old.Leave(ctx, held(b)); err != nil || p[0].State != driver.Held {
		t.Errorf("Leave: %+v, %v", p, err)
	}
	if p := join(next, c, driver.Held); p.Token <= granted.Token {
		t.Errorf("token %d after %d", p.Token, granted.Token)
	}
	join(old, mutex("d:1", "other"), driver.Held) // a row that it makes has the column's default

	refused(t, path, driver.Refused, fmt.Sprintf("a later version of Holdfast wrote the file: its layout is %d, this version knows %d", layout, layout-1))
}
