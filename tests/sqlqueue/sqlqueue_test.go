package sqlqueue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

func refs(state driver.State, ts ...*driver.Ticket) []driver.Ref {
	var out []driver.Ref
	for _, t := range ts {
		out = append(out, driver.Ref{Ticket: t, State: state})
	}
	return out
}

// TestOneStatementWhileUncontended checks that each request is one statement
// while nobody waits, for any number of tickets up to 256.
func TestOneStatementWhileUncontended(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	count := func(what string, autos, txs, inside int) {
		t.Helper()
		t.Logf("%s: %d statements alone, %d transactions with %d statements", what, f.db.autos, f.db.txs, len(f.db.inside))
		if f.db.autos != autos || f.db.txs != txs || len(f.db.inside) > inside {
			t.Errorf("%s: want %d, %d, at most %d", what, autos, txs, inside)
			for _, s := range f.db.inside {
				t.Log(s)
			}
		}
		f.db.reset()
	}
	first := f.ticket("n", 1, 1)
	f.join(first, driver.Held)
	count("join of a new queue", 1, 0, 0)
	if ps, _ := f.Renew(ctx, f.db, refs(driver.Held, first)); ps[0].State != driver.Held {
		t.Fatal(ps)
	}
	count("renewal", 1, 0, 0)
	if ps, _ := f.Leave(ctx, f.db, refs(driver.Held, first)); ps[0].State != driver.Held {
		t.Fatal(ps)
	}
	count("leave", 1, 0, 0)
	first = f.ticket("n", 1, 1)
	f.join(first, driver.Held)
	count("join of an idle queue", 1, 0, 0)

	second, third := f.ticket("n", 1, 1), f.ticket("n", 1, 1)
	f.join(second, driver.Waiting)
	count("join behind one", 1, 1, 4)
	f.join(third, driver.Waiting)
	count("join behind two", 0, 1, 6)
	if ps, _ := f.Renew(ctx, f.db, refs(driver.Held, first)); ps[0].State != driver.Held {
		t.Fatal(ps)
	}
	count("renewal with others waiting", 1, 0, 0)
	if ps, _ := f.Renew(ctx, f.db, refs(driver.Waiting, third)); ps[0].State != driver.Waiting || ps[0].Ahead != 2 {
		t.Fatal(ps)
	}
	count("renewal of a waiting ticket", 0, 1, 7)
	if ps, pushes := f.Leave(ctx, f.db, refs(driver.Held, first)); ps[0].State != driver.Held || len(pushes) != 1 || pushes[0].ID != second.ID {
		t.Fatal(ps, pushes)
	}
	count("hand-over", 0, 1, 4)
	if ps, _ := f.Leave(ctx, f.db, refs(driver.Waiting, third)); ps[0].State != driver.Waiting {
		t.Fatal(ps)
	}
	count("giving up", 0, 1, 6)

	var many []*driver.Ticket
	for i := range 1000 {
		tk := f.ticket(fmt.Sprint("many ", i), 1, 1)
		f.join(tk, driver.Held)
		many = append(many, tk)
	}
	f.db.reset()
	for chunk := range slices.Chunk(many, 200) {
		ps, _ := f.Renew(ctx, f.db, refs(driver.Held, chunk...))
		for i, p := range ps {
			if p.State != driver.Held || p.Lease != time.Second || p.Token == 0 || p.Err != nil {
				t.Fatalf("%s: %+v", chunk[i].ID, p)
			}
		}
	}
	count("renewal of 1,000 tickets", 5, 0, 0)
	ps, _ := f.Leave(ctx, f.db, refs(driver.Held, many...))
	for i, p := range ps {
		if p.State != driver.Held || p.Token == 0 || p.Err != nil {
			t.Fatalf("%s: %+v", many[i].ID, p)
		}
	}
	count("leave of 1,000 tickets", 4, 0, 0)
	ps, _ = f.Leave(ctx, f.db, refs(driver.Held, many[:3]...))
	for _, p := range ps {
		if p.State != driver.Gone {
			t.Errorf("left twice: %+v", p)
		}
	}
}

