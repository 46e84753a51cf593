package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// count copies the bytes that a client sends. A packet with the number 0 begins
// a command.
func count(r *sqlcases.Relay, out io.Writer, in io.Reader) {
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		const query, prepare, execute = 0x03, 0x16, 0x17
		if head[3] == 0 && len(body) > 0 {
			switch body[0] {
			case query:
				r.Statements.Add(1 + int64(bytes.Count(body, []byte("; "))))
				r.Trips.Add(1)
			case execute:
				r.Statements.Add(1)
				r.Trips.Add(1)
			case prepare:
				r.Trips.Add(1)
			}
		}
		if _, err := out.Write(append(slices.Clone(head), body...)); err != nil {
			return
		}
	}
}

// TestRequestCosts checks the cost of an uncontended lock, of a hand-off, and
// of a renewal of 1,000 tickets, on the driver's own connections and on those
// of a pool with the library's defaults. The bytes of keys are part of the
// text, and look like the end of a statement in one of two thousand.
func TestRequestCosts(t *testing.T) {
	r := sqlcases.NewRelay(t, servers.SharedMariaDB(t).Port, count)
	url := func() string { return fmt.Sprintf("mysql://holdfast:%s@%s/locks?%s", "s3cret%2Fpass", r.Addr, own()) }
	t.Run("own", func(t *testing.T) {
		d := openOn(t, url())
		want := costs(2, 1, 3, 2, 4)
		if d.db.RunsCompounds() {
			one := sqlcases.Cost{Statements: 1, Trips: 1}
			want.JoinBehindHolder = sqlcases.Cost{Statements: 2, Trips: 2} // the first finds out that there is a holder
			want.JoinBehindWaiter, want.Try, want.HandOff = one, one, one
		}
		want.Check(t, r, d, d.db.tables)
	})
	t.Run("pool", func(t *testing.T) {
		url := url()
		d, err := New(poolOf(t, url, nil), &Options{TablePrefix: prefixOf(url)})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		costs(4, 2, 26, 28, 14).Check(t, r, d, d.db.tables)
	})
}

// costs returns limits with these numbers of round trips. The limits of
// statements are the same however statements are sent.
func costs(free, renewal, wait, handOn, many int64) sqlcases.Costs {
	return sqlcases.Costs{
		Free: sqlcases.Cost{Statements: 2, Trips: free}, Renewal: sqlcases.Cost{Statements: 1, Trips: renewal},
		JoinBehindHolder: sqlcases.Cost{Trips: wait}, JoinBehindWaiter: sqlcases.Cost{Trips: wait}, Try: sqlcases.Cost{Trips: wait}, HandOff: sqlcases.Cost{Trips: handOn}, Many: sqlcases.Cost{Statements: 10, Trips: many},
	}
}

// TestHandOffTimeBesideUpdate measures the time from a release to the return of
// the next holder's Lock, beside the time of one UPDATE in the same run: with
// wake-ups, and at the pace of a client without pushes.
func TestHandOffTimeBesideUpdate(t *testing.T) {
	s := servers.SharedMariaDB(t)
	s.Exec(t, "CREATE TABLE updated (k int PRIMARY KEY, n bigint NOT NULL)")
	s.Exec(t, "INSERT INTO updated VALUES (1, 0)")
	url := s.URL("holdfast", own())
	db := poolOf(t, url, nil)
	const rounds = 100
	var updates []time.Duration
	for range rounds {
		start := time.Now()
		if _, err := db.Exec("UPDATE updated SET n = n + 1 WHERE k = 1"); err != nil {
			t.Fatal(err)
		}
		updates = append(updates, time.Since(start))
	}
	slices.Sort(updates)
	for _, hears := range []bool{true, false} {
		times := handOffs(t, url, db, rounds/2, hears)
		t.Logf("bell %v: hand-off p50 %v, UPDATE p50 %v: %.1f times as long", hears, times[len(times)/2], updates[rounds/2],
			float64(times[len(times)/2])/float64(updates[rounds/2]))
	}
}

func handOffs(t *testing.T, url string, db *sql.DB, rounds int, hears bool) []time.Duration {
	return sqlcases.HandOffTimes(t, rounds, func() driver.Driver {
		d := openOn(t, url)
		if !hears {
			d.wakeup.noPush.Store(true)
			d.db.owned = false
			d.db.pool.SetMaxOpenConns(1) // which has no connection to spare
			t.Cleanup(func() { _ = d.db.pool.Close(); _ = d.wakeup.pool.Close() })
		}
		return d
	}, func() (waits bool) {
		if err := db.QueryRow("SELECT waiting > 0 FROM " + prefixOf(url) + "line WHERE name = 'n'").Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
}

// TestF64_ManyLocksSmallPool holds many locks, and waits many times in one
// queue, with a pool of four: 10,000 and 1,000 with HOLDFAST_TEST_FULL.
func TestF64_ManyLocksSmallPool(t *testing.T) {
	d := openOn(t, servers.SharedMariaDB(t).URL("holdfast", own()+"&max_conns=4"))
	sqlcases.ManyTickets(t, d)
	if n := d.db.pool.Stats().OpenConnections; n > 4 {
		t.Errorf("%d connections", n)
	}
}

// TestIdleQueuesAndMessagesGo checks that a sweep leaves no row of idle queues,
// nor messages for clients that are gone.
func TestIdleQueuesAndMessagesGo(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	config, o, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	prefix := prefixOf(url)
	o.clock = "(" + clockNow + " + (SELECT count(*) * 600000000 FROM " + strings.TrimSuffix(prefix, "_") + "late))"
	s.Exec(t, "CREATE TABLE "+strings.TrimSuffix(prefix, "_")+"late (k int PRIMARY KEY)")
	d, err := open(context.Background(), config, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	sqlcases.SweepsIdleQueues(t, d, func() {
		s.Exec(t, "INSERT INTO "+prefix+"post VALUES ('nobody', 'x', 1, 0, 5)")
		s.Exec(t, "INSERT INTO "+strings.TrimSuffix(prefix, "_")+"late VALUES (1)") // ten minutes later
	}, func() int64 {
		return s.Value(t, "SELECT (SELECT count(*) FROM "+prefix+"line WHERE name <> 'busy') + (SELECT count(*) FROM "+prefix+"post)")
	}, func() int64 { return s.Value(t, "SELECT count(*) FROM "+prefix+"store WHERE purged > 0") })
}
