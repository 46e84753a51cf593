package holdfast_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// contextKey is the key of a value in contexts of tests.
type contextKey struct{}

// TestContextOfAHold checks that a hold's context carries the values of Lock's context
// and outlives it, and that a lock with the context of a hold that has ended returns
// the cause.
func TestContextOfAHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		ctx, cancel := context.WithCancel(context.WithValue(bg, contextKey{}, "of the call"))
		h := must(t)(c.Mutex("a").Lock(ctx))
		cancel()
		settle()
		if h.Context().Err() != nil || h.Context().Value(contextKey{}) != "of the call" || h.Err() != nil {
			t.Errorf("%v, %v, %v", h.Context().Err(), h.Context().Value(contextKey{}), h.Err())
		}
		if _, has := h.Context().Deadline(); has {
			t.Error("the hold's context has a deadline")
		}
		unlock(t, h)
		_, err := c.Mutex("a").Lock(h.Context())
		wantErr(t, err, holdfast.ErrReleased)
		_, err = c.Mutex("b").TryLock(h.Context())
		wantErr(t, err, holdfast.ErrReleased)
		lost := must(t)(c.Mutex("a").Lock(bg))
		if err := other.Break(bg, "a", lost.Ticket()); err != nil {
			t.Fatal(err)
		}
		settle()
		_, err = c.Mutex("a").Lock(lost.Context())
		wantErr(t, err, holdfast.ErrLost)
		if cause, ok := errors.AsType[*holdfast.LostError](context.Cause(lost.Context())); !ok || cause.Token != lost.Token() || cause.Name != "a" || cause.Reason != holdfast.LossGone {
			t.Errorf("%+v", context.Cause(lost.Context()))
		}
		if n := tickets(t, c, "a") + tickets(t, c, "b"); n != 0 {
			t.Errorf("%d tickets", n)
		}
	})
}

// TestTokenOfTheInnermostHold checks Token for contexts that come from no hold, from a
// hold, from a nested one, and from holds of several names.
func TestTokenOfTheInnermostHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, other := client(t, memlock.New(memlock.NewStore())), client(t, memlock.New(memlock.NewStore()))
		unlock(t, must(t)(other.Mutex("a").Lock(bg)))
		outer := must(t)(c.Mutex("a").Lock(bg))
		time.Sleep(time.Second)
		stranger := must(t)(other.Mutex("a").Lock(outer.Context())) // of another store: no nesting
		if stranger.Token() == outer.Token() {
			t.Fatal("the tokens of two stores are equal: the test shows nothing")
		}
		err := c.Do(stranger.Context(), "b", func(ctx context.Context) error {
			derived, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			if got := holdfast.Token(derived, "a"); got != stranger.Token() {
				t.Errorf("token %d, want that of the innermost hold, %d", got, stranger.Token())
			}
			if got := holdfast.Token(derived, "b"); got == 0 {
				t.Errorf("token %d of b", got)
			}
			if got := holdfast.Token(derived, "c"); got != 0 {
				t.Errorf("token %d of a name that is not held", got)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		unlock(t, stranger)
		unlock(t, outer)
	})
}

// TestDeadlineStaysBeyondHalfOfTheTTL checks that more than half of the TTL is left at
// each instant while the store answers, and that Err, Deadline, Token, Ticket, Name,
// Stats, TTL and Traits send nothing.
func TestDeadlineStaysBeyondHalfOfTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		h := must(t)(c.Mutex("a").Lock(bg))
		for range 2000 {
			if left := time.Until(h.Deadline()); left <= c.TTL()/2 {
				t.Fatalf("%v are left of %v", left, c.TTL())
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait() // for a renewal that is due now
		d.cut()
		joins, renews, leaves, now := d.joins, d.sentRenews(), d.leaves, time.Now()
		for range 100 {
			_, _, _, _, _ = h.Err(), h.Deadline(), h.Token(), h.Ticket(), h.Name()
			_, _, _ = c.Stats(), c.TTL(), c.Traits()
		}
		if d.joins != joins || d.sentRenews() != renews || d.leaves != leaves || !time.Now().Equal(now) {
			t.Error("a call that reads sent something, or blocked")
		}
		d.heal()
		unlock(t, h)
	})
}

