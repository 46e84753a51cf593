package sqlitelock

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

func number(t *testing.T, db *sql.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// TestTextIsData checks that names and all other texts are stored as data,
// whatever they contain.
func TestTextIsData(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	ctx := context.Background()
	texts := []string{
		"'; DROP TABLE holdfast_line; --", `"`, "`", "''", "\\", "%", "_", "*", "?", "?1", "$1", ":now", "{now}", "a\x00b", "a", "A", "a ", " a",
		"\u00e9", "e\u0301", "\U0001f512", "\n", "..", "a/b", strings.Repeat("n", driver.MaxName), "1", "1.0", "0x1",
	}
	var want []string
	for i, text := range texts {
		tk := &driver.Ticket{ID: fmt.Sprint(text, ":", i), Owner: "owner " + text, Name: text, Units: 1, Limit: 1, TTL: time.Minute, Meta: text}
		if len(tk.ID) > 1000 {
			tk.ID = fmt.Sprint("long:", i)
		}
		if p, err := d.Join(ctx, tk, true); err != nil || p.State != driver.Held {
			t.Fatalf("%q: %+v, %v", text, p, err)
		}
		second := *tk
		second.ID, second.Owner = fmt.Sprint("second:", i), ""
		if p, err := d.Join(ctx, &second, true); err != nil || p.State != driver.Waiting || p.Holder != text {
			t.Fatalf("%q: %+v, %v", text, p, err)
		}
		queue, err := d.Inspect(ctx, text)
		if err != nil || len(queue.Tickets) != 2 || queue.Name != text {
			t.Fatalf("%q: %+v, %v", text, queue, err)
		}
		if e := queue.Tickets[0]; e.ID != tk.ID || e.Owner != tk.Owner || e.Meta != text {
			t.Errorf("%q: %+v", text, e)
		}
		want = append(want, text)
	}
	var names []string
	for name, err := range d.Names(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("names are %q, want %q", names, want)
	}
	for name := range d.Names(ctx, "%") {
		if name != "%" {
			t.Errorf("%q begins with %%", name)
		}
	}
}

// TestSweepRemovesIdleQueues checks that sweeps remove the rows of idle queues,
// tickets that are no longer renewed, and tombstones. Tokens go on all the
// same, even if the clock was set back.
func TestSweepRemovesIdleQueues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	s := &store{path: path}
	d := s.client(t).(*Driver)
	defer func() { _ = d.Close() }()
	ctx := context.Background()
	db := raw(t, path)
	join := func(name string) driver.Status {
		t.Helper()
		tk := mutex("a:"+name, name)
		p, err := d.Join(ctx, tk, true)
		if err != nil || p.State != driver.Held {
			t.Fatal(p, err)
		}
		return p
	}
	const n = 150
	last := make(map[string]uint64)
	for i := range n {
		name := fmt.Sprint("left ", i)
		last[name] = join(name).Token
		if _, err := d.Leave(ctx, []driver.Ref{{Ticket: mutex("a:"+name, name), State: driver.Held, JoinPending: i%3 == 0}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 { // never renewed
		name := fmt.Sprint("dead ", i)
		join(name)
		if p, err := d.Join(ctx, mutex("b:"+name, name), true); err != nil || p.State != driver.Waiting {
			t.Fatal(p, err)
		}
	}
	if graves := number(t, db, "SELECT count(*) FROM holdfast_grave"); graves != n/3 {
		t.Errorf("%d tombstones, want %d", graves, n/3)
	}
	s.step.Add(int64(2 * time.Minute))
	// Joins hurry the sweeps.
	for i := range n + 40 {
		name := fmt.Sprint("busy ", i%4)
		join(name)
		leave(t, d, mutex("a:"+name, name))
	}
	for _, left := range []struct {
		rows string
		most int64
	}{
		{"holdfast_line", 4 + 10},
		{"holdfast_ticket", 0},
		{"holdfast_grave WHERE id LIKE 'a:left%'", 0},
	} {
		until(t, "swept: "+left.rows, func() bool { return number(t, db, "SELECT count(*) FROM "+left.rows) <= left.most })
	}
	s.step.Add(int64(-365 * 24 * time.Hour))
	for name, token := range last {
		if p := join(name); p.Token <= token {
			t.Fatalf("%s: token %d after %d", name, p.Token, token)
		}
	}
}

// TestNamesOmitExpiredTickets checks that Names and the sweep do not count dead
// tickets.
func TestNamesOmitExpiredTickets(t *testing.T) {
	s := &store{path: filepath.Join(t.TempDir(), "locks.db")}
	d := s.client(t).(*Driver)
	defer func() { _ = d.Close() }()
	ctx := context.Background()
	for _, name := range []string{"alive", "dead", "half dead"} {
		tk := mutex("a:"+name, name)
		if name != "alive" {
			tk.TTL = time.Second
		}
		if _, err := d.Join(ctx, tk, true); err != nil {
			t.Fatal(err)
		}
		if name == "half dead" {
			if _, err := d.Join(ctx, mutex("b:1", name), true); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.step.Add(int64(5 * time.Second))
	var names []string
	for name, err := range d.Names(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"alive", "half dead"}) {
		t.Errorf("names are %q", names)
	}
}

// TestManyNames checks that Names yields each queue once when there are more
// than a page of them.
func TestManyNames(t *testing.T) {
	d := openAt(t, filepath.Join(t.TempDir(), "locks.db"), &Options{Sync: SyncNormal})
	const n = 600
	for i := range n {
		if _, err := d.Join(context.Background(), mutex(fmt.Sprint("a:", i), fmt.Sprint("n", i)), true); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[string]int)
	for name, err := range d.Names(context.Background(), "n") {
		if err != nil {
			t.Fatal(err)
		}
		seen[name]++
	}
	for i := range n {
		if c := seen[fmt.Sprint("n", i)]; c != 1 {
			t.Errorf("queue %d is named %d times", i, c)
		}
	}
}

// TestF67_LastToken checks the grant of the last possible token.
func TestF67_LastToken(t *testing.T) {
	d := openAt(t, filepath.Join(t.TempDir(), "locks.db"), nil)
	ctx := context.Background()
	first := mutex("a:1", "n")
	first.MinToken = math.MaxInt64 - 1
	if p, err := d.Join(ctx, first, true); err != nil || p.Token != math.MaxInt64-1 {
		t.Fatal(p, err)
	}
	second := mutex("a:2", "n")
	if p, err := d.Join(ctx, second, true); err != nil || p.State != driver.Waiting {
		t.Fatal(p, err)
	}
	leave(t, d, first)
	if ps, err := d.Renew(ctx, held(second)); err != nil || ps[0].Token != math.MaxInt64 {
		t.Fatal(ps, err)
	}
	leave(t, d, second)
	for i, floor := range []uint64{0, math.MaxInt64, math.MaxUint64} {
		tk := mutex(fmt.Sprint("b:", i), []string{"n", "other", "third"}[i])
		tk.MinToken = floor
		if p, err := d.Join(ctx, tk, true); driver.ClassOf(err) != driver.Refused {
			t.Errorf("%+v, %v", p, err)
		}
	}
}

// TestF37_ForeignRows checks that rows which this version cannot have written
// are errors, and stay unchanged (Join 11).
//
// Covers: F66.
func TestF37_ForeignRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d := openAt(t, path, nil)
	db := raw(t, path)
	ctx := context.Background()
	for i, change := range []string{
		"line SET name = x'00'", "line SET lim = -1", "line SET used = 0", "line SET used = 99", "line SET held = -1",
		"line SET waiting = -3", "line SET seq = 0", "line SET turn = 77", "line SET token = -1", "line SET graves = -9",
		"line SET h_place = 0", "line SET h_place = 50", "line SET h_units = 0", "line SET h_token = 0", "line SET h_keep = 0",
		"ticket SET place = -1", "ticket SET seq = 0", "ticket SET seq = 99", "ticket SET units = 0", "ticket SET token = 4",
		"ticket SET floor = -1", "ticket SET keep = -1",
	} {
		name := fmt.Sprint("n", i)
		first, second, third := mutex(fmt.Sprintf("a%d:1", i), name), mutex(fmt.Sprintf("a%d:2", i), name), mutex(fmt.Sprintf("a%d:3", i), name)
		for _, tk := range []*driver.Ticket{first, second} {
			if _, err := d.Join(ctx, tk, true); err != nil {
				t.Fatal(err)
			}
		}
		column := "k"
		if strings.HasPrefix(change, "ticket") {
			column = "line"
		}
		run(t, db, "UPDATE holdfast_"+change+" WHERE "+column+" = ?", sqlqueue.Key(name))
		dump := func() string {
			var s string
			err := db.QueryRow(`SELECT quote(name) || lim || ' ' || used || held || ' ' || waiting || ' ' || seq || ' ' || turn || ' ' || token || due
				|| ' ' || graves || h_id || h_place || h_units || h_token || h_keep || coalesce((SELECT group_concat(place || ' ' || seq || id
				|| units || token || floor || keep) FROM holdfast_ticket WHERE line = k), '') FROM holdfast_line WHERE k = ?`, sqlqueue.Key(name)).Scan(&s)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		before := dump()
		var errs []error
		_, err := d.Join(ctx, third, true)
		errs = append(errs, err)
		_, err = d.Inspect(ctx, name)
		errs = append(errs, err, d.Break(ctx, name, second.ID))
		refused := false
		for _, err := range errs {
			if driver.ClassOf(err) == driver.Refused && err != driver.ErrNoTicket {
				refused = true
			} else if err != nil && err != driver.ErrNoTicket {
				t.Errorf("%s: %v", change, err)
			}
		}
		if !refused {
			t.Errorf("%s: nobody noticed: %v", change, errs)
		}
		if after := dump(); after != before && errs[0] != nil {
			t.Errorf("%s: the rows were\n%s and are\n%s", change, before, after)
		}
	}
}

// FuzzRows checks that any content of the rows leads to an answer or to an
// error that says what is wrong.
func FuzzRows(f *testing.F) {
	f.Add(0, int64(-1), "", 1)
	f.Add(7, int64(math.MaxInt64), "x", 0)
	f.Add(12, int64(math.MinInt64), "\x00", 2)
	path := filepath.Join(f.TempDir(), "locks.db")
	d, err := Open(context.Background(), path, &Options{Sync: SyncNormal})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = d.Close() })
	columns := []string{
		"line.lim", "line.used", "line.held", "line.waiting", "line.seq", "line.turn", "line.token", "line.due", "line.graves",
		"line.h_units", "line.h_place", "line.h_token", "line.h_keep", "line.h_until", "line.h_id", "line.h_owner", "line.h_wake", "line.h_meta",
		"ticket.place", "ticket.seq", "ticket.units", "ticket.token", "ticket.floor", "ticket.keep", "ticket.until", "ticket.id", "ticket.owner",
	}
	n := 0
	f.Fuzz(func(t *testing.T, column int, value int64, text string, which int) {
		n++
		ctx := context.Background()
		name := fmt.Sprint("n", n)
		ts := []*driver.Ticket{mutex("a:1", name), mutex("a:2", name), mutex("a:3", name)}
		ts[1].Owner, ts[2].Owner = "o", "o"
		for _, tk := range ts {
			if _, err := d.Join(ctx, tk, true); err != nil {
				t.Fatal(err)
			}
		}
		table, col, _ := strings.Cut(columns[uint(column)%uint(len(columns))], ".")
		key := map[string]string{"line": "k", "ticket": "line"}[table]
		var v any = value
		if slices.Contains([]string{"h_id", "h_owner", "h_wake", "h_meta", "id", "owner"}, col) {
			v = text
		}
		_ = d.worker.do(ctx, false, func(sqlqueue.DB) ([]sqlqueue.Push, error) {
			_, _ = d.worker.conn.c.ExecContext(ctx, "UPDATE OR IGNORE holdfast_"+table+" SET "+col+" = ? WHERE "+key+" = ?", v, sqlqueue.Key(name))
			return nil, nil
		})
		check := func(what string, err error) {
			if err != nil && driver.ClassOf(err) != driver.Refused {
				t.Fatalf("%s with %s = %v: %v", what, col, v, err)
			}
		}
		tk := ts[uint(which)%3]
		_, err := d.Join(ctx, mutex("b:1", name), which%2 == 0)
		check("Join", err)
		_, err = d.Join(ctx, tk, true)
		check("Join", err)
		ps, err := d.Renew(ctx, []driver.Ref{{Ticket: tk, State: driver.Waiting}})
		check("Renew", err)
		if err == nil {
			check("Renew", ps[0].Err)
		}
		_, err = d.Inspect(ctx, name)
		check("Inspect", err)
		_, err = d.Leave(ctx, []driver.Ref{{Ticket: tk, State: driver.Held}})
		check("Leave", err)
		check("Break", d.Break(ctx, name, "a:2"))
	})
}
