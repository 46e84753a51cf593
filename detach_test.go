package holdfast_test

import (
	"context"
	"errors"
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

// TestDetachOfASilentStore checks that a Detach which the store did not confirm is a
// StoreError, that the hold has ended, and that the owner's next client finds it until its
// lease ends, and not later.
func TestDetachOfASilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		job := holdfast.WithOwner("job")
		c, next, other := client(t, d), client(t, memlock.New(s)), client(t, memlock.New(s))
		for _, name := range []string{"taken", "left"} {
			h := must(t)(c.Mutex(name, job).Lock(bg))
			d.cut()
			failed, ok := errors.AsType[*holdfast.StoreError](h.Detach())
			if !ok || failed.Op != "detach" || failed.Name != name || !errors.Is(h.Err(), holdfast.ErrReleased) {
				t.Errorf("Detach: %v; Err: %v", failed, h.Err())
			}
			d.heal()
			if name == "taken" {
				again := must(t)(next.Mutex(name, job).TryLock(bg))
				if again.Token() != h.Token() {
					t.Errorf("token %d after %d", again.Token(), h.Token())
				}
				unlock(t, again)
				continue
			}
			_, err := other.Mutex(name).TryLock(bg)
			wantErr(t, err, holdfast.ErrHeld)
			time.Sleep(ttl + ttl/20 + time.Second)
			unlock(t, must(t)(other.Mutex(name).TryLock(bg)))
		}
	})
}

// TestDetachOfAHoldThatIsGone checks that Detach is a LostError when the store has
// dropped the hold and no push has told so.
func TestDetachOfAHoldThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		d.push = func(string, driver.Status, func(string, driver.Status)) {}
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a", holdfast.WithOwner("job")).Lock(bg))
		if err := other.Break(bg, "a", h.Ticket()); err != nil {
			t.Fatal(err)
		}
		if lost, ok := errors.AsType[*holdfast.LostError](h.Detach()); !ok || lost.Reason != holdfast.LossGone {
			t.Errorf("%+v", lost)
		}
	})
}
