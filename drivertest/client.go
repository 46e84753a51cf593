package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// client is a driver, and the suite's record of its tickets and pushes. Its
// methods send requests and check the answers.
type client struct {
	w       *clients
	d       driver.Driver
	witness bool
	closed  bool
	stop    context.CancelFunc // ends its Watch
	tickets
	pushLog
	marks
}

func (c *client) watch() {
	c.w.Helper()
	c.w.retryWatch(c.watchOnce)
}

func (c *client) watchOnce() error {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.w.Cleanup(cancel)
	return c.d.Watch(ctx, c.notify)
}

// awaitPush waits for a push that reports a ticket in this state.
func (c *client) awaitPush(t *driver.Ticket, s driver.State) driver.Status {
	c.w.Helper()
	var found driver.Status
	c.w.until(fmt.Sprintf("a push says that %s is %v", t.ID, s), func() bool {
		for _, p := range c.pushesOf(t) {
			if p.State == s {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

// forget drops what is known of a ticket that is gone.
func (c *client) forget(t *driver.Ticket) {
	c.tickets.drop(t)
	c.pushLog.drop(t)
}

// join joins with wait=true and expects a state.
func (c *client) join(t *driver.Ticket, want driver.State) driver.Status {
	c.w.Helper()
	return c.joinExpecting(t, true, want)
}

// try joins with wait=false and expects a state.
func (c *client) try(t *driver.Ticket, want driver.State) driver.Status {
	c.w.Helper()
	return c.joinExpecting(t, false, want)
}

func (c *client) joinExpecting(t *driver.Ticket, wait bool, want driver.State) driver.Status {
	c.w.Helper()
	p := c.joinWith(t, wait)
	if p.State != want {
		c.w.Fatalf("Join(%s, wait=%v) answers %v, want %v", t.ID, wait, p.State, want)
	}
	return p
}

// joinAny joins and accepts both Held and Waiting.
func (c *client) joinAny(t *driver.Ticket) driver.Status {
	c.w.Helper()
	p := c.joinWith(t, true)
	if p.State == driver.Gone {
		c.w.Fatalf("Join(%s) answers gone", t.ID)
	}
	return p
}

// joinWith joins and accepts any state.
func (c *client) joinWith(t *driver.Ticket, wait bool) driver.Status {
	c.w.Helper()
	ctx, cancel := c.w.limit()
	defer cancel()
	p, err := c.d.Join(ctx, t, wait)
	if err != nil {
		c.w.Fatalf("Join(%s): %v", t.ID, err)
	}
	c.checkStatus("Join", t, p)
	return p
}

// joinRefused joins and expects an error of class Refused.
func (c *client) joinRefused(t *driver.Ticket) error {
	c.w.Helper()
	ctx, cancel := c.w.limit()
	defer cancel()
	p, err := c.d.Join(ctx, t, true)
	if err == nil {
		c.w.Fatalf("Join(%s) answers %v, want an error", t.ID, p.State)
	}
	if cl := driver.ClassOf(err); cl != driver.Refused {
		c.w.Errorf("Join(%s): the class of %q is %v, want %v", t.ID, err, cl, driver.Refused)
	}
	return err
}

// checkStatus checks the duties that hold for every answer.
func (c *client) checkStatus(op string, t *driver.Ticket, p driver.Status) {
	c.w.Helper()
	switch p.State {
	case driver.Held, driver.Waiting:
		if p.Lease < t.TTL {
			c.w.Errorf("%s(%s): Lease is %v with a TTL of %v", op, t.ID, p.Lease, t.TTL)
		}
		if p.Recheck < 0 || p.Ahead < -1 {
			c.w.Errorf("%s(%s): Recheck is %v, Ahead is %d", op, t.ID, p.Recheck, p.Ahead)
		}
		if c.w.traits.Fencing && p.State == driver.Held && p.Token == 0 {
			c.w.Errorf("%s(%s): held without a token", op, t.ID)
		}
	case driver.Gone:
	default:
		c.w.Errorf("%s(%s): answers no state", op, t.ID)
	}
}

// renew renews and expects a state.
func (c *client) renew(t *driver.Ticket, want driver.State) driver.Status {
	c.w.Helper()
	p := c.renewAny(t)
	if p.State != want {
		c.w.Fatalf("Renew(%s) answers %v, want %v", t.ID, p.State, want)
	}
	return p
}

// renewAny renews, whatever the state.
func (c *client) renewAny(t *driver.Ticket) driver.Status {
	c.w.Helper()
	ps := c.renewAll([]driver.Ref{{Ticket: t, State: driver.Held}})
	c.checkStatus("Renew", t, ps[0])
	return ps[0]
}

func (c *client) renewAll(refs []driver.Ref) []driver.Status {
	c.w.Helper()
	return c.send("Renew", c.d.Renew, refs)
}

// leave leaves and expects that the ticket had a state.
func (c *client) leave(t *driver.Ticket, want driver.State) driver.Status {
	c.w.Helper()
	p := c.leaveAll([]driver.Ref{{Ticket: t, State: driver.Held}})[0]
	if p.State != want {
		c.w.Fatalf("Leave(%s) answers %v, want %v", t.ID, p.State, want)
	}
	c.forget(t)
	return p
}

func (c *client) leaveAll(refs []driver.Ref) []driver.Status {
	c.w.Helper()
	return c.send("Leave", c.d.Leave, refs)
}

// send sends a batch and expects an answer for each ticket.
func (c *client) send(op string, request func(context.Context, []driver.Ref) ([]driver.Status, error), refs []driver.Ref) []driver.Status {
	c.w.Helper()
	ctx, cancel := c.w.limit()
	defer cancel()
	ps, err := request(ctx, refs)
	if err != nil {
		c.w.Fatalf("%s: %v", op, err)
	}
	if len(ps) != len(refs) {
		c.w.Fatalf("%s of %d tickets has %d answers", op, len(refs), len(ps))
	}
	for i, p := range ps {
		if p.Err != nil {
			c.w.Fatalf("%s(%s): %v", op, refs[i].ID, p.Err)
		}
	}
	return ps
}

// leaveQuietly makes sure that a ticket has no place.
func (c *client) leaveQuietly(ctx context.Context, t *driver.Ticket) error {
	ps, err := c.d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held, JoinPending: true}})
	if err == nil && len(ps) == 1 {
		err = ps[0].Err
	}
	return err
}

// breakTicket breaks a ticket.
func (c *client) breakTicket(t *driver.Ticket) {
	c.w.Helper()
	if err := c.tryBreak(t); err != nil {
		c.w.Fatalf("Break(%s): %v", t.ID, err)
	}
}

// breakAny breaks a ticket if the store has any of it.
func (c *client) breakAny(t *driver.Ticket) {
	c.w.Helper()
	if err := c.tryBreak(t); err != nil && !errors.Is(err, driver.ErrNoTicket) {
		c.w.Fatalf("Break(%s): %v", t.ID, err)
	}
}

func (c *client) tryBreak(t *driver.Ticket) error {
	ctx, cancel := c.w.limit()
	defer cancel()
	return c.d.Break(ctx, t.Name, t.ID)
}

// awaitGrant waits until a ticket is held, as the core does: it waits for
// pushes, and renews at Recheck and every third of the harness's TTL. A ticket that
// the machine was too slow to renew in time joins anew, with another ID.
func (c *client) awaitGrant(t *driver.Ticket, p driver.Status) driver.Status {
	c.w.Helper()
	start := time.Now()
	last, ttl := start, min(t.TTL, c.w.h.TTL)
	for p.State == driver.Waiting {
		if time.Since(start) > c.w.maxWait() {
			c.w.Fatalf("%s waits for ever", t.ID)
		}
		wait := ttl / 3
		if p.Recheck > 0 {
			wait = min(wait, p.Recheck)
		}
		if !c.w.traits.Push {
			wait = min(wait, c.w.pollInterval())
		}
		c.waitForPush(t, wait)
		now := time.Now()
		if p = c.renewAny(t); p.State == driver.Gone && time.Since(last) > 2*ttl/3 {
			c.w.Logf("renewals were %v apart: joins anew", time.Since(last))
			c.tickets.joinsAnew(t)
			now = time.Now()
			p = c.joinAny(t)
		}
		last = now
	}
	if p.State != driver.Held {
		c.w.Fatalf("%s is %v, want held", t.ID, p.State)
	}
	return p
}
