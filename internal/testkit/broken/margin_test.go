package broken_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
)

// deafToRenewals loses each renewal before it arrives.
type deafToRenewals struct{ *broken.Driver }

func (deafToRenewals) Renew(ctx context.Context, _ []driver.Ref) ([]driver.Status, error) {
	<-ctx.Done()
	return nil, driver.Wrap(driver.Unknown, context.Cause(ctx))
}

// TestNoMarginTwoHold measures for how long two hold one lock where a store keeps
// places for nine tenths of their TTL, as one does whose clock is 11 % ahead of
// the client's: a counterexample of the specifications, see
// docs/proof/counterexamples.md. With the margins that store and client keep, none
// does.
func TestNoMarginTwoHold(t *testing.T) {
	for _, tt := range []struct {
		flaw string
		two  bool
	}{{"early", true}, {broken.None, false}} {
		t.Run("flaw "+tt.flaw, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const ttl = 10 * time.Second
				s := broken.NewStore(tt.flaw)
				first, err := holdfast.New(deafToRenewals{broken.New(s)}, holdfast.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				defer first.Close()
				second, err := holdfast.New(broken.New(s), holdfast.WithTTL(ttl))
				if err != nil {
					t.Fatal(err)
				}
				defer second.Close()
				h, err := first.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				told := make(chan time.Time, 1)
				go func() {
					<-h.Context().Done()
					told <- time.Now()
				}()
				next, err := second.Mutex("n").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				granted, two := time.Now(), h.Err() == nil
				overlap := (<-told).Sub(granted)
				t.Logf("the second was granted, the first told %v later", overlap)
				if two != tt.two || (overlap > 0) != tt.two {
					t.Errorf("two held at once: %v, for %v", two, overlap)
				}
				if next.Token() <= h.Token() {
					t.Errorf("token %d after %d", next.Token(), h.Token())
				}
				if err := next.Unlock(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
