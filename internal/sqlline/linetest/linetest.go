// Package linetest has what the SQL stores are tested for alike, beside the
// suite that every store runs: their tables are made and changed, their servers
// are struck, their requests are counted. It knows the lines of package sqlline
// and nothing of one database; each store says how its server is opened, broken
// and asked.
package linetest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var prefixes atomic.Int64

// Own returns the option of a URL for tables that no other test of the process
// has, on a server that they share.
func Own() string { return fmt.Sprintf("table_prefix=t%d_", prefixes.Add(1)) }

// PrefixOf returns the prefix of tables that a URL has.
func PrefixOf(url string) string {
	_, rest, _ := strings.Cut(url, "table_prefix=")
	prefix, _, _ := strings.Cut(rest, "&")
	return prefix
}

// Ticket returns the ticket of a mutex. Each id is one of its own.
func Ticket(id int, name string) *driver.Ticket {
	return &driver.Ticket{ID: fmt.Sprintf("%036d:%d", 7, id), Name: name, Units: 1, Limit: 1, TTL: time.Minute}
}

func held(t *driver.Ticket) []driver.Ref { return []driver.Ref{{Ticket: t, State: driver.Held}} }

// Join has a ticket join, ready to wait. It must be in the state want then.
func Join(t testing.TB, d driver.Driver, tk *driver.Ticket, want driver.State) driver.Place {
	t.Helper()
	p, err := d.Join(context.Background(), tk, true)
	if err != nil || p.State != want {
		t.Fatalf("Join: %v, %v; want %v", p.State, err, want)
	}
	return p
}

// Renew renews a ticket, as one that is said to hold.
func Renew(t testing.TB, d driver.Driver, tk *driver.Ticket) driver.Place {
	t.Helper()
	p, err := d.Renew(context.Background(), held(tk))
	if err != nil || p[0].Err != nil {
		t.Fatalf("Renew: %v, %v", p, err)
	}
	return p[0]
}

// Leave has a ticket leave that must hold.
func Leave(t testing.TB, d driver.Driver, tk *driver.Ticket) {
	t.Helper()
	p, err := d.Leave(context.Background(), held(tk))
	if err != nil || p[0].Err != nil || p[0].State != driver.Held {
		t.Fatalf("Leave: %v, %v", p, err)
	}
}
