package mysqllock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF102_Galera checks a cluster whose servers all take writes. There a
// commit at one server undoes another server's open transaction on the same
// rows: nothing of that transaction is left, and its request is reported as not
// done. A server that has lost its cluster grants nothing, and its holders know
// of their loss before another client holds elsewhere. The doctor warns of such
// a cluster.
//
// The test does not check that clients at two servers exclude each other: that
// is not certain, and docs/stores/mysql.md says so.
func TestF102_Galera(t *testing.T) {
	t.Parallel()
	servers := servers.Galera(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	d := openOn(t, servers[1].URL("holdfast", ""))

	servers[0].Exec(t, "CREATE TABLE half (k INT PRIMARY KEY, v INT)")
	servers[0].Exec(t, "INSERT INTO half VALUES (1, 0)")
	until(t, func() bool {
		return servers[1].Value(t, "SELECT count(*) FROM information_schema.tables WHERE table_name = 'half'") > 0 &&
			servers[1].Value(t, "SELECT count(*) FROM half") > 0
	})
	write := func(text string) *sqlqueue.Stmt { return &sqlqueue.Stmt{Text: &sqlqueue.Text{SQL: text, Writes: true}} }
	undone := make(chan struct{})
	err := d.db.Tx(ctx, func(tx sqlqueue.Tx) ([]*sqlqueue.Stmt, error) {
		go func() {
			defer close(undone)
			until(t, func() bool {
				return servers[1].Value(t, "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%SLEEP(20)%' AND info NOT LIKE '%processlist%'") > 0
			})
			servers[0].Exec(t, "UPDATE half SET v = 1 WHERE k = 1")
		}()
		if err := tx.Do(ctx, write("UPDATE half SET v = 2 WHERE k = 1")); err != nil {
			return nil, err
		}
		return []*sqlqueue.Stmt{write("INSERT INTO half VALUES (2, 2)"), write("DO SLEEP(20)"), write("INSERT INTO half VALUES (3, 2)")}, nil
	})
	<-undone
	if code(err) != 1213 || driver.ClassOf(err) != driver.NotDone {
		t.Errorf("what was undone is told as %v", err)
	}
	for i, s := range servers {
		if n := s.Value(t, "SELECT sum(k * 10 + v) FROM half"); n != 11 {
			t.Errorf("the rows at server %d add up to %d, want 11", i, n)
		}
	}

	for _, s := range servers {
		findings, err := openOn(t, s.URL("holdfast", "")).Check(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if warns := f.Level != driver.OK; warns != (f.Topic == "cluster") {
				t.Errorf("the doctor: %+v", f)
			}
		}
	}

	cut, other := clientOf(t, d, 3*time.Second), clientOf(t, openOn(t, servers[0].URL("holdfast", "")), 20*time.Second)
	h, err := cut.Mutex("cut").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	servers[1].Isolate(t, true)
	next := lockUntil(ctx, t, other, "cut") // until it is known who is gone, commits wait
	if h.Err() == nil {
		t.Error("two hold")
	}
	if next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
	// If the server finds out during a commit that it is alone, the commit ends
	// with an error of its own, which leaves the outcome open.
	until(t, func() bool {
		_, err := d.Join(ctx, ticket(1, "n"), true)
		if duringCommit := code(err) == 1180 && driver.ClassOf(err) == driver.Unknown; duringCommit {
			return false
		}
		if driver.ClassOf(err) != driver.Unavailable || !strings.Contains(err.Error(), "accepts no writes") {
			t.Errorf("a server without its cluster says: %v", err)
		}
		return true
	})
	servers[1].Isolate(t, false)
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
	if h = lockUntil(ctx, t, cut, "cut"); h.Token() <= next.Token() {
		t.Errorf("token %d after %d", h.Token(), next.Token())
	}
}

// until waits until ok returns true.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error("it does not come to pass")
			return
		}
	}
}

// lockUntil locks as soon as the store is available.
func lockUntil(ctx context.Context, t *testing.T, c *holdfast.Client, name string) *holdfast.Hold {
	t.Helper()
	for {
		h, err := c.Mutex(name).Lock(ctx)
		if err == nil {
			return h
		}
		if _, ok := errors.AsType[*holdfast.StoreError](err); !ok || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// clientOf returns a client that is closed with the test.
func clientOf(t *testing.T, d driver.Driver, ttl time.Duration) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
