package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// F3: a TryLock whose first request is on its way when the second is refused
// leaves nothing behind, whenever the first arrives.
func TestF3_TryArrivesAfterItsRefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		h := must(t)(o.Mutex("a").Lock(bg))
		n := 0
		d.join = func(_ context.Context, tk *driver.Ticket, next joinFunc) (driver.Place, error) {
			if n++; n > 1 {
				return next()
			}
			late := *tk
			go func() {
				time.Sleep(time.Second)
				_, _ = d.Driver.Join(bg, &late, false)
			}()
			return driver.Place{}, errCut
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

// F27: the store goes back to a state in which the hold was still waiting. It
// is lost, not renewed as a place for ever, and that place is given up.
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
			restore() // the first holds again, and h waits behind it
			start := time.Now()
			if regrant {
				l, _ := o.Inspect(bg, "a")
				if err := o.Break(bg, "a", l.Tickets[0].ID); err != nil {
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

// A subscription that is not answered does not hold a Lock up for longer than
// a Join would, nor Close.
func TestSilentWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := &deaf{Driver: memlock.New(memlock.NewStore())}
		c := client(t, d)
		start := time.Now()
		_, err := c.Mutex("a").Lock(bg)
		se, ok := errors.AsType[*holdfast.StoreError](err)
		if !ok || !se.Unavailable() {
			t.Errorf("Lock: %v", err)
		}
		if got := time.Since(start); got > 11*time.Second {
			t.Errorf("Lock took %v", got)
		}
		unlock(t, must(t)(c.Mutex("a").TryLock(bg))) // needs no pushes
		start = time.Now()
		if err := c.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if d.watches != 1 {
			t.Errorf("%d attempts at a time", d.watches)
		}
	})
}

type deaf struct {
	driver.Driver
	watches int
}

func (d *deaf) Watch(ctx context.Context, _ func(string, driver.Place)) error {
	d.watches++
	<-ctx.Done()
	return ctx.Err()
}

// A driver that answers for fewer tickets than it was asked for is at fault,
// and the answer is no answer.
func TestTooFewAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		short := func(context.Context, []driver.Ref, batchFunc) ([]driver.Place, error) { return nil, nil }
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

// F2: a release that was surely not carried out does not explain why the
// ticket is gone afterwards.
func TestF2_GoneAfterARefusedLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		h := must(t)(c.Mutex("a").Lock(bg))
		n := 0
		d.leave = func(_ context.Context, refs []driver.Ref, next batchFunc) ([]driver.Place, error) {
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

// A store that does not answer is reported to all who have queued for long
// enough, not to one after the other.
func TestQueueBeforeASilentStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := hook(memlock.NewStore())
		c := client(t, d)
		d.cut()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				start := time.Now()
				_, err := c.Mutex("a").Lock(bg)
				if _, ok := errors.AsType[*holdfast.StoreError](err); !ok {
					t.Errorf("Lock: %v", err)
				}
				if got := time.Since(start); got > 30*time.Second {
					t.Errorf("waiter %d learnt it after %v", i, got)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		wg.Wait()

		// Who has just come to the ticket of another has tries of its own.
		d.heal()
		d.set(func(d *hooked) {
			d.join = func(context.Context, *driver.Ticket, joinFunc) (driver.Place, error) {
				return driver.Place{}, errCut
			}
		})
		ctx, cancel := context.WithTimeout(bg, 4900*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			_, err := c.Mutex("a").Lock(ctx)
			wantErr(t, err, context.DeadlineExceeded)
		})
		time.Sleep(4800 * time.Millisecond)
		wg.Go(func() { unlock(t, must(t)(c.Mutex("a").Lock(bg))) })
		time.Sleep(1000 * time.Millisecond)
		d.heal()
		wg.Wait()
	})
}

// F36: a gap in the pushes while a waiting ticket is being asked for: the
// answer under way may be from before the gap, so it is asked for again.
func TestF36_GapDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		d := hook(s)
		c, o := client(t, d), client(t, memlock.New(s))
		var moved func(string, driver.Place)
		d.push = func(_ string, _ driver.Place, next func(string, driver.Place)) { moved = next } // lost
		h := must(t)(o.Mutex("a").Lock(bg))
		got := make(chan time.Time)
		go func() {
			h := must(t)(c.Mutex("a").Lock(bg))
			got <- time.Now()
			unlock(t, h)
		}()
		synctest.Wait()
		answered := make(chan struct{})
		d.set(func(d *hooked) {
			d.renew = func(_ context.Context, _ []driver.Ref, next batchFunc) ([]driver.Place, error) {
				ps, err := next()
				<-answered
				return ps, err
			}
		})
		time.Sleep(ttl/3 + time.Second) // waiting, says the answer under way
		unlock(t, h)
		moved("", driver.Place{})
		start := time.Now()
		close(answered)
		if waited := (<-got).Sub(start); waited != 0 {
			t.Errorf("waited %v after the gap", waited)
		}
	})
}

// F47: the wait has ended and the turn has come when the waiter looks.
func TestF47_EndAndGrantAtOnce(t *testing.T) {
	for range 40 { // which of the two it sees first is left to chance
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			busy := make(chan struct{})
			c, o := client(t, memlock.New(s), holdfast.WithObserver(&holdfast.Observer{
				Waiting: func(string, holdfast.Holder) { <-busy }})), client(t, memlock.New(s))
			h := must(t)(o.Mutex("a").Lock(bg))
			ctx, cancel := context.WithCancel(bg)
			done := make(chan error)
			go func() {
				h, err := c.Mutex("a").Lock(ctx)
				if err == nil {
					err = h.Unlock()
				}
				done <- err
			}()
			synctest.Wait()
			unlock(t, h)
			cancel()
			close(busy)
			if err := <-done; err != nil {
				wantErr(t, err, context.Canceled)
			}
			synctest.Wait()
			if n := tickets(t, o, "a"); n != 0 {
				t.Fatalf("%d tickets stay", n)
			}
		})
	}
}

// Without faults grants come in the order in which places were asked for, over
// all clients; readers may come together, and who gives up is passed over.
func TestStrictOrderOverClients(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			s := memlock.NewStore()
			type entry struct {
				asked int
				write bool
			}
			var mu sync.Mutex
			var log []entry
			var wg sync.WaitGroup
			for i := range 40 {
				time.Sleep(time.Duration(1+rnd.IntN(3000)) * time.Microsecond)
				write, stay := rnd.IntN(3) == 0, time.Duration(rnd.IntN(8000))*time.Microsecond
				ctx, cancel := bg, func() {}
				if rnd.IntN(4) == 0 {
					ctx, cancel = context.WithTimeout(bg, time.Duration(rnd.IntN(20000))*time.Microsecond)
				}
				c := client(t, memlock.New(s))
				wg.Go(func() {
					defer cancel()
					lock := c.RWMutex("rw").RLock
					if write {
						lock = c.RWMutex("rw").Lock
					}
					h, err := lock(ctx)
					if err != nil {
						wantErr(t, err, context.DeadlineExceeded)
						return
					}
					mu.Lock()
					for _, e := range log {
						if e.asked > i && (e.write || write) {
							t.Errorf("seed %d: %d (write %v) came before %d (write %v)", seed, e.asked, e.write, i, write)
						}
					}
					log = append(log, entry{i, write})
					mu.Unlock()
					time.Sleep(stay)
					unlock(t, h)
				})
				synctest.Wait()
			}
			wg.Wait()
			if len(log) < 20 {
				t.Errorf("only %d of 40 came in", len(log))
			}
		})
	}
}
