package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

const ttl = 30 * time.Second

// claim returns the length of the claim of a hold with that TTL, counted from
// the request.
func claim(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - min(ttl/100, 20*time.Millisecond)
}

// TestHeldForHours checks that renewals keep a lock for hours, much longer than
// its lease.
func TestHeldForHours(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		for range 6 {
			time.Sleep(time.Hour)
			_, err := other.Mutex("a").TryLock(bg)
			wantErr(t, err, holdfast.ErrHeld)
			if err := h.Err(); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(h.Deadline()); left < ttl/2 || left > ttl {
				t.Fatalf("claim ends in %v", left)
			}
		}
		if got, want := d.sentRenews(), int(6*time.Hour/(ttl/3)); got < want-6 || got > want+6 {
			t.Errorf("%d renewals in 6 h, want about %d", got, want)
		}
		unlock(t, h)
		synctest.Wait() // a renewal may have been in flight
		sent := d.sentRenews()
		time.Sleep(time.Hour)
		if got := d.sentRenews(); got != sent {
			t.Errorf("%d renewals after Unlock", got-sent)
		}
	})
}

// TestLossIsToldBeforeAnyoneElseHolds checks that the claim ends at an exact
// instant, counted from before the last confirmed request, and before the store
// grants to another client.
//
// Covers: F12.
func TestLossIsToldBeforeAnyoneElseHolds(t *testing.T) {
	for _, ttl := range []time.Duration{200 * time.Millisecond, 2 * time.Second, ttl, time.Hour} {
		t.Run(ttl.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				d := hook(s)
				c, other := client(t, d, holdfast.WithTTL(ttl)), client(t, memlock.New(s), holdfast.WithTTL(ttl))
				h := must(t)(c.Mutex("a").Lock(bg))
				ctx := h.Context()
				time.Sleep(3 * ttl)
				var last time.Time
				d.set(func(d *hooked) {
					d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
						last = time.Now()
						return next()
					}
				})
				time.Sleep(ttl)
				d.cut()
				entered := make(chan time.Time, 1)
				go func() {
					h := must(t)(other.Mutex("a").Lock(bg))
					at := time.Now()
					unlock(t, h) // before the client is closed
					entered <- at
				}()
				<-ctx.Done()
				if got, want := time.Since(last), claim(ttl); got != want {
					t.Errorf("told %v after the last confirmed renewal was sent, want %v", got, want)
				}
				told := time.Now()
				lost, ok := errors.AsType[*holdfast.LostError](context.Cause(ctx))
				if !ok || lost.Name != "a" || lost.Reason != holdfast.LossExpired || lost.Token != h.Token() {
					t.Errorf("cause %#v", context.Cause(ctx))
				}
				at := <-entered
				if !told.Before(at) {
					t.Errorf("told at %v, the next holder came at %v", told, at)
				}
				if late := at.Sub(last) - ttl; late > ttl/20+time.Millisecond {
					t.Errorf("the next holder came %v after the TTL", late)
				}
				wantErr(t, h.Unlock(), holdfast.ErrLost)
				wantErr(t, h.Err(), holdfast.ErrLost)
				d.heal()
			})
		})
	}
}

// TestF14_LeaseCountsFromTheQuestion covers F14. It checks that a lease counts
// from the instant at which the request was sent.
func TestF14_LeaseCountsFromTheQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		var sent time.Time
		d.join = func(ctx context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			sent = time.Now()
			p, err := next()
			time.Sleep(4 * time.Second) // the answer travels
			return p, err
		}
		h := must(t)(c.Mutex("a").Lock(bg))
		if got := h.Deadline().Sub(sent); got != claim(ttl) {
			t.Errorf("claims %v from the question, want %v", got, claim(ttl))
		}
		d.heal()
		d.set(func(d *hooked) {
			d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				sent = time.Now()
				p, err := next()
				time.Sleep(3 * time.Second)
				return p, err
			}
		})
		time.Sleep(13 * time.Second)
		if got := h.Deadline().Sub(sent); got != claim(ttl) {
			t.Errorf("renewed: claims %v from the question, want %v", got, claim(ttl))
		}
		unlock(t, h)
	})
}

