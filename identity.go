package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// Identity returns a text that is equal for two clients exactly if their locks of
// one name exclude each other: if they use the same store, database and prefix. It
// has no secrets. It may block for a round trip. The error matches ErrUnsupported if
// the driver cannot tell, or is a *StoreError.
func (c *Client) Identity(ctx context.Context) (string, error) {
	if err := c.checkCall(ctx); err != nil {
		return "", err
	}
	d, ok := c.drv.(driver.Identifier)
	if !ok {
		return "", fmt.Errorf("holdfast: identity: %w", ErrUnsupported)
	}
	var id string
	err := c.read(ctx, "identity", "", func(ctx context.Context) (err error) {
		id, err = d.Identity(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s|prefix=%q", id, c.settings.prefix), nil
}
