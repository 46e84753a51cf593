package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

var errCut = errors.New("connection reset")

// TestF1_LostAnswerOfJoin covers F1. It checks that the same ticket is found
// after a Join that took effect and whose answer was lost.
func TestF1_LostAnswerOfJoin(t *testing.T) {
	for _, before := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c := client(t, d)
			var ids []string
			d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
				ids = append(ids, tk.ID)
				if len(ids) > 2 {
					return next()
				}
				if !before {
					_, _ = next()
				}
				return driver.Status{}, errCut
			}
			h := must(t)(c.Mutex("a").Lock(bg))
			if len(ids) != 3 || ids[0] != ids[2] {
				t.Errorf("ids %v, want one asked three times", ids)
			}
			if n := tickets(t, c, "a"); n != 1 {
				t.Errorf("%d tickets", n)
			}
			unlock(t, h)
			if n := tickets(t, c, "a"); n != 0 {
				t.Errorf("%d tickets stay", n)
			}
		})
	}
}

// TestF3_JoinArrivesAfterItsLeave checks a Join whose answer does not come
// before the caller gives up. Whether the Join took effect or still will,
// nothing stays behind.
//
// Covers: F1, F5.
func TestF3_JoinArrivesAfterItsLeave(t *testing.T) {
	for _, late := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c, other := client(t, d), client(t, memlock.New(s))
			d.join = func(ctx context.Context, tk *driver.Ticket, next joinFunc) (driver.Status, error) {
				if late { // the request is still in flight
					copied := *tk
					go func() {
						time.Sleep(3 * time.Second)
						_, _ = d.Driver.Join(bg, &copied, true)
					}()
				} else {
					_, _ = next()
				}
				<-ctx.Done()
				return driver.Status{}, ctx.Err()
			}
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			start := time.Now()
			_, err := c.Mutex("a").Lock(ctx)
			wantErr(t, err, context.DeadlineExceeded)
			if got := time.Since(start); got != time.Second {
				t.Errorf("Lock returned after %v", got)
			}
			settle()
			if n := tickets(t, other, "a"); n != 0 {
				t.Errorf("late=%v: %d tickets stay", late, n)
			}
			time.Sleep(5 * time.Second)
			if n := tickets(t, other, "a"); n != 0 {
				t.Errorf("late=%v: %d tickets came to life again", late, n)
			}
		})
	}
}

// TestF7_SilentStore covers F7. It cancels a wait while the store is silent,
// and checks that the clean-up goes on until the store answers.
func TestF7_SilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		h := must(t)(other.Mutex("a").Lock(bg))
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error)
		go func() { _, err := c.Mutex("a").Lock(ctx); done <- err }()
		synctest.Wait()
		d.cut()
		start := time.Now()
		cancel()
		wantErr(t, <-done, context.Canceled)
		if got := time.Since(start); got != 0 {
			t.Errorf("Lock returned %v after the cancel", got)
		}
		time.Sleep(7 * time.Second)
		if n := tickets(t, other, "a"); n != 2 {
			t.Fatalf("%d tickets; the store was to be silent", n)
		}
		d.heal()
		time.Sleep(6 * time.Second) // one request is still waiting out its limit
		if n := tickets(t, other, "a"); n != 1 {
			t.Errorf("%d tickets after the store came back", n)
		}
		unlock(t, h)
	})
}

// TestF7_UnlockOfSilentStore checks that Unlock is bounded, reports an unknown
// outcome, and is finished in the background.
func TestF7_UnlockOfSilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		ctx, cancel := context.WithCancel(bg)
		h := must(t)(c.Mutex("a").Lock(ctx))
		cancel() // does not disturb Unlock
		d.cut()
		start := time.Now()
		err := h.Unlock()
		if got := time.Since(start); got > 5*time.Second {
			t.Errorf("Unlock took %v", got)
		}
		se, ok := errors.AsType[*holdfast.StoreError](err)
		if !ok || !se.Unknown() {
			t.Errorf("Unlock: %v, want an unknown outcome", err)
		}
		if err2 := h.Unlock(); err2 != err {
			t.Errorf("second Unlock: %v", err2)
		}
		d.heal()
		time.Sleep(6 * time.Second)
		unlock(t, must(t)(other.Mutex("a").TryLock(bg)))
	})
}