// TestF91_RowIsLockedFirst checks that each decision about a queue is made
// after its row was locked, in a later statement.
func TestF91_RowIsLockedFirst(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	first, second, third := f.ticket("n", 2, 3), f.ticket("n", 2, 3), f.ticket("n", 1, 3)
	third.Owner = "o"
	check := func(what string) {
		t.Helper()
		locked := false
		for _, s := range f.db.inside {
			if strings.HasPrefix(s, "SELECT name, lim,") || strings.HasPrefix(s, "SELECT k, name, lim,") {
				locked = true
			} else if !locked && strings.Contains(s, "holdfast_ticket") {
				t.Errorf("%s: before the lock: %s", what, s)
			}
		}
		for _, s := range f.db.alone {
			if what != "Inspect" && strings.Contains(s, "holdfast_ticket") {
				t.Errorf("%s: a statement that stands alone looks at tickets: %s", what, s)
			}
		}
		if f.db.txs > 0 && !locked {
			t.Errorf("%s: no lock in %q", what, f.db.inside)
		}
		f.db.reset()
	}
	f.join(first, driver.Held)
	check("Join")
	f.join(second, driver.Waiting)
	check("Join")
	f.join(third, driver.Waiting)
	check("Join")
	f.Renew(ctx, f.db, refs(driver.Waiting, second, third))
	check("Renew")
	_, _, _ = f.Inspect(ctx, f.db, "n")
	check("Inspect")
	_, _ = f.Break(ctx, f.db, "n", third.ID)
	check("Break")
	f.Leave(ctx, f.db, refs(driver.Held, first, second))
	check("Leave")
}

