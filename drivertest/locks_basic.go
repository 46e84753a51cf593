package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var basicCases = []lockCase{
	{name: "count exactly", about: "100 goroutines of several clients count to 500", run: func(w *lockWorld) {
		n := 0
		var one criticalSection
		var last uint64
		var wg sync.WaitGroup
		for i := range 100 {
			if i%25 == 0 {
				c := w.client()
				for range 25 {
					wg.Go(func() {
						for range 5 {
							err := c.Do(w.limit(), w.name, func(ctx context.Context) error {
								defer one.leave()
								if err := one.enter(); err != nil {
									return err
								}
								if token := holdfast.Token(ctx, w.name); w.traits.Fencing && token <= last {
									return fmt.Errorf("token %d after %d", token, last)
								} else {
									last = token
								}
								n++
								return nil
							})
							if err != nil {
								w.Error(err)
							}
						}
					})
				}
			}
		}
		wg.Wait()
		if n != 500 {
			w.Errorf("counted to %d", n)
		}
	}},
	{name: "stock", about: "a stock is deducted to exactly nothing, never below", run: func(w *lockWorld) {
		var stock, sold atomic.Int64
		stock.Store(60)
		var wg sync.WaitGroup
		for range 8 {
			m := w.client().Mutex(w.name)
			wg.Go(func() {
				for range 10 {
					err := m.Do(w.limit(), func(context.Context) error {
						left := stock.Load()
						if left == 0 {
							return nil
						}
						time.Sleep(100 * time.Microsecond) // the deduction of the texts
						stock.Store(left - 1)
						sold.Add(1)
						return nil
					})
					if err != nil {
						w.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if stock.Load() != 0 || sold.Load() != 60 {
			w.Errorf("%d left, %d sold, of 60", stock.Load(), sold.Load())
		}
	}},
	{name: "nested", about: "a() holds and calls b(), which locks (F59)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		b := func(ctx context.Context) error {
			return c.Do(ctx, w.name, func(ctx context.Context) error { return ctx.Err() })
		}
		err := c.Do(w.limit(), w.name, func(ctx context.Context) error {
			if err := b(ctx); err != nil {
				return err
			}
			if _, err := other.Mutex(w.name).TryLock(w.limit()); !errors.Is(err, holdfast.ErrHeld) {
				return fmt.Errorf("the inner release freed the lock: %v", err)
			}
			return ctx.Err()
		})
		if err != nil {
			w.Error(err)
		}
		if n := w.tickets(c, w.name); n != 0 {
			w.Errorf("%d tickets stay", n)
		}
	}},
	{name: "held error", about: "TryLock says who holds, and overtakes nobody", run: func(w *lockWorld) {
		a, b, c := w.client(holdfast.WithNote("busy")), w.client(), w.client()
		h := w.lock(a.Mutex(w.name))
		_, err := b.Mutex(w.name).TryLock(w.limit())
		he, ok := errors.AsType[*holdfast.HeldError](err)
		if !ok {
			w.Fatalf("TryLock: %v", err)
		}
		if he.Holder != (holdfast.Holder{}) && (he.Holder.PID != os.Getpid() || he.Holder.Note != "busy") {
			w.Errorf("holder %+v", he.Holder)
		}
		if n := w.tickets(a, w.name); n != 1 {
			w.Errorf("%d tickets after a TryLock", n)
		}
		got := make(chan *holdfast.Hold, 1)
		go func() {
			h, err := b.Mutex(w.name).Lock(w.limit())
			if err != nil {
				w.Error(err)
			}
			got <- h
		}()
		w.until("b waits", func() bool { return w.tickets(a, w.name) == 2 })
		w.unlock(h)
		h = <-got
		if _, err := c.Mutex(w.name).TryLock(w.limit()); !errors.Is(err, holdfast.ErrHeld) {
			w.Errorf("TryLock of a lock handed on: %v", err)
		}
		w.unlock(h)
	}},
	{name: "order", about: "clients hold in the order in which they came", needs: ifFair, run: func(w *lockWorld) {
		first := w.client()
		h := w.lock(first.Mutex(w.name))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 6 {
			c := w.client()
			wg.Go(func() {
				h := w.lock(c.Mutex(w.name))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				w.unlock(h)
			})
			w.until("it waits", func() bool { return w.tickets(first, w.name) == i+2 })
		}
		w.unlock(h)
		wg.Wait()
		if !slices.IsSorted(order) {
			w.Errorf("order %v", order)
		}
	}},
	{name: "work longer than the lease", about: "the lease is renewed while the work runs", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		err := c.Do(w.limit(), w.name, func(ctx context.Context) error {
			refused := 0
			for end := time.Now().Add(2*w.h.TTL + w.h.TTL/2); time.Now().Before(end); time.Sleep(w.h.TTL / 8) {
				h, err := other.Mutex(w.name).TryLock(w.limit())
				_, unanswered := errors.AsType[*holdfast.StoreError](err)
				switch {
				case errors.Is(err, holdfast.ErrHeld):
					refused++
				case !unanswered: // a store of a busy machine may be slower than a try is long
					return fmt.Errorf("another came in: %v, %v", h, err)
				}
			}
			if refused == 0 {
				return errors.New("no try was ever answered")
			}
			return ctx.Err()
		})
		if err != nil {
			w.Error(err)
		}
	}},
	{name: "break", about: "an operator's Break is told, and lets the next in (F37)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		h := w.lock(c.Mutex(w.name))
		l, err := other.Inspect(w.limit(), w.name)
		if err != nil || len(l.Holders)+len(l.Waiters) != 1 {
			w.Fatalf("Inspect: %+v, %v", l, err)
		}
		if err := other.Break(w.limit(), w.name, l.Holders[0].ID); err != nil {
			w.Fatal(err)
		}
		next := w.lock(other.Mutex(w.name))
		if w.traits.Fencing && next.Token() <= h.Token() {
			w.Errorf("token %d after %d", next.Token(), h.Token())
		}
		w.until("the loss is told", func() bool { return h.Err() != nil })
		if err := h.Unlock(); !errors.Is(err, holdfast.ErrLost) {
			w.Errorf("Unlock of a broken hold: %v", err)
		}
		if err := next.Err(); err != nil {
			w.Errorf("a non-owner's Unlock ended the hold: %v", err)
		}
		w.unlock(next)
		if err := other.Break(w.limit(), w.name, l.Holders[0].ID); !errors.Is(err, holdfast.ErrNoTicket) {
			w.Errorf("Break of what is gone: %v", err)
		}
	}},
	{name: "close", about: "Close releases, and ends waits (F54)", run: func(w *lockWorld) {
		c, other := w.client(), w.client()
		h := w.lock(c.Mutex(w.name))
		theirs := w.lock(other.Mutex(w.name + "/2"))
		waits := make(chan error, 1)
		go func() { _, err := c.Mutex(w.name + "/2").Lock(w.limit()); waits <- err }()
		w.until("it waits", func() bool { return w.tickets(other, w.name+"/2") == 2 })
		if err := c.Close(); err != nil {
			w.Error(err)
		}
		if err := <-waits; !errors.Is(err, holdfast.ErrClosed) {
			w.Errorf("the wait ended with %v", err)
		}
		if err := h.Err(); !errors.Is(err, holdfast.ErrClosed) {
			w.Errorf("Err of the hold: %v", err)
		}
		if a, b := w.tickets(other, w.name), w.tickets(other, w.name+"/2"); a != 0 || b != 1 {
			w.Errorf("%d and %d tickets after Close", a, b)
		}
		w.unlock(theirs)
	}},
	{name: "many holds", about: "300 locks at once are all kept through two leases", run: func(w *lockWorld) {
		var lost atomic.Int32
		c := w.client(holdfast.WithObserver(countLosses(&lost)))
		var hs []*holdfast.Hold
		for i := range 300 {
			hs = append(hs, w.lock(c.Mutex(fmt.Sprintf("%s/%d", w.name, i))))
		}
		time.Sleep(2 * w.h.TTL)
		for _, h := range hs {
			if err := h.Err(); err != nil {
				w.Fatal(err)
			}
			w.unlock(h)
		}
		if n := lost.Load(); n != 0 {
			w.Errorf("%d losses told", n)
		}
	}},
}

func ifFair(t driver.Traits) bool { return t.Fair }

// countLosses returns an Observer that counts the holds that were lost.
func countLosses(n *atomic.Int32) *holdfast.Observer {
	return &holdfast.Observer{HoldDone: func(_ context.Context, e holdfast.HoldDoneInfo) {
		if errors.Is(e.Err, holdfast.ErrLost) {
			n.Add(1)
		}
	}}
}
