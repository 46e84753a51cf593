package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestManualHoldIsNotRenewed checks that a client sends no renewal of a hold with
// WithManualRenewal, granted at once or after a wait, and that the next one holds
// after its TTL.
func TestManualHoldIsNotRenewed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		hooks := hook(s)
		c, other := client(t, hooks), client(t, memlock.New(s))
		first := must(t)(other.Mutex("a").Lock(bg))
		got := make(chan *holdfast.Hold)
		go func() {
			got <- must(t)(c.Mutex("a", holdfast.WithManualRenewal(), holdfast.WithTTL(9*time.Second)).Lock(bg))
		}()
		time.Sleep(20 * time.Second) // the place is renewed
		unlock(t, first)
		for range 2 {
			var h *holdfast.Hold
			select {
			case h = <-got:
			default:
				synctest.Wait()
				select {
				case h = <-got:
				default:
					h = must(t)(c.Mutex("a", holdfast.WithManualRenewal(), holdfast.WithTTL(9*time.Second)).Lock(bg))
				}
			}
			sent, begun := hooks.sentRenews(), time.Now()
			unlock(t, must(t)(other.Mutex("a").Lock(bg)))
			if took := time.Since(begun); took > 9*time.Second+500*time.Millisecond {
				t.Errorf("the next one waited %v", took)
			}
			if n := hooks.sentRenews() - sent; n != 0 {
				t.Errorf("%d renewals", n)
			}
			wantErr(t, h.Err(), holdfast.ErrLost)
			wantErr(t, h.Renew(bg), holdfast.ErrLost)
			wantErr(t, h.Unlock(), holdfast.ErrLost)
		}
	})
}

// TestRenewKeepsManualHold checks that a hold lasts while it is renewed by hand,
// with a whole lease after each renewal, and that Renew needs a hold that lasts.
func TestRenewKeepsManualHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithTTL(9*time.Second), holdfast.WithManualRenewal())
		h := must(t)(c.Mutex("a").Lock(bg))
		for range 20 {
			time.Sleep(8 * time.Second)
			if err := h.Renew(bg); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(h.Deadline()); left < 8880*time.Millisecond {
				t.Fatalf("%v left after a renewal", left)
			}
		}
		unlock(t, h)
		wantErr(t, h.Renew(bg), holdfast.ErrReleased)
	})
}

// TestRenewOfManyHoldsIsOneRequest checks that the renewals of one call travel
// together, in the order of the holds, and those of calls meanwhile in the next.
func TestRenewOfManyHoldsIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hooks := hook(memlock.NewStore())
		c := client(t, hooks, holdfast.WithManualRenewal())
		var holds []*holdfast.Hold
		for i := range 100 {
			holds = append(holds, must(t)(c.Mutex(fmt.Sprint(i)).Lock(bg)))
		}
		before := hooks.sentRenews()
		for i, err := range c.Renew(bg, holds...) {
			if err != nil {
				t.Errorf("hold %d: %v", i, err)
			}
		}
		if n := hooks.sentRenews() - before; n != 1 {
			t.Errorf("%d requests for 100 holds, want 1", n)
		}
		unlock(t, holds[1])
		errs := c.Renew(bg, holds[0], holds[1], nil, new(holdfast.Hold))
		if errs[0] != nil || len(errs) != 4 {
			t.Error(errs)
		}
		for _, err := range errs[1:] {
			wantErr(t, err, holdfast.ErrReleased)
		}
	})
}

// TestRenewWithoutAnAnswer checks that Renew ends with its context while the store
// is silent, that the hold goes on until its claim ends, and that a renewal in time
// keeps it.
func TestRenewWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hooks := hook(memlock.NewStore())
		c := client(t, hooks, holdfast.WithManualRenewal(), holdfast.WithTTL(9*time.Second))
		h := must(t)(c.Mutex("a").Lock(bg))
		end := h.Deadline()
		hooks.cut()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		err := h.Renew(ctx)
		if e, ok := errors.AsType[*holdfast.StoreError](err); !ok || !e.Unknown() {
			t.Errorf("%v; want a StoreError of an unknown outcome", err)
		}
		wantErr(t, err, context.DeadlineExceeded)
		if err := h.Err(); err != nil || !h.Deadline().Equal(end) {
			t.Errorf("%v; the deadline was %v and is %v", err, end, h.Deadline())
		}
		hooks.heal()
		time.Sleep(3 * time.Second)
		if err := h.Renew(bg); err != nil {
			t.Error(err)
		}
		time.Sleep(8 * time.Second)
		unlock(t, h)
	})
}

