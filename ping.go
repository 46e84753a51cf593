package holdfast

import (
	"context"
	"fmt"
	"time"
)

// pingTimeout bounds Ping.
const pingTimeout = 5 * time.Second

// pingName is the name that Ping reads. A lock may have it.
const pingName = "holdfast/ping"

// Ping returns nil if the store answers. It is for the readiness probe of a
// service; a liveness probe that uses it restarts all services when the store
// fails. It reads the queue of one name, takes no lock and writes nothing. It
// blocks for a round trip, at most until ctx ends or for 5 s. The error is a
// *StoreError, or matches ErrClosed from Shutdown or Close on.
func (c *Client) Ping(ctx context.Context) error {
	if err := c.checkCall(ctx); err != nil {
		return err
	}
	if c.closing() {
		return fmt.Errorf("holdfast: ping: %w", ErrClosed)
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	full := c.settings.prefix + pingName
	err := c.read(ctx, "ping", "", func(ctx context.Context) error {
		_, err := c.lanes.of(full).inspectQueue(ctx, full)
		return err
	})
	if err != nil && c.closing() {
		return fmt.Errorf("holdfast: ping: %w", ErrClosed)
	}
	return err
}
