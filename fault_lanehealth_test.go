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

// unavailableWithin waits for a Lock to end with a StoreError, at most until
// that long after start.
func unavailableWithin(t *testing.T, done <-chan error, start time.Time, most time.Duration) {
	t.Helper()
	var err error
	select {
	case err = <-done:
	case <-time.After(time.Hour):
		t.Fatal("Lock has not ended after an hour")
	}
	if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
		t.Errorf("Lock: %v, want a StoreError", err)
	}
	if errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v, though nobody ended its context", err)
	}
	if took := time.Since(start); took > most+50*time.Millisecond {
		t.Errorf("Lock ended after %v, want %v at most", took, most)
	}
}

// TestF106_AnswerHidesNoLaterSilence checks that an answer ends the silence of
// earlier requests, and not that of a request that still hangs: a store that
// dies right after the answer is reported in time.
func TestF106_AnswerHidesNoLaterSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		d.cut()
		done := locking(bg, c.Mutex("a"))
		time.Sleep(time.Second)
		d.set(func(d *hooked) { d.look = nil })
		if _, err := c.Inspect(bg, "b"); err != nil {
			t.Fatal(err)
		}
		d.cut()
		unavailableWithin(t, done, time.Now(), 5*time.Second)
	})
}

// TestF106_AnsweredProbesKeepALock checks that a Lock whose Join hangs goes on
// while the store answers its probes, although no other request of the client
// is answered.
func TestF106_AnsweredProbesKeepALock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		d.cut()
		d.set(func(d *hooked) {
			d.look = func(_ context.Context, next lookFunc) (driver.Queue, error) {
				time.Sleep(100 * time.Millisecond)
				return next()
			}
		})
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := c.Mutex("a").Lock(ctx)
		wantErr(t, err, context.DeadlineExceeded)
	})
}

// TestF105_NewcomerBehindAPlacedWaitEnds checks that a goroutine that comes
// after the store fell silent, and so had no place, ends in time, also behind a
// goroutine that had a place and goes on waiting.
func TestF105_NewcomerBehindAPlacedWaitEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(other.Mutex("a").Lock(bg))
		first := locking(bg, c.Mutex("a"))
		synctest.Wait()
		d.cut()
		time.Sleep(2 * ttl)
		for range 3 {
			start := time.Now()
			done := []<-chan error{locking(bg, c.Mutex("a")), locking(bg, c.Mutex("a"))}
			for _, done := range done {
				unavailableWithin(t, done, start, 5*time.Second)
			}
			time.Sleep(ttl / 3)
		}
		stillWaiting(t, first)
		unlock(t, h)
		d.heal()
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestF106_SilenceEndsEachInItsTime checks that each of several goroutines that
// find the store silent ends when its own retry budget does, whichever of them
// sends the requests.
func TestF106_SilenceEndsEachInItsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		d.cut()
		type begun struct {
			at   time.Time
			done <-chan error
		}
		var all []begun
		for range 5 {
			all = append(all, begun{time.Now(), locking(bg, c.Mutex("a"))})
			time.Sleep(900 * time.Millisecond)
		}
		for _, b := range all {
			unavailableWithin(t, b.done, b.at, 5*time.Second)
		}
	})
}

// TestF106_UnsentRequestBeginsNoSilence checks that a call whose context had
// ended sends nothing: the store does not count as silent after it, and the
// next Lock needs one request.
func TestF106_UnsentRequestBeginsNoSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		over, cancel := context.WithCancel(bg)
		cancel()
		if _, err := c.Inspect(over, "a"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Inspect: %v", err)
		}
		time.Sleep(10 * ttl)
		looks := 0
		d.look = func(_ context.Context, next lookFunc) (driver.Queue, error) { looks++; return next() }
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
		if looks != 0 {
			t.Errorf("the store was asked %d times whether it answers", looks)
		}
	})
}

// TestF106_OldSilenceCutsNoLockShort checks that a Lock gives the store its
// full time although the requests of others went unanswered long ago.
func TestF106_OldSilenceCutsNoLockShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		answersAfter(d, func() time.Duration { return 4 * time.Second })
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
		d.look = func(ctx context.Context, _ lookFunc) (driver.Queue, error) {
			<-ctx.Done()
			return driver.Queue{}, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		_, err := c.Inspect(ctx, "b")
		cancel()
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(ttl / 2)
		before := d.joins
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
		if asked := d.joins - before; asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// TestF105_DeafJoinsLetOthersIn checks a store at which Joins arrive and only
// their answers are lost, so that it grants to a client that does not know.
// Others wait for at most a lease. The Lock goes on for as long as other
// requests are answered, and holds when answers arrive.
func TestF105_DeafJoinsLetOthersIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		d.set(func(d *hooked) {
			d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
				_, _ = next()
				<-ctx.Done()
				return driver.Status{}, ctx.Err()
			}
		})
		done := locking(bg, c.Mutex("a"))
		takeTurns(t, other, ttl)
		stillWaiting(t, done)
		d.heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// takeTurns locks "a" 20 times, and checks that no turn waits longer than a dead
// waiter's place may last.
func takeTurns(t *testing.T, c *holdfast.Client, ttl time.Duration) {
	for i := range 20 {
		start := time.Now()
		h := must(t)(c.Mutex("a").Lock(bg))
		if took := time.Since(start); took > ttl+ttl/20 {
			t.Fatalf("turn %d: another client waited %v, TTL %v", i, took, ttl)
		}
		time.Sleep(ttl / 3)
		unlock(t, h)
		time.Sleep(ttl / 3)
	}
}