// TestF7_UnlockIsBoundedByItsTTL checks, on a silent store, the bound of Unlock that
// its documentation and guarantees.md promise: a third of the TTL, but 100 ms at
// least and 5 s at most.
func TestF7_UnlockIsBoundedByItsTTL(t *testing.T) {
	for ttl, bound := range map[time.Duration]time.Duration{
		20 * time.Millisecond:  100 * time.Millisecond,
		150 * time.Millisecond: 100 * time.Millisecond,
		600 * time.Millisecond: 200 * time.Millisecond,
		6 * time.Second:        2 * time.Second,
		30 * time.Second:       5 * time.Second,
	} {
		bubble(t, func(t *testing.T) {
			d := hook(memlock.NewStore())
			h := must(t)(client(t, d, holdfast.WithTTL(ttl)).Mutex("a").Lock(bg))
			d.cut()
			start := time.Now()
			err := h.Unlock()
			if took := time.Since(start); took > bound || took < bound*9/10 {
				t.Errorf("with a TTL of %v, Unlock took %v, want at most %v and not much less", ttl, took, bound)
			}
			if se, ok := errors.AsType[*holdfast.StoreError](err); !ok || !se.Unknown() {
				t.Errorf("with a TTL of %v, Unlock: %v, want an unknown outcome", ttl, err)
			}
		})
	}
}

// TestF2_LostAnswerOfLeave covers F2. It checks a release that took effect and
// whose answer was lost.
func TestF2_LostAnswerOfLeave(t *testing.T) {
	for _, before := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c, other := client(t, d), client(t, memlock.New(s))
			h := must(t)(c.Mutex("a").Lock(bg))
			n := 0
			var next *holdfast.Hold
			d.leave = func(_ context.Context, _ []driver.Ref, send batchFunc) ([]driver.Status, error) {
				if n++; n > 1 {
					return send()
				}
				if !before {
					_, _ = send()
					next = must(t)(other.Mutex("a").TryLock(bg))
				}
				return nil, errCut
			}
			unlock(t, h)
			if n != 2 {
				t.Errorf("%d Leaves", n)
			}
			if next == nil {
				next = must(t)(other.Mutex("a").TryLock(bg))
			}
			if next.Err() != nil {
				t.Errorf("the repeated Leave ended a stranger's hold: %v", next.Err())
			}
			unlock(t, next)
		})
	}
}

// TestF8_UnlockDuringRenewal covers F8. It checks that Unlock does not wait for
// a renewal in flight, whose answer is dropped.
func TestF8_UnlockDuringRenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, other := client(t, d), client(t, memlock.New(s))
		m := c.Mutex("a")
		for range 3 {
			h := must(t)(m.Lock(bg))
			for _, after := range []bool{false, true} {
				d.set(func(d *hooked) {
					d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Status, error) {
						if after {
							time.Sleep(4 * time.Second)
							return next()
						}
						ps, err := next()
						time.Sleep(4 * time.Second)
						return ps, err
					}
				})
				time.Sleep(ttl/3 + time.Second) // a renewal is in flight now
				start := time.Now()
				unlock(t, h)
				if got := time.Since(start); got != 0 {
					t.Errorf("Unlock waited %v for a renewal", got)
				}
				stranger := must(t)(other.Mutex("a").TryLock(bg))
				time.Sleep(5 * time.Second)
				if n := tickets(t, other, "a"); n != 1 {
					t.Errorf("%d tickets: the renewal revived one", n)
				}
				unlock(t, stranger)
				h = must(t)(m.Lock(bg))
			}
			unlock(t, h)
		}
	})
}

// TestF50_LostRepeatedAndFalsePushes covers F50. It checks that pushes do no
// harm if they are lost, repeated, early, or about grants of long ago.
func TestF50_LostRepeatedAndFalsePushes(t *testing.T) {
	type pushFunc = func(string, driver.Status, func(string, driver.Status))
	for name, push := range map[string]pushFunc{
		"lost": func(string, driver.Status, func(string, driver.Status)) {},
		"doubled": func(id string, p driver.Status, next func(string, driver.Status)) {
			next(id, p)
			next(id, p)
		},
		"late": func(id string, p driver.Status, next func(string, driver.Status)) {
			go func() { time.Sleep(12 * time.Second); next(id, p) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := memlock.NewStore()
				a, d := client(t, memlock.New(s)), hook(s)
				d.push = push
				b := client(t, d)
				inside := 0
				var wg sync.WaitGroup
				for _, c := range []*holdfast.Client{a, b, a, b} {
					wg.Go(func() {
						for range 5 {
							h := must(t)(c.Mutex("a").Lock(bg))
							if inside++; inside != 1 {
								t.Errorf("%d inside", inside)
							}
							time.Sleep(time.Second)
							inside--
							unlock(t, h)
						}
					})
				}
				start := time.Now()
				wg.Wait()
				if got := time.Since(start); got > 20*(ttl/3+2*time.Second) {
					t.Errorf("took %v", got)
				}
				if n := tickets(t, a, "a"); n != 0 {
					t.Errorf("%d tickets stay", n)
				}
				time.Sleep(12 * time.Second) // the late pushes arrive
			})
		})
	}
}

