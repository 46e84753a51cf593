package lockclient

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Driver asks lock servers over one store; it is a driver.Driver.
type Driver struct {
	address *address
	bases   []string // of the URLs of requests, by server
	names   []string // of the servers, for people
	http    *http.Client
	client  string // begins the ids of this driver
	traits  driver.Traits

	// life ends with Close, which waits for running.
	life    context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	at     int           // the server whose turn it is
	turned chan struct{} // closed when it is another one's
	took   time.Duration // that answers take, the longest of late
	group  string        // of the first answer
	prefix string        // of the tickets' ids, up to the colon; empty until one is known
	// granted has the tokens of the tickets of which events, and no answers yet, say that
	// they hold.
	granted map[string]uint64
	// dropped are the last tickets that the driver has called gone: events about them come
	// too late.
	dropped []string
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
	d := &Driver{
		address: a, bases: a.bases(), names: a.hosts, client: base64.RawURLEncoding.EncodeToString(random[:]), turned: make(chan struct{}), granted: make(map[string]uint64),
		http: &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	d.life, d.end = context.WithCancel(context.Background())
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, driver.OpenLimit)
		defer cancel()
	}
	about, err := d.findServer(ctx)
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

// findServer asks one server after another who they are, and makes it the turn of the
// first that serves.
func (d *Driver) findServer(ctx context.Context) (*answer, error) {
	var errs []error
	for at := range d.bases {
		limit := time.Until(deadlineOf(ctx)) / time.Duration(len(d.bases)-at)
		try, cancel := context.WithTimeout(ctx, limit)
		a, err := d.askAt(try, at, http.MethodGet, "/v1/server", nil)
		cancel()
		if err == nil && a.status != http.StatusOK {
			err = a.problem(a.status, a.after)
		}
		if err == nil && a.Limits.MaxTTL <= 0 {
			err = driver.Errorf(driver.Refused, "lock server %s: it does not tell what TTLs it allows", d.names[at])
		}
		if err == nil {
			d.at = at
			return a, nil
		}
		if class := driver.ClassOf(err); class == driver.Refused {
			return nil, err
		}
		errs = append(errs, err)
	}
	if ctx.Err() != nil && len(errs) == 0 {
		errs = append(errs, context.Cause(ctx))
	}
	return nil, &driver.Error{Class: driver.Unavailable, Err: errors.Join(errs...)}
}

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
	a, err := d.ask(ctx, http.MethodGet, "/v1/server", nil)
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
	d.end()
	d.running.Wait()
	d.http.CloseIdleConnections()
	return nil
}

// ready returns the error of a call that must not send anything.
func (d *Driver) ready(ctx context.Context) error {
	if d.life.Err() != nil {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// idOf returns the id at the servers of a ticket, whose id is "UUID:NUMBER".
func (d *Driver) idOf(ticketID string) (string, error) {
	prefix, number, ok := strings.Cut(ticketID, ":")
	digits := !strings.ContainsFunc(number, func(r rune) bool { return r < '0' || r > '9' })
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.prefix == "" {
		d.prefix = prefix
	}
	if !ok || !digits || len(number) == 0 || len(number) > 19 || prefix != d.prefix {
		return "", driver.Errorf(driver.Refused, "lockclient: the ticket's id is of another client")
	}
	return d.client + "." + number, nil
}

// ticketOf is the reverse of idOf; empty for an id of another client.
func (d *Driver) ticketOf(id string) string {
	number, ok := strings.CutPrefix(id, d.client+".")
	d.mu.Lock()
	defer d.mu.Unlock()
	if !ok || d.prefix == "" {
		return ""
	}
	return d.prefix + ":" + number
}

// record is the driver's knowledge of a ticket, in its DriverData. Driver.mu guards it.
type record struct {
	servers []string // that have answered about it
	had     []string // those of them that had it
	moved   bool     // another server may have a ticket of it: several answered, or an answer was missed
	token   uint64   // of the grant, as the servers write it; 0: not granted
	waits   bool     // a server has answered that it waits
	leaving bool     // a release was sent
	left    bool     // and answered
}

// recordOf returns the record of a ticket. Nil: it never joined.
func recordOf(t *driver.Ticket) *record {
	r, _ := t.DriverData.(*record)
	return r
}

// note keeps what an answer about a ticket, or its absence, says. e is the answer's entry
// of that ticket.
func (d *Driver) note(r *record, a *answer, e *entry, err error) {
	if r == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil || a == nil {
		class := driver.ClassOf(err)
		r.moved = r.moved || class == driver.Unknown
		return
	}
	if !slices.Contains(r.servers, a.Server) {
		r.servers = append(r.servers, a.Server)
	}
	if e.State != "" && !slices.Contains(r.had, a.Server) {
		r.had = append(r.had, a.Server)
	}
	r.moved = r.moved || a.missed || len(r.servers) > 1 || a.status >= http.StatusInternalServerError
}
