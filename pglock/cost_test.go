package pglock

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// count copies what a client sends. The first message has no type.
func count(r *sqlcases.Relay, out io.Writer, in io.Reader) {
	kind := make([]byte, 1)
	for first := true; ; first = false {
		head := make([]byte, 4)
		if !first {
			if _, err := io.ReadFull(in, kind); err != nil {
				return
			}
		}
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		size := int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
		body := make([]byte, size-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		message := append(head, body...)
		if !first {
			message = append(slices.Clone(kind), message...)
			switch kind[0] {
			case 'E':
				r.Statements.Add(1)
			case 'S', 'Q':
				r.Trips.Add(1)
			}
		}
		if _, err := out.Write(message); err != nil {
			return
		}
	}
}

// TestRequestCosts checks the cost of an uncontended lock, of a hand-off, and
// of a renewal of 1,000 tickets.
func TestRequestCosts(t *testing.T) {
	r := sqlcases.NewRelay(t, servers.SharedPostgres(t).Port, count)
	d := openOn(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&%s", r.Addr, own()))
	told := make(chan string, 10)
	if err := d.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	sqlcases.Costs{
		Free:             sqlcases.Cost{Statements: 4, Trips: 2},
		Renewal:          sqlcases.Cost{Statements: 2, Trips: 1},
		JoinBehindHolder: sqlcases.Cost{Statements: 5, Trips: 2},
		JoinBehindWaiter: sqlcases.Cost{Statements: 3, Trips: 1},
		Try:              sqlcases.Cost{Statements: 3, Trips: 1},
		HandOff:          sqlcases.Cost{Statements: 4, Trips: 1},
		Many:             sqlcases.Cost{Statements: 10, Trips: 10},
	}.Check(t, r, d, d.db.tables)
	id := <-told
	if id == ticket(1, "warm, too").ID { // by the hand-off that prepared the statements
		id = <-told
	}
	if id != ticket(3, "n").ID {
		t.Errorf("told %s", id)
	}
}

// TestHandOffTimeBesideUpdate measures the time from a release to the return of
// the next holder's Lock, beside the time of one UPDATE in the same run.
func TestHandOffTimeBesideUpdate(t *testing.T) {
	s := servers.SharedPostgres(t)
	url := s.URL("postgres", own())
	c := admin(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.Exec(ctx, "CREATE TABLE updated AS SELECT 1 AS k, 0 AS n"); err != nil {
		t.Fatal(err)
	}
	defer s.Exec(t, "DROP TABLE updated")
	const rounds = 200
	var updates []time.Duration
	times := sqlcases.HandOffTimes(t, rounds, func() driver.Driver { return openOn(t, url) }, func() (waits bool) {
		if err := c.QueryRow(ctx, "SELECT waiting > 0 FROM "+prefixOf(url)+"line WHERE name = 'n'").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		if start := time.Now(); waits {
			if _, err := c.Exec(ctx, "UPDATE updated SET n = n + 1 WHERE k = 1"); err != nil {
				t.Fatal(err)
			}
			updates = append(updates, time.Since(start))
		}
		return waits
	})
	slices.Sort(updates)
	t.Logf("hand-off p50 %v, UPDATE p50 %v: %.1f times as long", times[rounds/2], updates[rounds/2],
		float64(times[rounds/2])/float64(updates[rounds/2]))
}

// TestIdleQueuesGo checks that a sweep leaves no row of idle queues.
func TestIdleQueuesGo(t *testing.T) {
	s := servers.SharedPostgres(t)
	url := s.URL("postgres", own())
	config, o, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	prefix := prefixOf(url)
	o.clock = "(" + clockNow + " + (SELECT count(*) * 600000000 FROM " + prefix + "late))"
	s.Exec(t, "CREATE TABLE "+prefix+"late (k int)")
	d, err := open(t.Context(), config, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sqlcases.SweepsIdleQueues(t, d,
		func() { s.Exec(t, "INSERT INTO "+prefix+"late VALUES (1)") }, // ten minutes later
		func() int64 { return s.Value(t, "SELECT count(*) FROM "+prefix+"line WHERE name <> 'busy'") },
		func() int64 { return s.Value(t, "SELECT count(*) FROM "+prefix+"store WHERE purged > 0") })
}

// TestHandOffReadsNoDeadRows checks that the rows that a hand-off reads do not
// grow with the tickets that have left and are not vacuumed yet. A busy queue
// has thousands of them.
func TestHandOffReadsNoDeadRows(t *testing.T) {
	s := servers.SharedPostgres(t)
	url := s.URL("postgres", own())
	d, at := openOn(t, url), prefixOf(url)
	join := func(n int, want driver.State) *driver.Ticket {
		t.Helper()
		k := ticket(n, "n")
		if p, err := d.Join(t.Context(), k, true); err != nil || p.State != want {
			t.Fatalf("join: %+v, %v", p, err)
		}
		return k
	}
	holder, waiter := join(0, driver.Held), join(1, driver.Waiting)

	const dead, rounds = 5000, 30
	c := admin(t, url)
	if _, err := c.Exec(t.Context(), fmt.Sprintf(`ALTER TABLE %[1]sticket SET (autovacuum_enabled = false);
		BEGIN; INSERT INTO %[1]sticket SELECT line, -g, -g, convert_to('dead' || g, 'UTF8'), owner, units, token, floor, keep, until, wake, meta
		FROM %[1]sticket, generate_series(1, %d) g; ROLLBACK; ANALYZE %[1]sticket`, at, dead)); err != nil {
		t.Fatal(err)
	}
	_ = c.Close(t.Context()) // a session's reads are counted at its end at the latest
	c = admin(t, url)
	pages := func(least, left int64) (read int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var gone int64
			if err := c.QueryRow(t.Context(), `SELECT heap_blks_hit + idx_blks_hit, n_tup_del FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid)
				WHERE relid = to_regclass($1)`, at+"ticket").Scan(&read, &gone); err != nil {
				t.Fatal(err)
			}
			if read >= least && gone >= left {
				return read
			}
		}
		t.Fatalf("%d pages were read", read)
		return 0
	}
	before := pages(dead, 0)
	for i := range rounds {
		ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: holder, State: driver.Held}})
		if err != nil || ps[0].State != driver.Held {
			t.Fatalf("leave: %+v, %v", ps, err)
		}
		holder, waiter = waiter, join(2+i, driver.Waiting)
	}
	_ = d.Close()
	if each := float64(pages(dead, rounds)-before) / rounds; each > 60 {
		t.Errorf("%.0f pages for each that left", each)
	} else {
		t.Logf("%.1f pages for each that left", each)
	}
}
