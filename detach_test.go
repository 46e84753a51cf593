package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestDetachAfterTheEnd checks that Detach reports that a hold has ended, and
// that Unlock returns what Detach found.
func TestDetachAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		job := holdfast.WithOwner("job")
		h := must(t)(c.Mutex("m", job).Lock(bg))
		unlock(t, h)
		wantErr(t, h.Detach(), holdfast.ErrReleased)
		unlock(t, h)

		h = must(t)(c.Mutex("m", job).Lock(bg))
		l, _ := c.Inspect(bg, "m")
		d.push = func(string, driver.Status, func(string, driver.Status)) {} // pushes get lost
		if err := c.Break(bg, "m", l.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Detach(), holdfast.ErrLost)
		wantErr(t, h.Unlock(), holdfast.ErrLost)

		// MaxHold ends the hold while its last renewal is in flight.
		h = must(t)(c.Mutex("m", job, holdfast.WithMaxHold(time.Second)).Lock(bg))
		d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
			time.Sleep(2 * time.Second)
			return next()
		}
		wantErr(t, h.Detach(), holdfast.ErrLost)
		settle()
		if n := tickets(t, c, "m"); n != 0 {
			t.Errorf("%d tickets stay", n)
		}
	})
}

func TestDetach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a := client(t, memlock.New(s))
		job := holdfast.WithOwner("job")
		h := must(t)(a.Mutex("m", job).Lock(bg))
		time.Sleep(time.Second)
		if err := h.Detach(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, h.Err(), holdfast.ErrReleased)
		wantErr(t, h.Unlock(), holdfast.ErrReleased)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		b := client(t, memlock.New(s)) // the next process
		time.Sleep(ttl - time.Second)
		_, err := b.Mutex("m").TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		h2 := must(t)(b.Mutex("m", job).TryLock(bg))
		if h2.Token() != h.Token() {
			t.Errorf("token %d, want that of the job, %d", h2.Token(), h.Token())
		}
		if err := must(t)(b.Mutex("x").Lock(bg)).Detach(); err == nil {
			t.Error("a hold without owner was detached")
		}
		unlock(t, h2)
	})
}