// TestF15_GrantOlderThanItsLease covers F15. It checks that a grant older than
// its lease is refused, and its ticket left.
func TestF15_GrantOlderThanItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		n := 0
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			p, err := next()
			if n++; n == 1 {
				time.Sleep(2 * ttl) // past every limit, and ignoring its context
			}
			return p, err
		}
		h := must(t)(c.Mutex("a").Lock(bg)) // with a new ticket
		if left := time.Until(h.Deadline()); n != 2 || left != claim(ttl) {
			t.Errorf("asked %d times, the claim lasts %v: a grant from two leases ago was believed", n, left)
		}
		if n := tickets(t, other, "a"); n != 1 {
			t.Errorf("%d tickets", n)
		}
		unlock(t, h)
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
	})
}

// TestF10_UnknownRenewal covers F10. It checks that an unanswered renewal
// neither ends the claim nor extends it.
func TestF10_UnknownRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		var trouble, lost atomic.Int32
		c := client(t, d, holdfast.WithObserver(onLoss(func(*holdfast.LostError) { lost.Add(1) })),
			holdfast.WithObserver(onBackgroundError(func(error) { trouble.Add(1) })))
		h := must(t)(c.Mutex("a").Lock(bg))
		before := h.Deadline()
		d.cut()
		time.Sleep(ttl / 2)
		if h.Deadline() != before {
			t.Error("a renewal without an answer moved the deadline")
		}
		if h.Err() != nil {
			t.Errorf("lost after half a TTL: %v", h.Err())
		}
		d.heal()
		time.Sleep(ttl / 4)
		if !h.Deadline().After(before) {
			t.Error("not renewed after the store came back")
		}
		time.Sleep(ttl)
		if h.Err() != nil || lost.Load() != 0 || trouble.Load() == 0 {
			t.Errorf("Err %v, %d lost, %d trouble", h.Err(), lost.Load(), trouble.Load())
		}
		unlock(t, h)
	})
}

// TestF9_BrokenHoldIsLost checks a hold that the store has dropped, or an
// operator has broken.
//
// Covers: F37.
func TestF9_BrokenHoldIsLost(t *testing.T) {
	for _, push := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			var told []*holdfast.LostError
			c := client(t, d, holdfast.WithObserver(onLoss(func(e *holdfast.LostError) { told = append(told, e) })))
			other := client(t, memlock.New(s))
			if !push {
				d.push = func(string, driver.Status, func(string, driver.Status)) {}
			}
			h := must(t)(c.Mutex("a").Lock(bg))
			l, err := other.Inspect(bg, "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Break(bg, "a", l.Holders[0].ID); err != nil {
				t.Fatal(err)
			}
			wantErr(t, other.Break(bg, "a", l.Holders[0].ID), holdfast.ErrNoTicket)
			start := time.Now()
			<-h.Context().Done()
			limit := time.Duration(0)
			if !push {
				limit = ttl / 3
			}
			if got := time.Since(start); got > limit {
				t.Errorf("told after %v, want %v", got, limit)
			}
			lost, _ := errors.AsType[*holdfast.LostError](h.Err())
			if lost == nil || lost.Reason != holdfast.LossGone {
				t.Errorf("Err %v", h.Err())
			}
			unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
			wantErr(t, h.Unlock(), holdfast.ErrLost)
			synctest.Wait()
			if len(told) != 1 {
				t.Errorf("the loss was told %d times", len(told))
			}
		})
	}
}

