package mysqllock

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// crowd is a client with one connection for requests, which counts what it sends.
type crowd struct {
	*testing.T
	r   *sqlcases.Relay
	url string
	d   *Driver
	id  int
}

func newCrowd(t *testing.T, s *servers.MariaDBServer) *crowd {
	t.Helper()
	if s.MySQL {
		t.Skip("MySQL has no compound statements")
	}
	c := &crowd{T: t, r: sqlcases.NewRelay(t, s.Port, count)}
	c.url = fmt.Sprintf("mysql://holdfast:%s@%s/locks?max_conns=1&%s", "s3cret%2Fpass", c.r.Addr, own())
	c.d = openOn(t, c.url)
	c.d.db.tables.SweepLock.Lock()
	t.Cleanup(c.d.db.tables.SweepLock.Unlock)
	return c
}

// handOff hands a lock on, and returns the number of statements of a join behind the
// holder and of the leave that grants: 2 if both are compounds.
func (c *crowd) handOff() int64 {
	c.Helper()
	a, b := ticket(c.id, "n"), ticket(c.id+1, "n")
	c.id += 2
	first := mustJoin(c, c.d, a, driver.Held)
	before := c.r.Statements.Load()
	mustJoin(c, c.d, b, driver.Waiting)
	mustLeave(c, c.d, a)
	n := c.r.Statements.Load() - before
	if p := mustRenew(c, c.d, b); p.State != driver.Held || p.Token <= first.Token {
		c.Errorf("the waiter is %+v after %+v", p, first)
	}
	q, err := c.d.Inspect(c.Context(), "n")
	if err != nil || len(q.Tickets) != 1 || q.Tickets[0].ID != b.ID || q.Tickets[0].Left <= 0 || q.Tickets[0].Left > driver.Keep(b.TTL) {
		c.Errorf("after the hand-off: %+v, %v", q, err)
	}
	mustLeave(c, c.d, b)
	return n
}

// expect checks whether contended requests are compounds, after the first of them has
// prepared those or failed to.
func (c *crowd) expect(what string, compounds bool) {
	c.Helper()
	c.handOff()
	if n := c.handOff(); (n == 2) != compounds {
		c.Errorf("%s: %d statements, compounds: %v", what, n, compounds)
	}
}

// onConn runs a statement on the only connection for requests.
func (c *crowd) onConn(text string) {
	c.Helper()
	if err := c.d.db.inConn(c.Context(), func(conn *conn) error { return conn.run(c.Context(), false, &item{text: text}) }); err != nil {
		c.Fatal(err)
	}
}

// TestCompoundsFallBack checks that contended requests are compound statements, and are
// sent in the old way, with the same result, where those cannot decide: in a session
// whose settings are not the driver's, and at a server that prepares none.
func TestCompoundsFallBack(t *testing.T) {
	t.Parallel()
	s := servers.MariaDB(t, servers.MariaDBOptions{Settings: []string{"default-time-zone=+05:30"}})
	c := newCrowd(t, s)
	c.expect("a server with a time zone", true)
	s.Exec(t, "ALTER TABLE "+prefixOf(c.url)+"line ADD COLUMN later bigint NOT NULL DEFAULT 0")
	c.expect("the table was changed", true)
	c.onConn("SET SESSION time_zone = 'SYSTEM'")
	c.expect("the session has another time zone", false)
	c.onConn(textCompounds)
	c.expect("it has that of the driver again", true)
	s.Exec(t, "DROP TABLE "+prefixOf(c.url)+"post")
	c.expect("a table that a compound names is missing", false)
	s.Exec(t, "SET GLOBAL max_prepared_stmt_count = 0")
	newCrowd(t, s).expect("a server that prepares none", false)
}