// TestRenewOfHoldThatEnds checks that a Renew that waits for the store ends with the
// hold: by Unlock, by a break, or by Close.
func TestRenewOfHoldThatEnds(t *testing.T) {
	for end, want := range map[string]error{"unlock": holdfast.ErrReleased, "expiry": holdfast.ErrLost, "close": holdfast.ErrClosed} {
		t.Run(end, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				hooks := hook(memlock.NewStore())
				c := client(t, hooks, holdfast.WithManualRenewal(), holdfast.WithTTL(9*time.Second))
				h := must(t)(c.Mutex("a").Lock(bg))
				hooks.cut()
				defer hooks.heal() // before the client's Close
				result := make(chan error)
				go func() { result <- h.Renew(bg) }()
				synctest.Wait()
				var ending sync.WaitGroup
				switch end {
				case "unlock":
					ending.Go(func() { _ = h.Unlock() })
				case "close":
					ending.Go(func() { _ = c.Close() })
				}
				if err := <-result; end != "expiry" {
					wantErr(t, err, want)
				} else if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
					t.Errorf("%v; want a StoreError while the claim lasts", err)
				}
				if end == "expiry" {
					time.Sleep(9 * time.Second)
					wantErr(t, h.Renew(bg), want)
				}
				hooks.heal()
				ending.Wait()
			})
		})
	}
}

// TestManualHoldThatIsBroken checks that the push of a break ends a hold with
// WithManualRenewal at once, although the client sends no renewals.
func TestManualHoldThatIsBroken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, operator := client(t, memlock.New(s), holdfast.WithManualRenewal()), client(t, memlock.New(s))
		unlock(t, must(t)(c.Mutex("a").Lock(bg))) // the pushes flow
		h := must(t)(c.Mutex("a").Lock(bg))
		if err := operator.Break(bg, "a", h.Ticket()); err != nil {
			t.Fatal(err)
		}
		settle()
		wantErr(t, context.Cause(h.Context()), holdfast.ErrLost)
		_ = h.Unlock()
	})
}

// TestManualRenewalIsRefused checks that WithManualRenewal is an error where nobody
// could renew, and Renew of a hold that the client renews.
func TestManualRenewalIsRefused(t *testing.T) {
	c := client(t, memlock.New(memlock.NewStore()))
	manual := holdfast.WithManualRenewal()
	fn := func(context.Context) error { t.Error("the function was run"); return nil }
	_, multi := c.Multi([]string{"a", "b"}, manual).Lock(bg)
	h := must(t)(c.Mutex("a").Lock(bg))
	for what, err := range map[string]error{
		"Do": c.Do(bg, "b", fn, manual), "Lead": c.Lead(bg, "b", fn, manual), "Multi": multi, "Renew": h.Renew(bg),
		"another client's": client(t, memlock.New(memlock.NewStore())).Renew(bg, h)[0],
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "holdfast: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	unlock(t, h)
}

// TestManualHoldIsDetachedWithoutARequest checks that Detach extends no lease of a
// hold with WithManualRenewal, and that the owner's next client finds the place.
func TestManualHoldIsDetachedWithoutARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		hooks := hook(s)
		opts := []holdfast.ClientOption{holdfast.WithManualRenewal(), holdfast.WithOwner("o"), holdfast.WithTTL(9 * time.Second)}
		a, b := client(t, hooks, opts...), client(t, memlock.New(s), opts...)
		h := must(t)(a.Mutex("a").Lock(bg))
		if err := h.Detach(); err != nil {
			t.Fatal(err)
		}
		if n := hooks.sentRenews(); n != 0 {
			t.Errorf("%d renewals", n)
		}
		next := must(t)(b.Mutex("a").TryLock(bg))
		if next.Token() != h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		unlock(t, next)
	})
}