// TestF24_MaxHoldEndsTheHold covers F24. It checks that a worker that hangs
// loses its lock at MaxHold, and that the next holder comes at most 5 s later.
func TestF24_MaxHoldEndsTheHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		start := time.Now()
		h := must(t)(c.Mutex("a", holdfast.WithMaxHold(time.Minute)).Lock(bg))
		next := must(t)(other.Mutex("a").Lock(bg))
		if got := time.Since(start); got != time.Minute+5*time.Second {
			t.Errorf("the next holder came after %v", got)
		}
		lost, _ := errors.AsType[*holdfast.LostError](h.Err())
		if lost == nil || lost.Reason != holdfast.LossMaxHold || context.Cause(h.Context()) != error(lost) {
			t.Errorf("Err %v, cause %v", h.Err(), context.Cause(h.Context()))
		}
		wantErr(t, h.Unlock(), holdfast.ErrLost)
		if next.Err() != nil {
			t.Error("the late Unlock ended a stranger's hold")
		}
		unlock(t, next)
	})
}

// TestDo checks that Do judges the hold at the instant at which fn returns.
func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		oops := errors.New("oops")
		free := func() {
			t.Helper()
			unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
		}
		err := c.Do(bg, "a", func(ctx context.Context) error {
			if holdfast.Token(ctx, "a") == 0 {
				t.Error("no token in the context")
			}
			_, err := other.Mutex("a").TryLock(bg)
			wantErr(t, err, holdfast.ErrHeld)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		free()
		if err := c.Do(bg, "a", func(context.Context) error { return oops }); err != oops {
			t.Errorf("fn's error came back as %v", err)
		}
		free()

		ctx, cancel := context.WithCancelCause(bg)
		err = c.Do(ctx, "a", func(ctx context.Context) error {
			cancel(oops)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != oops {
			t.Errorf("the caller's cause came back as %v", err)
		}
		free()

		func() {
			defer func() {
				if recover() != "bang" {
					t.Error("the panic was swallowed")
				}
			}()
			_ = c.Do(bg, "a", func(context.Context) error { panic("bang") })
		}()
		free()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Do(bg, "a", func(context.Context) error { runtime.Goexit(); return nil })
		}()
		<-done
		free()

		for _, fnErr := range []error{nil, oops} {
			err = c.Do(bg, "a", func(ctx context.Context) error {
				d.cut()
				<-ctx.Done()
				d.heal()
				return fnErr
			})
			wantErr(t, err, holdfast.ErrLost)
			if fnErr != nil {
				wantErr(t, err, fnErr)
			}
			time.Sleep(ttl)
		}
	})
}

// TestF27_HoldBecomesAWaiter covers F27. The store goes back to a state in
// which the hold was still waiting. The test checks that the hold is lost, not
// renewed as a place for ever, and that this place is given up.
func TestF27_HoldBecomesAWaiter(t *testing.T) {
	for _, regrant := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			time.Sleep(time.Until(driver.Epoch.AddDate(1, 0, 0)))
			s := memlock.NewStore()
			d := hook(s)
			a, c, o := client(t, memlock.New(s)), client(t, d), client(t, memlock.New(s))
			first := must(t)(a.Mutex("a").Lock(bg))
			got := make(chan *holdfast.Hold)
			go func() { got <- must(t)(c.Mutex("a").Lock(bg)) }()
			synctest.Wait()
			restore := s.Snapshot()
			unlock(t, first)
			h := <-got
			time.Sleep(time.Second)
			restore() // the first ticket holds again, and that of h waits behind it
			start := time.Now()
			if regrant {
				l, _ := o.Inspect(bg, "a")
				if err := o.Break(bg, "a", l.Holders[0].ID); err != nil {
					t.Fatal(err)
				}
			}
			<-h.Context().Done()
			if got := time.Since(start); got > ttl/3 {
				t.Errorf("told after %v", got)
			}
			lost, _ := errors.AsType[*holdfast.LostError](h.Err())
			if lost == nil || lost.Reason != holdfast.LossGone {
				t.Errorf("Err %v", h.Err())
			}
			time.Sleep(2 * ttl)
			if n := tickets(t, o, "a"); n != 0 {
				t.Errorf("%d tickets stay", n)
			}
		})
	}
}
