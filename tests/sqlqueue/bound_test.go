package sqlqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// TestF127_DeadlinesOfAnEarlierClock sets back a clock that had counted ten
// days. It checks that the tickets in a queue then block it for one TTL from
// the first request on, and do not expire before.
//
// Covers: F19.
func TestF127_DeadlinesOfAnEarlierClock(t *testing.T) {
	const ttl = 30 * time.Second
	keep := driver.Keep(ttl)
	for name, c := range map[string]struct {
		units, limit int64
		dead         int
		wait         bool
	}{
		"mutex":                  {1, 1, 1, true},
		"mutex, waiters":         {1, 1, 3, true},
		"mutex, TryLock":         {1, 1, 3, false},
		"readers":                {1, driver.RWLimit, 3, true},
		"readers, TryLock":       {1, driver.RWLimit, 3, false},
		"permits beside waiters": {2, 5, 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, false)
			ctx := context.Background()
			f.later(240 * time.Hour)
			for range c.dead {
				dead := f.ticket("n", c.units, c.limit)
				dead.TTL = ttl
				if _, _, err := f.Join(ctx, f.db, dead, "", true); err != nil {
					t.Fatal(err)
				}
			}
			f.Leave(ctx, f.db, []driver.Ref{{Ticket: f.ticket("n", 1, c.limit), JoinPending: true}})
			f.now.Store(60_000_000)
			ask := func() driver.Status {
				t.Helper()
				next := f.ticket("n", c.limit, c.limit)
				next.TTL = time.Hour
				if c.wait {
					next.ID = "next:1"
				}
				p, _, err := f.Join(ctx, f.db, next, "", c.wait)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			p := ask()
			if p.State == driver.Held {
				t.Fatal("a ticket that may be a living one's was dropped")
			}
			if c.wait && p.Recheck > keep {
				t.Errorf("Recheck is %v", p.Recheck)
			}
			queue, _, err := f.Inspect(ctx, f.db, "n")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range queue.Tickets {
				if e.Left > keep && e.ID != "next:1" {
					t.Errorf("ticket %s has %v left", e.ID, e.Left)
				}
			}
			f.later(keep - time.Second)
			if p := ask(); p.State == driver.Held {
				t.Error("granted before the time of those that hold was over")
			}
			f.later(time.Second)
			if p := ask(); p.State != driver.Held {
				t.Errorf("after %v: %v", keep, p.State)
			}
			f.later(sqlqueue.TombstoneTTL)
			ask()
			var tombstones int
			if err := f.db.db.QueryRow("SELECT count(*) FROM holdfast_grave WHERE until > ?", f.now.Load()+sqlqueue.TombstoneTTL.Microseconds()).Scan(&tombstones); err != nil || tombstones != 0 {
				t.Errorf("%d ids are remembered for longer than RequestAge, %v", tombstones, err)
			}
		})
	}
}
