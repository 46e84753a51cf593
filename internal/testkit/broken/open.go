package broken

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// OpenAt opens a client at an address where nothing answers: it gives up.
func OpenAt(ctx context.Context, s *Store, address string) (*Driver, error) {
	limit := driver.OpenLimit
	if s.hasFlaw("open-hangs") {
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	<-ctx.Done()
	if s.hasFlaw("open-nameless") {
		address = "the server"
	}
	return nil, driver.Errorf(driver.Unavailable, "open %s: %w", address, ctx.Err())
}
