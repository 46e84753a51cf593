// Package sqlcases has tests that the SQL stores share beyond the conformance
// suite: of their tables' creation and changes, of outages of their servers,
// and of the number of their requests. It knows the tables of package sqlqueue
// and nothing of one database: each store supplies functions that open, break
// and query its server.
package sqlcases

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var prefixes atomic.Int64

// OwnTables returns the URL option for tables that no other test of the process
// uses, on a server that they share.
func OwnTables() string { return fmt.Sprintf("table_prefix=t%d_", prefixes.Add(1)) }

// PrefixOf returns the prefix of tables that a URL has.
func PrefixOf(url string) string {
	_, rest, _ := strings.Cut(url, "table_prefix=")
	prefix, _, _ := strings.Cut(rest, "&")
	return prefix
}

// Ticket returns a mutex ticket. Each id makes a distinct ticket.
func Ticket(id int, name string) *driver.Ticket {
	return &driver.Ticket{ID: fmt.Sprintf("%036d:%d", 7, id), Name: name, Units: 1, Limit: 1, TTL: time.Minute}
}

// PlaceCount returns the number of places of each kind in tests of many: 1,000
// with HOLDFAST_TEST_FULL.
func PlaceCount() int {
	if os.Getenv("HOLDFAST_TEST_FULL") != "" {
		return 1_000
	}
	return 100
}

func held(t *driver.Ticket) []driver.Ref { return []driver.Ref{{Ticket: t, State: driver.Held}} }

// Join joins with wait=true, and fails the test unless the ticket's state is
// then want.
func Join(t testing.TB, d driver.Driver, tk *driver.Ticket, want driver.State) driver.Status {
	t.Helper()
	p, err := d.Join(context.Background(), tk, true)
	if err != nil || p.State != want {
		t.Fatalf("Join: %v, %v; want %v", p.State, err, want)
	}
	return p
}

// Renew renews a ticket, with Held as the core's belief.
func Renew(t testing.TB, d driver.Driver, tk *driver.Ticket) driver.Status {
	t.Helper()
	p, err := d.Renew(context.Background(), held(tk))
	if err != nil || p[0].Err != nil {
		t.Fatalf("Renew: %v, %v", p, err)
	}
	return p[0]
}

// Leave makes a ticket leave, and fails the test unless the ticket held.
func Leave(t testing.TB, d driver.Driver, tk *driver.Ticket) {
	t.Helper()
	p, err := d.Leave(context.Background(), held(tk))
	if err != nil || p[0].Err != nil || p[0].State != driver.Held {
		t.Fatalf("Leave: %v, %v", p, err)
	}
}
