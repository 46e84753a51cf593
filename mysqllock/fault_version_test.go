package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/internal/testkit/sqlcases"
)

// pools are the ways in which a user's program may configure the client
// library.
var pools = map[string]func(*mysql.Config){
	"prepares all":     nil,
	"writes arguments": func(c *mysql.Config) { c.InterpolateParams = true },
	"as Open has it":   func(c *mysql.Config) { c.InterpolateParams, c.MultiStatements = true, true },
}

// TestF126_EveryPoolInterrupts checks that a waiter is woken however the
// granting pool sends its statements, and that the interruption arrives soon
// after the release, before the waiter reads messages by itself.
//
// MySQL does not prepare KILL QUERY IS_USED_LOCK(?) since 9.7.
func TestF126_EveryPoolInterrupts(t *testing.T) {
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	e := openOn(t, url)
	told := make(chan string, 10)
	if err := e.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	n := 0
	for what, edit := range pools {
		d, err := New(poolOf(t, url, edit), &Options{TablePrefix: prefixOf(url)})
		if err != nil {
			t.Fatal(err)
		}
		t.Log("a pool that " + what)
		checkWakeups(t, 10, func(int) {
			n += 2
			sqlcases.HandsOff(t, d, e, told, n)
		})
		_ = d.Close()
	}
}

// TestF126_InterruptionsAreNotPrepared checks on the wire that no pool prepares the
// statement that interrupts a waiter: MySQL refuses that since 9.7, with 6413 for a
// placeholder, and earlier servers do not, on which [TestF126_EveryPoolInterrupts]
// sees nothing of it.
func TestF126_InterruptionsAreNotPrepared(t *testing.T) {
	url := servers.SharedMariaDB(t).URL("holdfast", own())
	e := openOn(t, url)
	told := make(chan string, 10)
	if err := e.Watch(t.Context(), func(id string, _ driver.Status) { told <- id }); err != nil {
		t.Fatal(err)
	}
	n := 0
	for what, edit := range pools {
		var sent commandLog
		db := poolOf(t, url, func(c *mysql.Config) {
			if edit != nil {
				edit(c)
			}
			c.DialFunc = sent.dial
		})
		d, err := New(db, &Options{TablePrefix: prefixOf(url)})
		if err != nil {
			t.Fatal(err)
		}
		n += 2
		sqlcases.HandsOff(t, d, e, told, n)
		_ = d.Close()
		texts, prepared := sent.with("KILL ")
		if texts == 0 || prepared > 0 {
			t.Errorf("a pool that %s: %d interruptions as text, %d prepared; want some, and none", what, texts, prepared)
		}
	}
}

// commandLog records the commands of a pool that have a text.
type commandLog struct {
	mu              sync.Mutex
	texts, prepared []string
}

// dial connects, and records what is sent.
func (l *commandLog) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &loggedConn{Conn: c, log: l}, nil
}

// with returns how many commands have a text with this part, as text and prepared.
func (l *commandLog) with(part string) (texts, prepared int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := func(all []string) (n int) {
		for _, text := range all {
			if strings.Contains(text, part) {
				n++
			}
		}
		return n
	}
	return count(l.texts), count(l.prepared)
}

// loggedConn is a connection of a pool with a commandLog.
type loggedConn struct {
	net.Conn
	log *commandLog
}

// Write implements [net.Conn]. The client library writes a packet at a time.
func (c *loggedConn) Write(b []byte) (int, error) {
	const head, query, prepare = 4, 0x03, 0x16
	if len(b) > head && b[3] == 0 {
		c.log.mu.Lock()
		switch b[head] {
		case query:
			c.log.texts = append(c.log.texts, string(b[head+1:]))
		case prepare:
			c.log.prepared = append(c.log.prepared, string(b[head+1:]))
		}
		c.log.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// TestF126_InvalidNamesAreNotInterrupted checks that only possible names of
// locks become part of a statement: the names come from rows that other clients
// wrote.
func TestF126_InvalidNamesAreNotInterrupted(t *testing.T) {
	for name, want := range map[string]bool{
		"holdfast_abc234": true, "": false, "a'), (SLEEP(9": false, "a b": false, "ä": false, "a\n": false,
		string(bytes.Repeat([]byte("a"), 64)): true, string(bytes.Repeat([]byte("a"), 65)): false,
	} {
		if _, ok := interruptStmt(name); ok != want {
			t.Errorf("%q is interrupted: %v", name, ok)
		}
	}
	d := &Driver{}
	d.db.tables = sqlqueue.NewTables(sqlqueue.New(dialect(&d.db.opt, "me", nil)), &d.db, "me")
	defer d.db.tables.Stop()
	stmts := d.db.notifyStmts([]sqlqueue.Push{{Wake: "a'), (SLEEP(9", ID: "i", Status: driver.Status{State: driver.Gone}}})
	if slices.ContainsFunc(stmts, isInterrupt) {
		t.Errorf("interrupted: %+v", stmts[len(stmts)-1].Text)
	}
}

// TestF126_OthersSeeTheProcessList checks that every user can list the server's
// running statements during a request: since 9.7, MySQL cannot display a
// statement with bytes that are no text.
func TestF126_OthersSeeTheProcessList(t *testing.T) {
	s := servers.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	queue := prefixOf(url) + "line"
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name := "bytes that are no text: \xff\xfe\x00'?"
	mustJoin(t, openOn(t, url), ticket(1, name), driver.Held)
	for what, edit := range pools {
		db := poolOf(t, url, edit)
		d, err := New(db, &Options{TablePrefix: prefixOf(url)})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := d.Join(ctx, ticket(2, name), false); err != nil || p.State != driver.Gone {
			t.Fatalf("%+v, %v", p, err)
		}
		stranger, err := db.BeginTx(ctx, new(sql.TxOptions))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stranger.ExecContext(ctx, "SELECT k FROM "+queue+" WHERE k = ? FOR UPDATE", sqlqueue.Key(name)); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = d.Join(ctx, ticket(3, name), false)
		}()
		for seen := int64(0); seen == 0; {
			seen = s.Value(t, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%INTO "+queue+"%'")
			select {
			case <-done:
				t.Fatalf("a pool that %s: the request ended before it was seen", what)
			default:
			}
		}
		s.Value(t, "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_query IS NOT NULL")
		_ = stranger.Rollback()
		<-done
		_ = d.Close()
	}
}

// TestF126_SnapshotIsolation checks that the driver turns off the MariaDB
// setting that refuses to lock rows that were changed since a statement read
// them. The setting is on since 11.6, and can be turned on in 10.11.
func TestF126_SnapshotIsolation(t *testing.T) {
	t.Parallel()
	s := servers.MariaDB(t, servers.MariaDBOptions{Settings: []string{"loose-innodb-snapshot-isolation=ON"}})
	sqlcases.ManyTickets(t, openOn(t, s.URL("holdfast", "")))
}