// TestOldWayWithoutCompounds checks which servers run compounds.
func TestOldWayWithoutCompounds(t *testing.T) {
	for version, want := range map[string]bool{
		"10.6.0-MariaDB": true, "10.11.19-MariaDB-0+deb12u1": true, "11.8.9-MariaDB-log": true, "5.5.5-10.6.1-MariaDB": true,
		"10.5.29-MariaDB": false, "5.5.5-10.4.1-MariaDB": false, "8.0.40": false, "9.7.4": false, "MariaDB": false, "": false,
	} {
		if got := hasCompounds(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

// TestInterruptedCompoundLeavesNothing interrupts compounds that wait for the queue's
// row, as an operator may. It checks that nothing was done, that no transaction stays
// open, and that the next requests go on.
func TestInterruptedCompoundLeavesNothing(t *testing.T) {
	t.Parallel()
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	c := newCrowd(t, s)
	c.expect("at first", true)
	holder, next := ticket(1000, "n"), ticket(1001, "n")
	mustJoin(t, c.d, holder, driver.Held)
	for what, request := range map[string]func() error{
		"join": func() error {
			_, err := c.d.Join(context.Background(), next, true)
			return err
		},
		"leave": func() error {
			p, err := c.d.Leave(context.Background(), []driver.Ref{{Ticket: holder, State: driver.Held}})
			if err == nil {
				err = p[0].Err
			}
			return err
		},
	} {
		stranger := newStranger(t, poolOf(t, c.url, nil), c.url)
		if err := stranger.Lock("n"); err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		go func() { result <- request() }()
		var waits int64
		until(t, func() bool {
			waits = s.Transaction(t, "coalesce(max(trx_mysql_thread_id), 0)", "trx_state = 'LOCK WAIT'")
			return waits > 0
		})
		s.Exec(t, fmt.Sprint("KILL QUERY ", waits))
		if err := <-result; driver.ClassOf(err) != driver.Unknown && driver.ClassOf(err) != driver.NotDone {
			t.Errorf("%s: %v", what, err)
		}
		stranger.End()
		until(t, func() bool { return s.Transaction(t, "count(*)", "true") == 0 })
		if q, err := c.d.Inspect(t.Context(), "n"); err != nil || len(q.Tickets) != 1 || q.Tickets[0].ID != holder.ID {
			t.Errorf("after an interrupted %s: %+v, %v", what, q, err)
		}
	}
	mustJoin(t, c.d, next, driver.Waiting)
	mustLeave(t, c.d, holder)
	if p := mustRenew(t, c.d, next); p.State != driver.Held {
		t.Errorf("the waiter is %v", p.State)
	}
}

// TestMessageLeavesWithItsTicket checks that a message about a grant is removed by the
// leave of its ticket: its removal needs no commit of its own.
func TestMessageLeavesWithItsTicket(t *testing.T) {
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	if s.MySQL {
		t.Skip("MySQL has no compound statements")
	}
	url := s.URL("holdfast", own())
	const rounds = 50
	db := poolOf(t, url, nil)
	deletions := func() int64 {
		return s.Value(t, "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_DELETE'")
	}
	before := deletions()
	handOffs(t, url, db, rounds, true)
	// Each leave deletes its message, and the row of the ticket that it grants. The
	// client deletes a message when it has been quiet for a while.
	if n := deletions() - before; n > 2*rounds+10 {
		t.Errorf("%d deletions in %d hand-offs", n, rounds)
	}
	if n := s.Value(t, "SELECT count(*) FROM "+prefixOf(url)+"post"); n > 2 {
		t.Errorf("%d messages are left", n)
	}
}

// TestMessageOfRemovalIsSeen checks that a client sees that a ticket was removed, also
// while the message about its grant is still in the table: the second message replaces
// the first.
func TestMessageOfRemovalIsSeen(t *testing.T) {
	t.Parallel()
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	d, e := openOn(t, url), openOn(t, url)
	pushed := make(chan driver.Status, 10)
	a, b := ticket(1, "n"), ticket(2, "n")
	if err := e.Watch(t.Context(), func(id string, p driver.Status) {
		if id == b.ID {
			pushed <- p
		}
	}); err != nil {
		t.Fatal(err)
	}
	mustJoin(t, d, a, driver.Held)
	mustJoin(t, e, b, driver.Waiting)
	mustLeave(t, d, a)
	if p := <-pushed; p.State != driver.Held {
		t.Errorf("at first %v", p.State)
	}
	if err := d.Break(t.Context(), "n", b.ID); err != nil {
		t.Fatal(err)
	}
	for p := range pushed {
		if p.State == driver.Gone {
			break
		}
	}
}
