package lockclient

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Driver asks lock servers over one store; it is a driver.Driver.
type Driver struct {
	servers serverList
	records records
	traits  driver.Traits

	mu      sync.Mutex         // no Watch begins to run while Close ends the servers' life
	end     context.CancelFunc // of the servers' life; Close waits for running then
	running sync.WaitGroup
}

// Open returns a driver for the lock servers at a URL:
//
//	holdfast://HOST[:PORT][,HOST...]   the port is 7420 unless it is named
//	holdfasts://HOST[:PORT][,HOST...]  the same over TLS
//	holdfast-unix:/PATH                a server's socket
//
// Servers of one URL have one store. The options are token_file, the name of a file with a
// bearer token, and for holdfasts:// those of package tlsurl. Open asks the servers, in
// turn, until one answers; it blocks for at most driver.OpenLimit, unless ctx has a
// deadline.
func Open(ctx context.Context, url string) (*Driver, error) {
	a, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if _, err := a.bearer(); err != nil {
		return nil, err
	}
	return open(ctx, a, newTransport(a))
}

func open(ctx context.Context, a *address, tr http.RoundTripper) (*Driver, error) {
	var random [24]byte
	rand.Read(random[:]) // never fails
	life, end := context.WithCancel(context.Background())
	d := &Driver{
		servers: newServerList(life, a, tr), end: end,
		records: records{client: base64.RawURLEncoding.EncodeToString(random[:]), granted: make(map[string]uint64), expected: make(map[string]*driver.Ticket), known: make(map[string]*record)},
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, driver.OpenLimit)
		defer cancel()
	}
	about, err := d.servers.find(ctx)
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	t, l := about.Traits, about.Limits
	d.traits = driver.Traits{
		Scheme: plainScheme, Fencing: t.Fencing, Shared: t.Shared, Fair: t.Fair, Push: true,
		SurvivesRestart: t.Owner && t.Restart, SurvivesFailover: t.Owner && t.Failover,
		MinTTL: milliseconds(l.MinTTL), MaxTTL: milliseconds(l.MaxTTL), Granularity: granularity,
	}
	return d, nil
}

// granularity: a server notes the end of a wait whose client is silent a tenth of its TTL
// late, at most.
const granularity = time.Second

func deadlineOf(ctx context.Context) time.Time { t, _ := ctx.Deadline(); return t }

// Traits returns what the server told when the driver was opened: the abilities of its
// store, apart from named owners and marks, and the TTLs that it allows.
func (d *Driver) Traits() driver.Traits { return d.traits }

// Identity returns the servers' group, which servers share exactly if their locks exclude
// each other.
func (d *Driver) Identity(ctx context.Context) (string, error) {
	if err := d.ready(ctx); err != nil {
		return "", err
	}
	a, err := d.servers.ask(ctx, http.MethodGet, "/v1/server", nil)
	switch {
	case err != nil:
		return "", err
	case a.status != http.StatusOK:
		return "", a.problem(a.status, a.after)
	}
	return "lock servers of group " + a.Group, nil
}

// Close ends the events and the connections. The holds of the driver end with their
// leases.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.end()
	d.mu.Unlock()
	d.running.Wait()
	d.servers.http.CloseIdleConnections()
	return nil
}

// ready returns the error of a call that must not send anything.
func (d *Driver) ready(ctx context.Context) error {
	if d.servers.life.Err() != nil {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}
