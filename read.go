package holdfast

import (
	"context"
	"fmt"
)

// read sends a request that takes no lock. Close ends it and waits for it, so that a silent
// store delays neither Close nor the call. The error of a call that Close ended matches
// ErrClosed.
func (c *Client) read(ctx context.Context, op, name string, send func(context.Context) error) error {
	if !c.beginCall() {
		return closedError(name)
	}
	defer c.calls.Done()
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.pushCtx, cancel)()
	err := send(own)
	if err == nil {
		return nil
	}
	return c.readError(ctx, op, name, err)
}

// readError returns the error of a call that the user's ctx has not ended, if Close did.
func (c *Client) readError(ctx context.Context, op, name string, err error) error {
	if c.pushCtx.Err() != nil && ctx.Err() == nil {
		return closedError(name)
	}
	return storeError(op, name, err)
}

// closedError returns the error of a call after Close, about a name if there is one.
func closedError(name string) error {
	if name == "" {
		return fmt.Errorf("holdfast: %w", ErrClosed)
	}
	return &nameError{name: name, err: ErrClosed}
}
