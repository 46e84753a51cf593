package server

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Confirmation has the conditions that replicas must meet before a grant is
// shown, and the verdicts so far. All servers of a driver share it.
//
// The client that was granted writes to its ticket, and then waits until
// enough replicas have that write, and so the grant before it. A ticket is
// never both confirmed and given back: both come from one verdict.
//
// Under mu, only the mutex of the driver's life is taken.
type Confirmation struct {
	replicas int
	within   time.Duration
	tooFew   error // is wrapped by the error of a join whose grant too few replicas confirmed

	mu       sync.Mutex
	waiting  map[string]*driver.Ticket // tickets that a push may be about
	verdicts map[string]*verdict
}

// verdict is the outcome of confirming one ticket.
type verdict struct {
	done chan struct{}
	err  error
}

// DefaultWithin is the time that replicas have unless the options say
// otherwise.
const DefaultWithin = time.Second

// NewConfirmation returns a confirmation, or nil for no replicas.
func NewConfirmation(replicas int, within time.Duration, tooFew error) *Confirmation {
	if replicas == 0 {
		return nil
	}
	if within == 0 {
		within = DefaultWithin
	}
	return &Confirmation{replicas: replicas, within: within, tooFew: tooFew,
		waiting: make(map[string]*driver.Ticket), verdicts: make(map[string]*verdict)}
}

// expectPush registers a ticket that a push may be about.
func (c *Confirmation) expectPush(t *driver.Ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[t.ID] = t
}

// pushDone notes that the push for a ticket has come, or that none will.
func (c *Confirmation) pushDone(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// forget removes tickets that are gone.
func (c *Confirmation) forget(refs []driver.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range refs {
		delete(c.waiting, r.ID)
		delete(c.verdicts, r.ID)
	}
}

// forgetGone removes tickets that a renewal found to be gone: no Leave follows
// for these.
func (c *Confirmation) forgetGone(refs []driver.Ref, places []driver.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range places {
		if p.Err == nil && p.State == driver.Gone {
			delete(c.waiting, refs[i].ID)
			delete(c.verdicts, refs[i].ID)
		}
	}
}

// Remembered returns the number of tickets that a confirmation or a push may be about.
func (c *Confirmation) Remembered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.verdicts) + len(c.waiting)
}

// confirm returns nil once enough replicas have the grant of a ticket. With
// tooFew and the class Unavailable the grant has been given back; with
// any other error the outcome is unknown.
func (c *Confirmation) confirm(ctx context.Context, d *Driver, t *driver.Ticket) error {
	c.mu.Lock()
	v := c.verdicts[t.ID]
	if v == nil {
		v = &verdict{done: make(chan struct{})}
		c.verdicts[t.ID] = v
		if !d.Begin(func() { c.decide(d, t, v) }) {
			delete(c.verdicts, t.ID)
			c.mu.Unlock()
			return d.cutErr()
		}
	}
	c.mu.Unlock()
	select {
	case <-v.done:
		return v.err
	case <-ctx.Done():
		return client.Ended(ctx)
	case <-d.Done:
		return d.cutErr()
	}
}

// decide asks the replicas about a ticket's grant, gives the grant back if too
// few confirm it, and sets the verdict.
func (c *Confirmation) decide(d *Driver, t *driver.Ticket, v *verdict) {
	within := min(c.within, max(t.TTL/10, time.Millisecond))
	ctx, cancel := context.WithTimeout(context.Background(), within+OpenLimit)
	defer cancel()
	n, err := onOwnConn(ctx, d, &d.confirmConn, func(conn client.Conn) (int64, error) {
		return c.writeAndWait(d, conn, t, within)
	})
	if err == nil && n < int64(c.replicas) {
		err = driver.NotReady(0, "%w", c.tooFew)
		if left := firstOf(d.leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})); left != nil {
			err = driver.Errorf(driver.Unknown, "%w, and giving it back failed: %w", c.tooFew, left)
		}
	}
	c.mu.Lock()
	if err != nil && c.verdicts[t.ID] == v {
		delete(c.verdicts, t.ID) // the next try makes a verdict of its own
	}
	c.mu.Unlock()
	v.err = err
	close(v.done)
}