// TestWaitingIsReported checks the calls of WithWaiting: the place with its claim at
// each answer, without a place when it was lost, and none before the store answers
// or after the grant.
func TestWaitingIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		holder := client(t, memlock.New(s), holdfast.WithNote("busy"))
		c := client(t, memlock.New(s), holdfast.WithTTL(9*time.Second))
		h := must(t)(holder.Mutex("a").Lock(bg))
		var seen []holdfast.Waiting
		report := func(w holdfast.Waiting) { seen = append(seen, w); panic("dropped") }
		got := make(chan *holdfast.Hold)
		begun := time.Now()
		go func() { got <- must(t)(c.Mutex("a", holdfast.WithWaiting(report)).Lock(bg)) }()
		time.Sleep(7 * time.Second)
		synctest.Wait()
		if len(seen) != 3 { // the Join, and renewals at 3 s and 6 s
			t.Fatalf("%d calls: %+v", len(seen), seen)
		}
		for i, w := range seen {
			if left := w.Until.Sub(begun.Add(time.Duration(i) * 3 * time.Second)); left < 8880*time.Millisecond || left > 9*time.Second {
				t.Errorf("call %d: the claim ends %v after the request", i, left)
			}
			if w.Ahead != 1 || w.Holder.Note != "busy" {
				t.Errorf("call %d: %d ahead, holder %+v", i, w.Ahead, w.Holder)
			}
		}
		info, err := holder.Inspect(bg, "a")
		if err != nil || len(info.Waiters) != 1 {
			t.Fatal(info, err)
		}
		if err := holder.Break(bg, "a", info.Waiters[0].ID); err != nil {
			t.Fatal(err)
		}
		settle()
		if len(seen) != 5 || !seen[3].Until.IsZero() || seen[3].Ahead != -1 || seen[4].Until.IsZero() {
			t.Errorf("after the place was lost: %+v", seen[3:])
		}
		unlock(t, h)
		unlock(t, <-got)
		if n := len(seen); n != 5 {
			t.Errorf("%d calls after the grant", n-5)
		}
	})
}

// TestWaitingBehindAGoroutineIsReported checks that WithWaiting is called once,
// without a claim, behind another goroutine of the same client, and never for a
// Try or a lock that is free.
func TestWaitingBehindAGoroutineIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithNote("busy"))
		calls := 0
		m := c.Mutex("a", holdfast.WithWaiting(func(w holdfast.Waiting) {
			calls++
			if !w.Until.IsZero() || w.Ahead != -1 || w.Holder.Note != "busy" {
				t.Errorf("%+v", w)
			}
		}))
		h := must(t)(m.Lock(bg))
		_, err := m.TryLock(bg)
		wantErr(t, err, holdfast.ErrHeld)
		if calls != 0 {
			t.Errorf("%d calls for a free lock and a Try", calls)
		}
		got := make(chan *holdfast.Hold)
		go func() { got <- must(t)(m.Lock(bg)) }()
		time.Sleep(time.Minute)
		unlock(t, h)
		unlock(t, <-got)
		if calls != 1 {
			t.Errorf("%d calls, want 1", calls)
		}
	})
}