// TestF46_PushOvertakesAnswer covers F46. It checks that a push may overtake
// the answer to the Join that it grants.
func TestF46_PushOvertakesAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, d := client(t, memlock.New(s)), hook(s)
		b := client(t, d)
		h := must(t)(a.Mutex("a").Lock(bg))
		d.join = func(_ context.Context, _ *driver.Ticket, next joinFunc) (driver.Status, error) {
			p, err := next()
			unlock(t, h) // grants, and pushes, before the answer comes
			time.Sleep(time.Second)
			return p, err
		}
		start := time.Now()
		h2 := must(t)(b.Mutex("a").Lock(bg))
		if got := time.Since(start); got != time.Second {
			t.Errorf("held after %v", got)
		}
		if got := h2.Deadline().Sub(start); got != claim(ttl) {
			t.Errorf("the claim is %v from the Join, want %v", got, claim(ttl))
		}
		unlock(t, h2)
	})
}

// TestF36_GapInThePushes checks that after a gap in the pushes the client
// renews all waiting tickets at once.
func TestF36_GapInThePushes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		a, d := client(t, memlock.New(s)), hook(s)
		var moved func(string, driver.Status)
		d.push = func(_ string, _ driver.Status, next func(string, driver.Status)) { moved = next } // lost
		b := client(t, d)
		h := must(t)(a.Mutex("a").Lock(bg))
		got := make(chan *holdfast.Hold)
		go func() { got <- must(t)(b.Mutex("a").Lock(bg)) }()
		synctest.Wait()
		unlock(t, h)
		start := time.Now()
		moved("", driver.Status{})
		h2 := <-got
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %v after the gap", waited)
		}
		unlock(t, h2)
	})
}

// TestF26_StoreForgets checks waits across a restart of the store without its
// data.
//
// Covers: F30.
func TestF26_StoreForgets(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(driver.Epoch.AddDate(1, 0, 0))) // bubbles begin in 2000
		s := memlock.NewStore()
		a, b := client(t, memlock.New(s)), client(t, memlock.New(s))
		h := must(t)(a.Mutex("a").Lock(bg))
		got := make(chan *holdfast.Hold)
		go func() { got <- must(t)(b.Mutex("a").Lock(bg)) }()
		synctest.Wait()
		time.Sleep(time.Second)
		s.LoseData()
		start := time.Now()
		h2 := <-got // joins again, and finds the queue empty
		if waited := time.Since(start); waited > ttl/3 {
			t.Errorf("waited %v on an empty line", waited)
		}
		if h2.Token() <= h.Token() {
			t.Errorf("token %d after %d", h2.Token(), h.Token())
		}
		<-h.Context().Done()
		wantErr(t, h.Unlock(), holdfast.ErrLost)
		unlock(t, h2)
	})
}

// goroutines returns the number of goroutines that have a stack;
// runtime.NumGoroutine also counts some that have just ended.
func goroutines() int {
	all := make([]byte, 1<<20)
	return 1 + strings.Count(string(all[:runtime.Stack(all, true)]), "\n\ngoroutine ")
}

// TestTooFewAnswers checks that a reply with fewer answers than tickets counts
// as a failure of the driver, and that none of its answers is used.
func TestTooFewAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		short := func(context.Context, []driver.Ref, batchFunc) ([]driver.Status, error) { return nil, nil }
		h := must(t)(c.Mutex("a").Lock(bg))
		d.set(func(d *hooked) { d.renew, d.leave = short, short })
		time.Sleep(ttl / 2)
		if err := h.Err(); err != nil {
			t.Errorf("Err %v", err)
		}
		se, ok := errors.AsType[*holdfast.StoreError](h.Unlock())
		if !ok || !se.Unknown() {
			t.Errorf("Unlock: %v", se)
		}
		d.heal()
	})
}

// TestF2_GoneAfterARefusedLeave covers F2. It checks that a release that was
// certainly not carried out does not explain why the ticket is gone afterwards.
func TestF2_GoneAfterARefusedLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		n := 0
		d.leave = func(_ context.Context, refs []driver.Ref, next batchFunc) ([]driver.Status, error) {
			if n++; n > 1 {
				return next()
			}
			if err := o.Break(bg, "a", refs[0].ID); err != nil {
				t.Error(err)
			}
			return nil, driver.Errorf(driver.NotDone, "moved")
		}
		wantErr(t, h.Unlock(), holdfast.ErrLost)
	})
}
