package mysqllock

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestClassesOfErrors checks that the class of a server's error says what
// became of the request.
func TestClassesOfErrors(t *testing.T) {
	for number, want := range map[uint16]driver.Class{
		1213: driver.NotDone,     // deadlock
		1205: driver.NotDone,     // a row is locked
		1020: driver.NotDone,     // a row was changed since the transaction began
		1206: driver.NotDone,     // the table of locks is full
		1412: driver.NotDone,     // the table was changed meanwhile
		1062: driver.Unknown,     // an earlier request has taken the ticket's place
		1317: driver.Unknown,     // interrupted, perhaps after the commit
		1180: driver.Unknown,     // during the commit
		1637: driver.Unavailable, // too many transactions
		1114: driver.Unavailable, // the table is full
		1040: driver.Unavailable, // too many connections
		1142: driver.Refused,     // no right
		1054: driver.Refused,     // no such column
	} {
		err := classify(context.Background(), &mysql.MySQLError{Number: number, Message: "message"}, true)
		if got := driver.ClassOf(err); got != want {
			t.Errorf("%d: class %v, want %v", number, got, want)
		}
	}
}

// TestBadConnectionIsNoAnswer checks that an error that comes from no server
// has none of the classes that tell the core that the store is there.
func TestBadConnectionIsNoAnswer(t *testing.T) {
	for _, commits := range []bool{false, true} {
		if err := classify(context.Background(), sqldriver.ErrBadConn, commits); driver.ClassOf(err) != driver.Unavailable {
			t.Errorf("class %v: %v", driver.ClassOf(err), err)
		}
	}
}

// TestIdleConnectionsThatEnded checks that idle connections that the server has
// ended cost a request nothing but another connection.
func TestIdleConnectionsThatEnded(t *testing.T) {
	s := servers.MariaDB(t, servers.MariaDBOptions{})
	d := openOn(t, s.URL("holdfast", ""))
	for round := range 3 {
		var busy sync.WaitGroup
		for i := range 2 * d.db.opt.conns() {
			busy.Go(func() {
				tk := ticket(100*round+i, fmt.Sprint("n", i))
				if p, err := d.Join(t.Context(), tk, true); err != nil || p.State != driver.Held {
					t.Errorf("Join: %+v, %v", p, err)
				}
				if ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: tk, State: driver.Held}}); err != nil || ps[0].Err != nil {
					t.Errorf("Leave: %+v, %v", ps, err)
				}
			})
		}
		busy.Wait()
		s.KillConnections(t, "command = 'Sleep'")
		until(t, func() bool {
			return s.Value(t, "SELECT count(*) FROM information_schema.processlist WHERE user = 'holdfast' AND command = 'Killed'") == 0
		})
	}
}

// TestMissingRightIsNamed checks that the error of a missing right has the
// words of a grant.
func TestMissingRightIsNamed(t *testing.T) {
	for message, want := range map[string]string{
		"UPDATE command denied to user 'app'@'localhost' for table `locks`.`holdfast_line`":       "UPDATE on holdfast_line",
		"SELECT command denied to user 'app'@'localhost' for table 'holdfast_store'":              "SELECT on holdfast_store",
		"SELECT command denied to user 'app'@'localhost' for column 'k' in table 'holdfast_line'": "SELECT on holdfast_line",
		"SELECT with locking clause command denied to user 'app'@'%' for table 'holdfast_line'":   "SELECT on holdfast_line",
		"Access denied for user 'app'@'localhost' to database 'locks'":                            "",
		"command denied to user 'app'@'localhost' for table 'holdfast_line'":                      "",
	} {
		if got := missingRight(&mysql.MySQLError{Number: 1142, Message: message}); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
