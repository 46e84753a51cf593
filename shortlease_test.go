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

// firstRenewal notes when the first renewal comes, after a Join that promises a part of a
// lease.
type firstRenewal struct {
	*memlock.Driver
	lease time.Duration
	at    chan time.Time
}

func (d firstRenewal) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	st, err := d.Driver.Join(ctx, t, wait)
	st.Lease = min(st.Lease, d.lease)
	return st, err
}

func (d firstRenewal) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	select {
	case d.at <- time.Now():
	default:
	}
	return d.Driver.Renew(ctx, refs)
}

// TestShortClaimLeavesTimeForFurtherTries takes locks with claims of parts of the TTL: two
// thirds of each are left when the first renewal is sent.
func TestShortClaimLeavesTimeForFurtherTries(t *testing.T) {
	const ttl = 12 * time.Second
	for _, c := range []struct{ lease, due time.Duration }{
		{ttl, ttl / 3}, {ttl * 8 / 9, ttl * 8 / 27}, {ttl * 2 / 3, ttl * 2 / 9}, {ttl / 3, ttl / 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := firstRenewal{memlock.New(memlock.NewStore()), c.lease, make(chan time.Time, 1)}
			client, err := holdfast.New(d)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			begun := time.Now()
			h, err := client.Mutex("n", holdfast.WithTTL(ttl)).Lock(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if took := (<-d.at).Sub(begun); took > c.due || took < c.due*9/10 {
				t.Errorf("a claim of %v: the first renewal came after %v, want %v", c.lease, took, c.due)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