// TestNextHolderMovesIntoRow checks that a holder granted at once stays in the
// queue's row, that the next holder moves there, and that no ticket has a row
// that it does not need.
func TestNextHolderMovesIntoRow(t *testing.T) {
	f := newFixture(t, false)
	rows := func() (n int64) {
		t.Helper()
		if err := f.db.db.QueryRow("SELECT count(*) FROM holdfast_ticket").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	var ts []*driver.Ticket
	for i := range 5 {
		tk := f.ticket("n", 1, 1)
		state := driver.Waiting
		if i == 0 {
			state = driver.Held
		}
		f.join(tk, state)
		ts = append(ts, tk)
	}
	for i, tk := range ts {
		if n := rows(); n != int64(4-i) {
			t.Errorf("%d rows with %d waiting", n, 4-i)
		}
		if ps, _ := f.Leave(context.Background(), f.db, refs(driver.Held, tk)); ps[0].State != driver.Held {
			t.Fatal(ps)
		}
	}
	var id, meta string
	if err := f.db.db.QueryRow("SELECT h_id, h_meta FROM holdfast_line").Scan(&id, &meta); err != nil || id != "" || meta != "" {
		t.Errorf("an idle queue remembers %q, %q, %v", id, meta, err)
	}
}

// TestErrorsStayWithTheirTickets checks that a database error is reported for
// the tickets that it concerns, and that their changes are undone.
func TestErrorsStayWithTheirTickets(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	a, b := f.ticket("a", 1, 1), f.ticket("b", 1, 1)
	f.join(a, driver.Held)
	f.join(b, driver.Held)
	wa, wb := f.ticket("a", 1, 1), f.ticket("b", 1, 1)
	f.join(wa, driver.Waiting)
	f.join(wb, driver.Waiting)
	if _, err := f.db.db.Exec("UPDATE holdfast_line SET seq = -1 WHERE k = ?", sqlqueue.Key("a")); err != nil {
		t.Fatal(err)
	}
	ps, _ := f.Renew(ctx, f.db, refs(driver.Waiting, wa, wb))
	if driver.ClassOf(ps[0].Err) != driver.Refused || ps[1].Err != nil || ps[1].State != driver.Waiting {
		t.Errorf("Renew: %+v", ps)
	}
	ps, pushes := f.Leave(ctx, f.db, refs(driver.Held, b, a))
	if ps[0].Err != nil || ps[0].State != driver.Held || driver.ClassOf(ps[1].Err) != driver.Refused {
		t.Errorf("Leave: %+v", ps)
	}
	if len(pushes) != 1 || pushes[0].ID != wb.ID || pushes[0].Wake != "wake" {
		t.Errorf("pushes are %+v", pushes)
	}
}

// TestWithoutReturningSameAnswers checks that a database whose UPDATE has no
// RETURNING gives the same answers, and that a thousand tickets still take ten
// statements.
func TestWithoutReturningSameAnswers(t *testing.T) {
	f := newFixture(t, true)
	ctx := context.Background()
	var many []*driver.Ticket
	for i := range 1000 {
		tk := f.ticket(fmt.Sprint("many ", i), 1, 1)
		f.join(tk, driver.Held)
		many = append(many, tk)
	}
	waiting := f.ticket("many 7", 1, 1)
	f.join(waiting, driver.Waiting)
	f.Leave(ctx, f.db, refs(driver.Held, many[9]))
	f.now.Add(500_000)
	f.db.reset()
	for chunk := range slices.Chunk(many, 200) {
		ps, _ := f.Renew(ctx, f.db, refs(driver.Held, chunk...))
		for i, p := range ps {
			want := driver.Held
			if chunk[i] == many[9] {
				want = driver.Gone
			}
			if p.State != want || p.Err != nil || want == driver.Held && (p.Token == 0 || p.Lease != time.Second) {
				t.Fatalf("%s: %+v", chunk[i].ID, p)
			}
		}
	}
	// Two for each 200 tickets, and a visit to the queue of the ticket that
	// left.
	if f.db.autos != 0 || f.db.txs != 6 || len(f.db.inside) > 10+3 {
		t.Errorf("%d, %d, %d: %q", f.db.autos, f.db.txs, len(f.db.inside), f.db.inside)
	}
	f.now.Add(700_000)
	ps, pushes := f.Leave(ctx, f.db, refs(driver.Held, many...))
	for i, p := range ps {
		want := driver.Held
		if i == 9 {
			want = driver.Gone
		}
		if p.State != want || p.Err != nil {
			t.Fatalf("%s: %+v", many[i].ID, p)
		}
	}
	if len(pushes) != 0 { // it was not renewed
		t.Errorf("pushes are %+v", pushes)
	}
}

// TestMissingRowMeansGone checks that a queue without a row has no tickets, and
// that requests about it create no row.
func TestMissingRowMeansGone(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	tk := f.ticket("n", 1, 1)
	if queue, _, err := f.Inspect(ctx, f.db, "n"); err != nil || queue.Name != "n" || queue.Limit != 0 || queue.Token != 0 || len(queue.Tickets) != 0 {
		t.Errorf("%+v, %v", queue, err)
	}
	if ps, _ := f.Renew(ctx, f.db, refs(driver.Waiting, tk)); ps[0].State != driver.Gone || ps[0].Err != nil {
		t.Errorf("%+v", ps)
	}
	if ps, _ := f.Leave(ctx, f.db, refs(driver.Waiting, tk)); ps[0].State != driver.Gone || ps[0].Err != nil {
		t.Errorf("%+v", ps)
	}
	if _, err := f.Break(ctx, f.db, "n", tk.ID); err != driver.ErrNoTicket {
		t.Errorf("%v", err)
	}
	if hasTickets, _, err := f.HasTickets(ctx, f.db, "n"); hasTickets || err != nil {
		t.Errorf("%v, %v", hasTickets, err)
	}
	if queues, _, _, err := f.Count(ctx, f.db); queues != 0 || err != nil {
		t.Errorf("%d rows, %v", queues, err)
	}
	for _, s := range f.db.inside {
		if !strings.HasPrefix(s, "SELECT ") {
			t.Errorf("written: %s", s)
		}
	}
}
