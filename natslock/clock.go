package natslock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// clock reads the server's clock for all requests of a driver: those that begin
// while one reading is under way share the next one, so that many requests at once
// cost few readings. The zero clock is ready for use.
type clock struct {
	mu      sync.Mutex
	reading bool
	next    *reading // asked for, and not begun; nil if there is none
}

// reading is one reading of the server's clock.
type reading struct {
	done chan struct{} // closed after now and err are set
	now  time.Time
	err  error
}

// clockPatience is the time after which a reading does not wait any more for the
// end of the one before, whose answer may be lost.
const clockPatience = 500 * time.Millisecond

// ask returns a reading that begins after ask was called. It is called by a
// goroutine of the driver, for whose end Close waits.
func (c *clock) ask(d *Driver) *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &reading{done: make(chan struct{})}
	}
	if !c.reading {
		c.reading = true
		d.work.Go(func() { c.read(d) })
	}
	return c.next
}

// wait returns the reading's result.
func (c *clock) wait(ctx context.Context, d *Driver, r *reading) (time.Time, error) {
	timer := time.NewTimer(clockPatience)
	defer timer.Stop()
	for {
		select {
		case <-r.done:
			return r.now, r.err
		case <-ctx.Done():
			return time.Time{}, driver.Wrap(driver.Unknown, context.Cause(ctx))
		case <-timer.C:
			d.work.Go(func() { c.read(d) }) // nothing to do if r is under way
		}
	}
}

// read makes readings until nobody asks for one.
func (c *clock) read(d *Driver) {
	for {
		c.mu.Lock()
		r := c.next
		c.next = nil
		if c.reading = r != nil; r == nil {
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		info, err := d.bucket.streamInfo(d.ctx)
		if r.err = err; err == nil {
			r.now = info.TimeStamp
		}
		close(r.done)
	}
}
