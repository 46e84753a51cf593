package holdfast

import (
	"context"
	"errors"
	"fmt"
)

// Errors of values that the package did not make, so that a forgotten check of
// an error is an error again, and no nil dereference.
var (
	errNoClient = errors.New("holdfast: a Client that New did not make")
	errNotMade  = errors.New("holdfast: a lock that no Client made: call Client.Mutex, RWMutex, Semaphore or Multi")
	errNoCtx    = errors.New("holdfast: the context is nil")
)

// made reports whether New made c.
func (c *Client) made() bool { return c != nil && c.drv != nil }

// checkCall refuses a call that cannot be carried out.
func (c *Client) checkCall(ctx context.Context) error {
	switch {
	case !c.made():
		return errNoClient
	case ctx == nil:
		return errNoCtx
	case c.shutdown.closeBegan():
		return fmt.Errorf("holdfast: %w", ErrClosed)
	}
	return nil
}

// made reports whether a lock call returned h. A nil hold and the zero Hold
// behave as one that was released.
func (h *Hold) made() bool { return h != nil && h.root != nil }

// made reports whether a lock call returned m.
func (m *MultiHold) made() bool { return m != nil && len(m.holds) > 0 }

// releasedContext returns the context of a hold that no lock call returned.
func releasedContext() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrReleased)
	return ctx
}
