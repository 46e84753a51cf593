package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestTryBehindLocalWaiters checks that a Try does not queue behind waiters of
// its own client.
func TestTryBehindLocalWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, o := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(o.Semaphore("s", 2).Acquire(bg, 2))
		done := make(chan struct{})
		go func() { unlock(t, must(t)(c.Semaphore("s", 2).Acquire(bg, 1))); close(done) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := c.Semaphore("s", 2).TryAcquire(ctx, 1)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
		<-done
	})
}

// TestTryHearsThatItsTicketIsGone checks that a Try whose ticket an operator breaks before
// the store's answer arrives does not hold by that answer: a push has told the client.
func TestTryHearsThatItsTicketIsGone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), memlock.New(s)
		defer o.Close()
		unlock(t, must(t)(c.Mutex("other").Lock(bg))) // pushes flow afterwards
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
				d.heal()
				st, err := next()
				if err := o.Break(bg, tk.Name, tk.ID); err != nil {
					t.Error(err)
				}
				return st, err
			}
		})
		h := must(t)(c.Mutex("a").TryLock(bg))
		q, err := o.Inspect(bg, "a")
		if err != nil || len(q.Tickets) != 1 || q.Tickets[0].ID != h.Ticket() {
			t.Errorf("held with %s beside %+v, %v", h.Ticket(), q.Tickets, err)
		}
		unlock(t, h)
	})
}

// TestLostGrantOfATryDoesNotWait checks that a Try whose grant is lost before
// the Try has seen it does not wait for the next grant: by then others of its
// client are ahead, and their ticket waits.
func TestLostGrantOfATryDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, slow, look := busy(t, d)
		o := client(t, memlock.New(s))
		unlock(t, must(t)(c.Mutex("other").Lock(bg))) // pushes flow afterwards
		asked, answer := make(chan struct{}), make(chan struct{})
		d.set(func(d *hooked) {
			d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				close(asked)
				<-answer
				return next()
			}
		})
		first := make(chan *holdfast.Hold)
		go func() { first <- must(t)(c.RWMutex("a").TryRLock(bg)) }()
		<-asked
		d.heal()
		second := make(chan error, 1)
		go func() {
			_, err := c.RWMutex("a").TryRLock(slow(bg))
			second <- err
		}()
		synctest.Wait()
		close(answer) // grants to both, of whom the second is busy
		h := <-first
		theirs := make(chan *holdfast.Hold)
		go func() { theirs <- must(t)(o.RWMutex("a").Lock(bg)) }()
		synctest.Wait()
		l, err := o.Inspect(bg, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Break(bg, "a", l.Holders[0].ID); err != nil {
			t.Fatal(err)
		}
		w := <-theirs
		wantErr(t, h.Err(), holdfast.ErrLost)
		third := make(chan *holdfast.Hold)
		go func() { third <- must(t)(c.RWMutex("a").RLock(bg)) }()
		synctest.Wait()
		look()
		synctest.Wait()
		select {
		case err := <-second:
			wantErr(t, err, holdfast.ErrHeld)
		default:
			t.Error("TryRLock waits for somebody else's turn")
		}
		unlock(t, w)
		unlock(t, <-third)
	})
}

// TestF3_TryArrivesAfterItsRefusal covers F3. It checks that a TryLock whose
// first request is in flight when the second is refused leaves nothing behind,
// whenever the first arrives.
func TestF3_TryArrivesAfterItsRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		h := must(t)(o.Mutex("a").Lock(bg))
		n := 0
		d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
			if n++; n > 1 {
				return next()
			}
			late := *tk
			go func() {
				time.Sleep(time.Second)
				_, _ = d.Driver.Join(bg, &late, false)
			}()
			return driver.Status{}, errCut
		}
		_, err := c.Mutex("a").TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
		time.Sleep(2 * time.Second)
		if n := tickets(t, o, "a"); n != 0 {
			t.Errorf("%d tickets came to life", n)
		}
	})
}

// TestHeldErrorTellsWhatIsLeft checks HeldError.Left: the time after which the
// store drops the holder unless it renews, and 0 where only this client knows
// the holder.
func TestHeldErrorTellsWhatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		hooks := hook(s)
		a, b := client(t, hooks), client(t, memlock.New(s))
		left := func(c *holdfast.Client) time.Duration {
			t.Helper()
			_, err := c.Mutex("a").TryLock(bg)
			held, ok := errors.AsType[*holdfast.HeldError](err)
			if !ok {
				t.Fatalf("TryLock: %v", err)
			}
			return held.Left
		}
		h := must(t)(a.Mutex("a").Lock(bg))
		whole := driver.Keep(ttl)
		if got := left(b); got != whole {
			t.Errorf("%v is left, want %v", got, whole)
		}
		if got := left(a); got != 0 {
			t.Errorf("%v is left of a hold of the same client", got)
		}
		hooks.cut() // no more renewals, as of a process that died
		const later = 5 * time.Second
		time.Sleep(later)
		if got := left(b); got != whole-later {
			t.Errorf("%v is left after %v, want %v", got, later, whole-later)
		}
		time.Sleep(whole - later)
		unlock(t, must(t)(b.Mutex("a").TryLock(bg)))
		hooks.heal()
		_ = h.Unlock()
	})
}
