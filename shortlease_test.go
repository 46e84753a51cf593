package holdfast_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// restOfLease promises at a Join what is left of an earlier lease, as a driver may that finds
// a place taken by an earlier request.
type restOfLease struct{ *memlock.Driver }

func (d restOfLease) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	st, err := d.Driver.Join(ctx, t, wait)
	st.Lease = min(st.Lease, t.TTL/4)
	return st, err
}

// TestShortClaimIsRenewedInTime takes a lock whose claim is shorter than a third of its TTL:
// the client renews it before that ends.
func TestShortClaimIsRenewedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := holdfast.New(restOfLease{memlock.New(memlock.NewStore())})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		h, err := c.Mutex("n", holdfast.WithTTL(8*time.Second)).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