// firstOf returns the error of a call about one ticket.
func firstOf(ps []driver.Status, err error) error {
	if err != nil {
		return err
	}
	return ps[0].Err
}

// writeAndWait writes to the ticket and returns how many replicas have that
// write.
func (c *Confirmation) writeAndWait(d *Driver, conn client.Conn, t *driver.Ticket, within time.Duration) (int64, error) {
	refs, places := []driver.Ref{{Ticket: t, State: driver.Held}}, make([]driver.Status, 1)
	b := d.requests.Batches(refs)[0]
	replies, err := runAll(conn, []wire.Run{d.requests.Renewal(refs, b)})
	if err == nil {
		err = replies[0].Err
	}
	if err != nil {
		return 0, err
	}
	if lost := b.Read(refs, places, &replies[0], nil); len(lost) > 0 || places[0].State == driver.Gone {
		return 0, nil // a Leave then has no effect
	}
	if places[0].Err != nil {
		return 0, places[0].Err
	}
	return c.wait(conn, within)
}

// wait returns how many replicas have the writes of a connection, as soon as
// they are enough.
func (c *Confirmation) wait(conn client.Conn, within time.Duration) (int64, error) {
	r, err := conn.Do("WAIT", strconv.Itoa(c.replicas), strconv.FormatInt(max(within.Milliseconds(), 1), 10))
	if err != nil {
		return 0, err
	}
	return r.Int()
}

// confirmed returns p once enough replicas have confirmed its grant; a p that
// is not held is returned at once.
func (c *Confirmation) confirmed(ctx context.Context, d *Driver, t *driver.Ticket, p driver.Status) (driver.Status, error) {
	if c == nil || p.State != driver.Held {
		return p, nil
	}
	if err := c.confirm(ctx, d, t); err != nil {
		return driver.Status{}, err
	}
	c.pushDone(t.ID)
	return p, nil
}

// onPush passes a push on to notify, a grant only once it is confirmed where
// that is required.
func (c *Confirmation) onPush(d *Driver, id string, p driver.Status, notify func(string, driver.Status)) {
	if c == nil || p.State != driver.Held {
		if c != nil && p.State == driver.Gone {
			c.forget([]driver.Ref{{Ticket: &driver.Ticket{ID: id}}})
		}
		notify(id, p)
		return
	}
	c.mu.Lock()
	t := c.waiting[id]
	c.mu.Unlock()
	if t == nil {
		return // the ticket's renewal finds the grant
	}
	d.Begin(func() {
		switch err := c.confirm(context.Background(), d, t); {
		case err == nil:
			c.pushDone(id)
			notify(id, p)
		case driver.ClassOf(err) == driver.Unavailable && errors.Is(err, c.tooFew):
			c.pushDone(id)
			notify(id, driver.Status{State: driver.Gone})
		default:
			notify("", driver.Status{}) // the waiters renew and find out
		}
	})
}

// confirmAll confirms the grants that a renewal found.
func (c *Confirmation) confirmAll(ctx context.Context, d *Driver, refs []driver.Ref, places []driver.Status) {
	var wg sync.WaitGroup
	for i := range refs {
		if places[i].Err != nil || places[i].State != driver.Held || refs[i].State == driver.Held {
			continue
		}
		wg.Go(func() {
			p, err := c.confirmed(ctx, d, refs[i].Ticket, places[i])
			switch {
			case err == nil:
				places[i] = p
			case driver.ClassOf(err) == driver.Unavailable && errors.Is(err, c.tooFew):
				c.pushDone(refs[i].ID)
				places[i] = driver.Status{State: driver.Gone}
			default:
				places[i] = driver.Status{Err: err}
			}
		})
	}
	wg.Wait()
}
