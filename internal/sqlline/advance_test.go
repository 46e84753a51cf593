package sqlline

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

func ids(pushes []Push) (out []string) {
	for _, p := range pushes {
		out = append(out, p.ID+" "+p.Place.State.String())
	}
	return out
}

// later lets time pass.
func (f *fixture) later(d time.Duration) { f.now.Add(int64(d / time.Microsecond)) }

// One request drops and grants MaxSteps tickets at most; it never grants one
// whose time is over, and the next one goes on.
func TestMaxSteps(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	holder := f.ticket("n", 1, 1)
	holder.TTL = time.Hour
	f.join(holder, driver.Held)
	const dead = 2*driver.MaxSteps + 10
	for range dead {
		f.join(f.ticket("n", 1, 1), driver.Waiting)
	}
	f.later(2 * time.Second)
	living := f.ticket("n", 1, 1)
	living.TTL = time.Hour
	p, _ := f.join(living, driver.Waiting)
	left := int64(dead - p.Ahead + 1)
	if left != driver.MaxSteps || p.Recheck != soon {
		t.Errorf("the join dropped %d, and answers %+v", left, p)
	}
	if ps, pushes := f.Leave(ctx, f.db, refs(driver.Held, holder)); ps[0].State != driver.Held || len(pushes) != 0 {
		t.Errorf("%+v, %q", ps, ids(pushes))
	}
	if line, _, err := f.Inspect(ctx, f.db, "n"); err != nil || len(line.Tickets) == 0 || line.Tickets[len(line.Tickets)-1].ID != living.ID {
		t.Fatalf("%+v, %v", line, err)
	}
	if ps, _ := f.Renew(ctx, f.db, refs(driver.Waiting, living)); ps[0].State != driver.Held {
		t.Errorf("%+v", ps)
	}

	// More readers than one request grants.
	writer := f.ticket("rw", driver.RWLimit, driver.RWLimit)
	writer.TTL = time.Hour
	f.join(writer, driver.Held)
	var readers []*driver.Ticket
	for range driver.MaxSteps + 5 {
		r := f.ticket("rw", 1, driver.RWLimit)
		f.join(r, driver.Waiting)
		readers = append(readers, r)
	}
	_, pushes := f.Leave(ctx, f.db, refs(driver.Held, writer))
	if len(pushes) != driver.MaxSteps {
		t.Errorf("%d were granted at once", len(pushes))
	}
	last := readers[len(readers)-1]
	ps, more := f.Renew(ctx, f.db, refs(driver.Waiting, last))
	if ps[0].State != driver.Held || len(more) != 4 {
		t.Errorf("%+v, %q", ps, ids(more))
	}
}

// A renewal advances the line, also that of a ticket in the line's row.
func TestRenewAdvances(t *testing.T) {
	f := newFixture(t, false)
	first, second, third := f.ticket("n", 1, 2), f.ticket("n", 1, 2), f.ticket("n", 1, 2)
	first.TTL, third.TTL = time.Hour, time.Hour
	f.join(first, driver.Held)
	f.join(second, driver.Held)
	f.join(third, driver.Waiting)
	f.later(2 * time.Second)
	ps, pushes := f.Renew(context.Background(), f.db, refs(driver.Held, first))
	if ps[0].State != driver.Held || !slices.Equal(ids(pushes), []string{third.ID + " held"}) {
		t.Errorf("%+v, %q", ps, ids(pushes))
	}
}

// What is remembered of those that are gone goes with its time, also in a line
// that is in use.
func TestGraves(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	count := func(want int64) {
		t.Helper()
		var n int64
		if err := f.db.db.QueryRow("SELECT count(*) FROM holdfast_grave").Scan(&n); err != nil || n != want {
			t.Errorf("%d graves, want %d; %v", n, want, err)
		}
	}
	late := f.ticket("n", 1, 1)
	for range 20 {
		gone := f.ticket("n", 1, 1)
		f.Leave(ctx, f.db, []driver.Ref{{Ticket: gone, Unsure: true}})
	}
	f.Leave(ctx, f.db, []driver.Ref{{Ticket: late, Unsure: true}})
	count(21)
	f.join(late, driver.Gone)
	f.later(RequestAge - time.Second)
	f.join(late, driver.Gone)
	f.later(2 * time.Second)
	f.join(f.ticket("n", 1, 1), driver.Held)
	count(0)
	f.later(2 * time.Second)
	f.db.reset()
	f.join(f.ticket("other", 1, 1), driver.Held)
	dead := f.ticket("n", 1, 1)
	f.join(dead, driver.Held)
	f.later(2 * time.Second)
	f.join(f.ticket("n", 1, 1), driver.Held) // dead is over
	f.join(dead, driver.Gone)
}
