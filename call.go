package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// callCtx bounds one call of a driver. It makes a timer and a channel only when
// somebody asks for Done: many calls end without anybody waiting for their
// context. It is used for one call and never again.
type callCtx struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	inner  context.Context
	cancel context.CancelFunc
}

// begin bounds a call by parent and a time from now.
func (c *callCtx) begin(parent context.Context, limit time.Duration) {
	c.parent, c.deadline = parent, time.Now().Add(limit)
	if d, ok := parent.Deadline(); ok && d.Before(c.deadline) {
		c.deadline = d
	}
}

// end stops what Done has started.
func (c *callCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// stop ends the context before its time.
func (c *callCtx) stop() {
	c.real()
	c.end()
}

// real makes the context of the standard library.
func (c *callCtx) real() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithDeadline(c.parent, c.deadline)
	}
	return c.inner
}

func (c *callCtx) made() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inner
}

// Deadline returns the earlier of the parent's and the call's own.
func (c *callCtx) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is closed when the call has to return.
func (c *callCtx) Done() <-chan struct{} { return c.real().Done() }

// Err says why, or nil.
func (c *callCtx) Err() error {
	if inner := c.made(); inner != nil {
		return inner.Err()
	}
	if err := c.parent.Err(); err != nil {
		return err
	}
	if !time.Now().Before(c.deadline) {
		return c.real().Err()
	}
	return nil
}

// Value is the parent's, but for what context.Cause looks for.
func (c *callCtx) Value(key any) any {
	if inner := c.made(); inner != nil {
		return inner.Value(key)
	}
	return c.parent.Value(key)
}

// renewAll and leaveAll are the driver's Renew and Leave; they see to it that
// there is an answer for each ticket.
func (c *Client) renewAll(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	ps, err := c.drv.Renew(ctx, refs)
	return ps, answered(len(ps), len(refs), err)
}

func (c *Client) leaveAll(ctx context.Context, refs []driver.Ref) ([]driver.Place, error) {
	ps, err := c.drv.Leave(ctx, refs)
	return ps, answered(len(ps), len(refs), err)
}

func answered(got, want int, err error) error {
	if err == nil && got != want {
		return driver.Errorf(driver.Unknown, "%d answers for %d tickets", got, want)
	}
	return err
}