// TestHoldIsForManyGoroutines calls all methods of one hold at once, for the race
// detector: one Unlock releases, and all return what it did.
func TestHoldIsForManyGoroutines(t *testing.T) {
	c := client(t, memlock.New(memlock.NewStore()))
	for range 50 {
		h := must(t)(c.Mutex("a").Lock(bg))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, _ = h.Context(), h.Deadline() })
			all.Go(func() { _, _, _ = h.Name(), h.Ticket(), h.Token() })
			all.Go(func() {
				if err := h.Err(); err != nil && err != holdfast.ErrReleased {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := h.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// TestHandlesSendNothing checks that New and the methods that make handles send nothing
// and do not block, though the store is silent.
func TestHandlesSendNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		d.cut()
		begun := time.Now()
		c := client(t, d)
		c.Mutex("a")
		c.RWMutex("a")
		c.Semaphore("a", 3)
		c.Multi([]string{"a", "b"})
		if d.joins+d.renews+d.leaves != 0 || time.Since(begun) != 0 {
			t.Errorf("%d requests, %v", d.joins+d.renews+d.leaves, time.Since(begun))
		}
		d.heal()
		m := c.Mutex("a")
		same := m
		var all sync.WaitGroup
		n := 0
		for range 20 {
			all.Go(func() {
				if err := same.Do(bg, func(context.Context) error { n++; return nil }); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n != 20 {
			t.Errorf("%d of 20", n)
		}
	})
}

// TestNestedLocksSendNothing checks that a nested lock sends no request, and that the
// last Unlock releases.
func TestNestedLocksSendNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		outer := must(t)(c.Mutex("a").Lock(bg))
		joins := d.joins
		inner := must(t)(c.Mutex("a").Lock(outer.Context()))
		if inner.Ticket() != outer.Ticket() || inner.Token() != outer.Token() {
			t.Error("the nested hold has a ticket or token of its own")
		}
		unlock(t, outer)
		if d.leaves != 0 {
			t.Error("the first Unlock released")
		}
		unlock(t, inner)
		if d.joins != joins || d.leaves != 1 {
			t.Errorf("%d joins more, %d leaves", d.joins-joins, d.leaves)
		}
	})
}

// TestReadInsideAWrite checks that a read lock nests in its own write lock, and a write
// lock in its own read lock is ErrUpgrade.
func TestReadInsideAWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		rw := c.RWMutex("a")
		if err := rw.Do(bg, func(ctx context.Context) error {
			return rw.RDo(ctx, func(context.Context) error { return nil })
		}); err != nil {
			t.Error(err)
		}
		err := rw.RDo(bg, func(ctx context.Context) error {
			_, err := rw.Lock(ctx)
			return err
		})
		wantErr(t, err, holdfast.ErrUpgrade)
		sem := c.Semaphore("s", 3)
		err = sem.Do(bg, 2, func(ctx context.Context) error {
			_, err := sem.Acquire(ctx, 3)
			return err
		})
		wantErr(t, err, holdfast.ErrUpgrade)
	})
}

// TestTryOfReadersAndPermits checks which Try calls are granted beside holders and
// waiters.
func TestTryOfReadersAndPermits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		try := func(what string, want bool, lock func(context.Context) (*holdfast.Hold, error)) {
			t.Helper()
			h, err := lock(bg)
			if err == nil {
				unlock(t, h)
			}
			if (err == nil) != want || err != nil && !errors.Is(err, holdfast.ErrHeld) {
				t.Errorf("%s: %v", what, err)
			}
		}
		rw, sem := c.RWMutex("rw"), c.Semaphore("s", 3)
		two := func(ctx context.Context) (*holdfast.Hold, error) { return sem.TryAcquire(ctx, 2) }
		one := func(ctx context.Context) (*holdfast.Hold, error) { return sem.TryAcquire(ctx, 1) }
		r, p := must(t)(other.RWMutex("rw").RLock(bg)), must(t)(other.Semaphore("s", 3).Acquire(bg, 1))
		try("a reader beside a reader", true, rw.TryRLock)
		try("a writer beside a reader", false, rw.TryLock)
		try("two permits beside one of three", true, two)
		var all sync.WaitGroup
		all.Go(func() { unlock(t, must(t)(other.RWMutex("rw").Lock(bg))) })
		all.Go(func() { unlock(t, must(t)(other.Semaphore("s", 3).Acquire(bg, 3))) })
		settle()
		try("a reader behind a waiting writer", false, rw.TryRLock)
		try("a permit behind a waiter", false, one)
		unlock(t, r)
		unlock(t, p)
		all.Wait()
		w := must(t)(other.RWMutex("rw").Lock(bg))
		try("a reader beside a writer", false, rw.TryRLock)
		unlock(t, w)
		try("a writer of a free lock", true, rw.TryLock)
	})
}

