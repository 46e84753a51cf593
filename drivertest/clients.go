package drivertest

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// clients has the clients of one case.
type clients struct {
	*stage

	mu     sync.Mutex
	opened []*client
}

// client opens a client that records its pushes.
func (cs *clients) client() *client {
	cs.Helper()
	c := cs.clientWithoutWatch()
	c.watch()
	return c
}

// clientIgnoringPushes opens a client that calls Watch and drops its pushes.
func (cs *clients) clientIgnoringPushes() *client {
	cs.Helper()
	c := cs.clientWithoutWatch()
	cs.retryWatch(func() error { return c.d.Watch(context.Background(), func(string, driver.Status) {}) })
	return c
}

// clientWithoutWatch opens a client that has not called Watch. It never waits.
func (cs *clients) clientWithoutWatch() *client {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.adoptLocked(cs.h.Open(cs.T))
}

// adopt makes a client of a driver.
func (cs *clients) adopt(d driver.Driver) *client {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.adoptLocked(d)
}

// adoptLocked is adopt.
func (cs *clients) adoptLocked(d driver.Driver) *client {
	c := &client{w: cs, d: d, tickets: tickets{w: cs.stage, uuid: newUUID()}, marks: marks{cs.stage, d}}
	cs.opened = append(cs.opened, c)
	return c
}

// witness is the client that inspects queues. It has no tickets of its own.
func (cs *clients) witness() *client {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.opened {
		if c.witness && !c.closed {
			return c
		}
	}
	c := cs.adoptLocked(cs.h.Open(cs.T))
	c.witness = true
	return c
}

// end removes the tickets that the case left, and closes its clients.
func (cs *clients) end() {
	defer cs.still.end()
	for _, c := range cs.opened {
		for _, t := range c.all() {
			ctx, cancel := cs.limit()
			if c.closed || c.leaveQuietly(ctx, t) != nil {
				cs.breakQuietly(ctx, t)
			}
			cancel()
		}
	}
	for _, c := range cs.opened {
		if !c.closed {
			if err := c.d.Close(); err != nil {
				cs.Errorf("Close: %v", err)
			}
		}
	}
}

// breakQuietly removes a ticket of a closed client.
func (cs *clients) breakQuietly(ctx context.Context, t *driver.Ticket) {
	d := cs.h.Open(cs.T)
	_ = d.Break(ctx, t.Name, t.ID)
	_ = d.Close()
}