// TestWithHolderNamesAnother checks what others see of a hold with WithHolder, that
// the longest values fit into a ticket, and which values are refused.
func TestWithHolderNamesAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		long := holdfast.Holder{Host: strings.Repeat(`"`, 256), PID: 1 << 40, Via: strings.Repeat(`\`, 512)}
		for _, by := range []holdfast.Holder{{Host: "app-3", PID: 4711, Via: "lockd"}, {Via: "x"}, {}, long} {
			c := client(t, memlock.New(s))
			h := must(t)(c.Mutex("a", holdfast.WithHolder(by), holdfast.WithOwner(strings.Repeat(`"`, 256)),
				holdfast.WithNote(strings.Repeat(`"`, 512))).Lock(bg))
			info, err := c.Inspect(bg, "a")
			if err != nil || len(info.Holders) != 1 {
				t.Fatal(info, err)
			}
			got := info.Holders[0]
			if got.ID != h.Ticket() || got.Holder.Since.IsZero() {
				t.Errorf("ticket %q, holder %+v; want ticket %q", got.ID, got.Holder, h.Ticket())
			}
			if got.Holder.Host != by.Host || got.Holder.PID != by.PID || got.Holder.Via != by.Via {
				t.Errorf("holder %+v, want %+v", got.Holder, by)
			}
			unlock(t, h)
		}
		c := client(t, memlock.New(s))
		for _, by := range []holdfast.Holder{{PID: -1}, {Host: "a\nb"}, {Via: "a\x00"}, {Via: "\xff"},
			{Host: strings.Repeat("h", 257)}, {Via: strings.Repeat("v", 513)}} {
			if _, err := c.Mutex("a", holdfast.WithHolder(by)).Lock(bg); err == nil || !strings.HasPrefix(err.Error(), "holdfast: holder: ") {
				t.Errorf("%+v: %v", by, err)
			}
		}
	})
	for want, h := range map[string]holdfast.Holder{
		"pid 7 on app via lockd": {Host: "app", PID: 7, Via: "lockd"},
		"pid 7 via lockd":        {PID: 7, Via: "lockd"},
		"a process on app via l": {Host: "app", Via: "l"},
		"a process via a?b":      {Via: "a\u202eb"},
		"pid 7 on app":           {Host: "app", PID: 7},
		"pid 7":                  {PID: 7},
		"a process on app":       {Host: "app"},
		"a process (why)":        {Note: "why"},
		"owner o, a process":     {Owner: "o"},
	} {
		if got := h.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestIdentityTellsStoresAndPrefixes checks that clients of one store and prefix have
// one identity, and others another.
func TestIdentityTellsStoresAndPrefixes(t *testing.T) {
	s := memlock.NewStore()
	ids := make(map[string]int)
	for _, c := range []*holdfast.Client{
		client(t, memlock.New(s)), client(t, memlock.New(s)), client(t, memlock.New(s), holdfast.WithPrefix("p")),
		client(t, memlock.New(memlock.NewStore())),
	} {
		id, err := c.Identity(bg)
		if err != nil {
			t.Fatal(err)
		}
		ids[id]++
	}
	if len(ids) != 3 {
		t.Errorf("%v; want 3 identities", ids)
	}
	type bare struct{ driver.Driver }
	_, err := client(t, bare{memlock.New(s)}).Identity(bg)
	wantErr(t, err, holdfast.ErrUnsupported)
}

// TestManualWaitEndsWithItsPlaceLeft cancels a Lock with WithManualRenewal that waits, on a
// store that takes its time for the Leave, and on one that does not answer it.
func TestManualWaitEndsWithItsPlaceLeft(t *testing.T) {
	for _, c := range []struct{ leave, want time.Duration }{{200 * time.Millisecond, 200 * time.Millisecond}, {time.Hour, 3 * time.Second}} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			hooks := hook(s)
			hooks.leave = func(ctx context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
				select {
				case <-time.After(c.leave):
					return next()
				case <-ctx.Done():
					return nil, driver.Wrap(driver.Unknown, ctx.Err())
				}
			}
			holder := client(t, memlock.New(s))
			held := must(t)(holder.Mutex("a").Lock(bg))
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			began := time.Now()
			_, err := client(t, hooks, holdfast.WithManualRenewal()).Mutex("a", holdfast.WithTTL(9*time.Second)).Lock(ctx)
			wantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(began) - time.Second; took != c.want {
				t.Errorf("a Leave of %v: Lock returned %v after its context had ended, want %v", c.leave, took, c.want)
			}
			info, err := holder.Inspect(bg, "a")
			if left := c.leave == c.want; err != nil || left != (len(info.Waiters) == 0) {
				t.Errorf("a Leave of %v: %d waiters, %v", c.leave, len(info.Waiters), err)
			}
			hooks.mu.Lock()
			hooks.leave = nil
			hooks.mu.Unlock()
			unlock(t, held)
		})
	}
}
