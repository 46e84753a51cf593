package lockclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
)

// all runs the suites, which take a minute: make soak WHAT=suite.
var all = flag.Bool("lockclient.all", false, "run the suites of drivers and of locks through lock servers")

// TestDriverConformance runs the suite of drivers through a lock server.
func TestDriverConformance(t *testing.T) {
	if !*all {
		return
	}
	drivertest.RunBubbles(t, func(t drivertest.T) drivertest.Harness {
		w := newWorld(t, 1)
		seen := &seenIDs{byOwner: make(map[string]string)}
		return drivertest.Harness{
			TellsLeft: true,
			Open:      func(drivertest.T) driver.Driver { return &translated{w.open(), seen} },
			TTL:       30 * time.Second,
			LeaveOut:  leftOut,
		}
	})
}

// leftOut has the cases that a lock server does not pass, each with the reason.
var leftOut = map[string]string{
	"try-busy":               metaIsServers,
	"waiting-tells":          metaIsServers,
	"inspect-meta":           metaIsServers,
	"foreign-limit":          permitsArePinned,
	"try-overtakes-nobody":   permitsArePinned,
	"units":                  permitsArePinned,
	"inspect":                permitsArePinned,
	"program":                permitsArePinned,
	"hammer-units":           permitsArePinned,
	"dead-holder":            leaseIsClaim,
	"dead-holder-renewed":    leaseIsClaim,
	"dead-holder-try":        leaseIsClaim,
	"dead-readers":           leaseIsClaim,
	"inspect-renews-nothing": leaseIsClaim,
	"grant-extends-nothing":  "a server waits a tenth of the TTL longer for a client that is silent",
	"leave-batch":            "a server releases the holds of one request at the same time",
	"break-waiting":          "a server whose wait is broken asks for a new place, and its client waits on",
	"waiting-costs-nothing":  "a wait costs the server a goroutine",
	"edges":                  "a server tells the number of tickets ahead as it was at its last answer from the store",
	"token-floor":            "package redlock alone sets it, and takes no lock servers",
}

const (
	metaIsServers    = "the server writes the metadata: what the client reports, and its own word on who that is"
	permitsArePinned = "permits have no owner at the store, so the test cannot tell whose its tickets are"
	leaseIsClaim     = "a server gives a hold up at the end of its own claim, and says that it is shorter than the TTL"
)

// TestLocks runs the suite of locks, through the core, through two lock servers.
func TestLocks(t *testing.T) {
	if !*all {
		return
	}
	w := newWorld(t, 2)
	drivertest.RunLocks(t, drivertest.Harness{
		Open: func(drivertest.T) driver.Driver { return w.open() },
		TTL:  4 * time.Second, // a busy machine can renew its leases in time
		LeaveOut: map[string]string{
			"held on behalf of another": "a lock server writes on whose behalf it holds, and its tickets are the store's",
		},
	})
}

// seenIDs has the tickets that were joined, by their owners at the store.
type seenIDs struct {
	mu      sync.Mutex
	byOwner map[string]string
}

// translated shows a queue with the ids of the suite's tickets in place of the store's, and
// stretches leases to the TTL: see Join 9 in the comment of the package.
type translated struct {
	*Driver
	seen *seenIDs
}

func (d *translated) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	settle()
	if id, err := d.records.idOf(t.ID); err == nil {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", "", "tester", id))
		d.seen.mu.Lock()
		d.seen.byOwner[servedOwner+hex.EncodeToString(sum[:])] = t.ID
		d.seen.mu.Unlock()
	}
	st, err := d.Driver.Join(ctx, t, wait)
	return stretched(t, st), err
}

func (d *translated) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	settle()
	sts, err := d.Driver.Renew(ctx, refs)
	for i := range sts {
		sts[i] = stretched(refs[i].Ticket, sts[i])
	}
	return sts, err
}

// settle gives the server the time to hear of what its store has done: it answers about a
// wait by what it was told, and not by asking the store.
func settle() { time.Sleep(time.Millisecond) }

func stretched(t *driver.Ticket, st driver.Status) driver.Status {
	if st.Lease > t.TTL/2 {
		st.Lease = max(st.Lease, t.TTL)
	}
	return st
}

func (d *translated) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	settle()
	q, err := d.Driver.Inspect(ctx, name)
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	for i, e := range q.Tickets {
		if id := d.seen.byOwner[e.Owner]; id != "" {
			q.Tickets[i].ID, q.Tickets[i].Owner = id, ""
		}
	}
	return q, err
}

func (d *translated) Break(ctx context.Context, name, id string) error {
	q, err := d.Driver.Inspect(ctx, name)
	if err != nil {
		return err
	}
	d.seen.mu.Lock()
	for _, e := range q.Tickets {
		if d.seen.byOwner[e.Owner] == id {
			id = e.ID
		}
	}
	d.seen.mu.Unlock()
	return d.Driver.Break(ctx, name, id)
}
