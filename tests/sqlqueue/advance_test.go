package sqlqueue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

func ids(pushes []sqlqueue.Push) (out []string) {
	for _, p := range pushes {
		out = append(out, p.ID+" "+p.Status.State.String())
	}
	return out
}

// later advances the clock by d.
func (f *fixture) later(d time.Duration) { f.now.Add(int64(d / time.Microsecond)) }

// TestF117_TombstonesOfOthersCostNothing checks that the tombstone of a ticket
// whose Join had no answer keeps that ticket gone, and that others still join
// its queue by one statement.
func TestF117_TombstonesOfOthersCostNothing(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	lost := f.ticket("n", 1, 1)
	unsure := refs(driver.Waiting, lost)
	unsure[0].JoinPending = true
	if ps, _ := f.Leave(ctx, f.db, unsure); ps[0].State != driver.Gone || ps[0].Err != nil {
		t.Fatalf("%+v", ps)
	}
	for range 3 {
		f.db.reset()
		next := f.ticket("n", 1, 1)
		f.join(next, driver.Held)
		if f.db.autos != 1 || f.db.txs != 0 {
			t.Errorf("a join beside a tombstone took %d statements and %d transactions", f.db.autos, f.db.txs)
		}
		f.Leave(ctx, f.db, refs(driver.Held, next))
	}
	f.join(lost, driver.Gone)
	f.later(2 * sqlqueue.TombstoneTTL)
	f.join(f.ticket("n", 1, 1), driver.Held)
	var tombstones int
	if err := f.db.db.QueryRow("SELECT count(*) FROM holdfast_grave").Scan(&tombstones); err != nil || tombstones != 0 {
		t.Errorf("%d tombstones are left, %v", tombstones, err)
	}
}

// TestF130_ExpiredPlacesAreRemovedTogether checks that a request that drops
// many tickets removes them in a few statements, a thousand at once at least, so
// that a waiter behind thousands of dead tickets is granted in time.
func TestF130_ExpiredPlacesAreRemovedTogether(t *testing.T) {
	for name, begins := range map[string]func(*fixture, *driver.Ticket){
		"from the front": func(f *fixture, holder *driver.Ticket) {
			f.Leave(context.Background(), f.db, refs(driver.Held, holder))
		},
		"from the end": func(f *fixture, _ *driver.Ticket) {
			f.join(f.ticket("n", 1, 1), driver.Waiting)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, false)
			const dead = 2000
			holder := f.ticket("n", 1, 1)
			holder.TTL = time.Hour
			f.join(holder, driver.Held)
			for range dead {
				f.join(f.ticket("n", 1, 1), driver.Waiting)
			}
			f.later(2 * time.Second)
			f.db.reset()
			begins(f, holder)
			if n := len(f.db.inside); n == 0 || n > 32 {
				t.Errorf("dropping them took %d statements: %q", n, f.db.inside)
			}
			queue, _, err := f.Inspect(context.Background(), f.db, "n")
			if err != nil || len(queue.Tickets) > dead/2+2 {
				t.Errorf("%d tickets are left, %v", len(queue.Tickets), err)
			}
		})
	}
}

// TestStepsPerRequestAreBounded checks that one request drops MaxDrops waiters
// and grants MaxSteps tickets at most, that it never grants an expired one, and
// that the next request continues.
func TestStepsPerRequestAreBounded(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	holder := f.ticket("n", 1, 1)
	holder.TTL = time.Hour
	f.join(holder, driver.Held)
	const dead = 2*driver.MaxDrops + 10
	for range dead {
		f.join(f.ticket("n", 1, 1), driver.Waiting)
	}
	f.later(2 * time.Second)
	living := f.ticket("n", 1, 1)
	living.TTL = time.Hour
	p, _ := f.join(living, driver.Waiting)
	left := int64(dead - p.Ahead + 1)
	if left != driver.MaxDrops || p.Recheck != time.Millisecond {
		t.Errorf("the join dropped %d, and answers %+v", left, p)
	}
	if ps, pushes := f.Leave(ctx, f.db, refs(driver.Held, holder)); ps[0].State != driver.Held || len(pushes) != 0 {
		t.Errorf("%+v, %q", ps, ids(pushes))
	}
	if queue, _, err := f.Inspect(ctx, f.db, "n"); err != nil || len(queue.Tickets) == 0 || queue.Tickets[len(queue.Tickets)-1].ID != living.ID {
		t.Fatalf("%+v, %v", queue, err)
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

// TestRenewAdvancesQueue checks that a renewal advances the queue, also a
// renewal of the ticket in the queue's row.
func TestRenewAdvancesQueue(t *testing.T) {
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

// TestTombstonesAreRemoved checks that tombstones are removed once they end,
// also in a queue that is in use.
func TestTombstonesAreRemoved(t *testing.T) {
	f := newFixture(t, false)
	ctx := context.Background()
	count := func(want int64) {
		t.Helper()
		var n int64
		if err := f.db.db.QueryRow("SELECT count(*) FROM holdfast_grave").Scan(&n); err != nil || n != want {
			t.Errorf("%d tombstones, want %d; %v", n, want, err)
		}
	}
	late := f.ticket("n", 1, 1)
	for range 20 {
		gone := f.ticket("n", 1, 1)
		f.Leave(ctx, f.db, []driver.Ref{{Ticket: gone, JoinPending: true}})
	}
	f.Leave(ctx, f.db, []driver.Ref{{Ticket: late, JoinPending: true}})
	count(21)
	f.join(late, driver.Gone)
	f.later(sqlqueue.TombstoneTTL - time.Second)
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
