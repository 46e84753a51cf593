package holdfast

import (
	"context"
	"sync"
	"time"
)

// callCtx bounds one call of a driver. It makes a timer and a channel only when
// Done is called: many calls end without a goroutine that waits for their
// context. A callCtx is used for one call only.
type callCtx struct {
	parent      context.Context
	deadline    time.Time
	storeSilent bool // guarded by queue.mu: ended because the store does not answer

	mu     sync.Mutex
	std    context.Context
	cancel context.CancelFunc
}

// begin bounds a call by parent and by a time from now.
func (c *callCtx) begin(parent context.Context, limit time.Duration) {
	c.parent, c.deadline = parent, time.Now().Add(limit)
	if d, ok := parent.Deadline(); ok && d.Before(c.deadline) {
		c.deadline = d
	}
}

// end frees the resources of Done.
func (c *callCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// stop ends the context early.
func (c *callCtx) stop() {
	c.makeStd()
	c.end()
}

// makeStd returns a context of the standard library, which the first call
// makes.
func (c *callCtx) makeStd() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.std == nil {
		c.std, c.cancel = context.WithDeadline(c.parent, c.deadline)
	}
	return c.std
}

func (c *callCtx) madeStd() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.std
}

// Deadline returns the earlier of the parent's deadline and the call's own.
func (c *callCtx) Deadline() (time.Time, bool) { return c.deadline, true }

// Done returns a channel that is closed when the call has to return.
func (c *callCtx) Done() <-chan struct{} { return c.makeStd().Done() }

// Err returns the reason why the context ended, or nil.
func (c *callCtx) Err() error {
	if inner := c.madeStd(); inner != nil {
		return inner.Err()
	}
	if err := c.parent.Err(); err != nil {
		return err
	}
	if !time.Now().Before(c.deadline) {
		return c.makeStd().Err()
	}
	return nil
}

// Value returns the parent's value, but also serves context.Cause.
func (c *callCtx) Value(key any) any {
	if inner := c.madeStd(); inner != nil {
		return inner.Value(key)
	}
	return c.parent.Value(key)
}
