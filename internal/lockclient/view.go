package lockclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Inspect asks for the queue of a name. The ids of tickets are those of the store.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	q := driver.Queue{Name: name}
	if err := d.ready(ctx); err != nil {
		return q, err
	}
	a, err := d.servers.ask(ctx, http.MethodGet, "/v1/lock?name="+url.QueryEscape(name), nil)
	switch {
	case err != nil:
		return q, err
	case a.status != http.StatusOK:
		return q, a.problem(a.status, a.after)
	}
	q.Limit, q.Token = limitOf(a.Kind), storeToken(a.Token)
	for _, t := range a.Holders {
		q.Tickets = append(q.Tickets, t.entry(driver.Held))
	}
	for _, t := range a.Waiters {
		q.Tickets = append(q.Tickets, t.entry(driver.Waiting))
	}
	return q, nil
}

func (t *ticket) entry(state driver.State) driver.Entry {
	return driver.Entry{ID: t.ID, Owner: t.Owner, State: state, Units: t.Units, Token: storeToken(t.Token), Left: milliseconds(t.Left), Meta: t.Holder.text()}
}

// limitOf returns the limit of a kind of lock, 0 for none.
func limitOf(kind string) int64 {
	switch kind {
	case "mutex":
		return 1
	case "read/write lock":
		return driver.RWLimit
	}
	size, _ := strings.CutPrefix(kind, "semaphore of ")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Names asks for the names that the driver may read, 1,000 at a time.
func (d *Driver) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		after := ""
		for {
			if err := d.ready(ctx); err != nil {
				yield("", err)
				return
			}
			query := url.Values{"prefix": {prefix}, "after": {after}, "limit": {"1000"}}
			a, err := d.servers.ask(ctx, http.MethodGet, "/v1/locks?"+query.Encode(), nil)
			if err == nil && a.status != http.StatusOK {
				err = a.problem(a.status, a.after)
			}
			if err != nil {
				yield("", err)
				return
			}
			for _, l := range a.Locks {
				if !yield(l.Name, nil) {
					return
				}
			}
			if after = a.Next; after == "" {
				return
			}
		}
	}
}

// servedOwner begins the owners that lock servers give to holds.
const servedOwner = "serve:"

// Break breaks a ticket, and the others of its owner if that is a lock server's: each
// server that was asked for a hold has one, and one alone would free nothing.
func (d *Driver) Break(ctx context.Context, name, ticketID string) error {
	if ticketID == "" {
		return driver.ErrNoTicket
	}
	body := map[string]any{"name": name, "ticket": ticketID}
	q, err := d.Inspect(ctx, name)
	if err != nil && driver.ClassOf(err) != driver.Refused { // without the right to read, the ticket alone is broken
		return err
	}
	if i := slices.IndexFunc(q.Tickets, func(e driver.Entry) bool { return e.ID == ticketID }); i >= 0 && strings.HasPrefix(q.Tickets[i].Owner, servedOwner) {
		body = map[string]any{"name": name, "owner": q.Tickets[i].Owner}
	}
	a, err := d.servers.ask(ctx, http.MethodPost, "/v1/break", body)
	switch {
	case err != nil:
		return err
	case a.Code == "no_ticket":
		return driver.ErrNoTicket
	case a.status != http.StatusOK:
		return a.problem(a.status, a.after)
	}
	return nil
}