// TestPermitsOfASemaphore checks the number of permits that a semaphore may have, that
// Unlock gives all permits of a hold back, and that one with a single permit is a mutex.
func TestPermitsOfASemaphore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		const most = 1<<31 - 1
		h := must(t)(c.Semaphore("s", most).Acquire(bg, most))
		_, err := other.Semaphore("s", most).TryAcquire(bg, 1)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
		unlock(t, must(t)(other.Semaphore("s", most).TryAcquire(bg, most)))
		if n := most; n+1 > 0 { // an int has 64 bits
			if _, err := c.Semaphore("s", n+1).TryAcquire(bg, 1); err == nil {
				t.Error("2^31 permits")
			}
		}
		h = must(t)(c.Semaphore("one", 1).Acquire(bg, 1))
		_, err = other.Mutex("one").TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
		h = must(t)(other.Mutex("one").Lock(bg))
		_, err = c.Semaphore("one", 1).TryAcquire(bg, 1)
		wantErr(t, err, holdfast.ErrHeld)
		unlock(t, h)
	})
}

// TestWideWaiterIsNotPassed checks that one who waits for one permit, which is free,
// waits behind another who came earlier and waits for more.
func TestWideWaiterIsNotPassed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		var log script
		first := must(t)(client(t, memlock.New(s)).Semaphore("s", 3).Acquire(bg, 2))
		var all sync.WaitGroup
		for _, n := range []int{3, 1} {
			c := client(t, memlock.New(s))
			all.Go(func() {
				h := must(t)(c.Semaphore("s", 3).Acquire(bg, n))
				log.say(string(rune('0' + n)))
				unlock(t, h)
			})
			settle()
		}
		if log.String() != "" {
			t.Errorf("%s passed the first waiter", log.String())
		}
		unlock(t, first)
		all.Wait()
		if log.String() != "3 1" {
			t.Errorf("order %s", log.String())
		}
	})
}

// TestLossOfOneOfSeveral checks that the loss of one name of a Multi ends the hold's
// context and its Err, that the others stay held until Unlock, and that Unlock joins
// the errors.
func TestLossOfOneOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		var order script
		d.join = func(_ context.Context, t *driver.Ticket, next joinFunc) (driver.Status, error) {
			order.say(t.Name)
			return next()
		}
		h, err := c.Multi([]string{"c", "a", "b", "a"}).Lock(bg)
		if err != nil {
			t.Fatal(err)
		}
		if order.String() != "a b c" {
			t.Errorf("taken in the order %s", order.String())
		}
		if h.Token("b") == 0 || h.Token("d") != 0 {
			t.Errorf("tokens %d, %d", h.Token("b"), h.Token("d"))
		}
		for _, name := range []string{"b", "c"} {
			l, err := other.Inspect(bg, name)
			if err == nil {
				err = other.Break(bg, name, l.Holders[0].ID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		wantErr(t, context.Cause(h.Context()), holdfast.ErrLost)
		wantErr(t, h.Err(), holdfast.ErrLost)
		time.Sleep(3 * c.TTL())
		if _, err := other.Mutex("a").TryLock(bg); !errors.Is(err, holdfast.ErrHeld) {
			t.Errorf("the name that is not lost: %v", err)
		}
		err = h.Unlock()
		var names []string
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if lost, ok := errors.AsType[*holdfast.LostError](e); ok {
					names = append(names, lost.Name)
				}
			}
		}
		if len(names) != 2 || names[0] != "b" || names[1] != "c" {
			t.Errorf("Unlock: %v of %v", names, err)
		}
		if n := tickets(t, other, "a"); n != 0 {
			t.Errorf("%d tickets", n)
		}
	})
}
