package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

var hardCases = []lockCase{
	{name: "cancelled waits", about: "waits that end at any instant leave nothing behind (F5, F47)", run: func(w *lockWorld) {
		const rounds = 60
		holder, waiter := w.client(), w.client()
		for i := range rounds {
			name := fmt.Sprintf("%s/%d", w.name, i%4)
			h := w.lock(holder.Mutex(name))
			ctx, cancel := context.WithTimeout(context.Background(), rand.N(3*time.Millisecond))
			done := make(chan error, 1)
			go func() {
				h, err := waiter.Mutex(name).Lock(ctx)
				if err == nil {
					err = h.Unlock()
				}
				done <- err
			}()
			time.Sleep(rand.N(3 * time.Millisecond))
			w.unlock(h)
			if err := <-done; err != nil && !errors.Is(err, context.DeadlineExceeded) {
				w.Fatal(err)
			}
			cancel()
		}
		for i := range 4 {
			name := fmt.Sprintf("%s/%d", w.name, i)
			start := time.Now()
			w.until("nothing stays", func() bool { return w.tickets(holder, name) == 0 })
			if took := time.Since(start); w.still.exceed(took, w.h.TTL/2+w.h.Slack, start) {
				w.Errorf("it took %v until nothing stayed", took)
			}
		}
	}},
	{name: "dead holder", about: "a holder cut off blocks for one lease, and knows first (F86, G3)", run: func(w *lockWorld) {
		d := newLink(w.h.Open(w.T))
		c, other := w.clientThrough(d), w.client()
		h := w.lock(c.Mutex(w.name))
		next := make(chan uint64, 1)
		var wg sync.WaitGroup
		defer wg.Wait() // its Unlock comes before the end of its client
		wg.Go(func() {
			h2, err := other.Mutex(w.name).Lock(w.limit())
			if err != nil {
				w.Error(err)
				next <- 0
				return
			}
			if err := h.Err(); err == nil {
				w.Error("the next holder came while the claim was good")
			}
			next <- h2.Token()
			w.unlock(h2)
		})
		w.until("it waits", func() bool { return w.tickets(other, w.name) == 2 })
		time.Sleep(w.h.TTL / 2)
		d.mode.Store(cut)
		start := time.Now()
		token := <-next
		limit := w.h.TTL + w.h.TTL/20 + 250*time.Millisecond + w.traits.Granularity + w.h.Slack
		if took := time.Since(start); w.still.exceed(took, limit, start) {
			w.Errorf("the next holder came after %v, TTL %v", took, w.h.TTL)
		}
		if w.traits.Fencing && token <= h.Token() {
			w.Errorf("token %d after %d", token, h.Token())
		}
		if err := h.Unlock(); !errors.Is(err, holdfast.ErrLost) {
			w.Errorf("Unlock: %v", err)
		}
	}},
	{name: "dead waiters", about: "waiters that died together delay by one lease, not by one each (F48)", run: func(w *lockWorld) {
		holder := w.client()
		h := w.lock(holder.Mutex(w.name))
		var links []*link
		for i := range 3 { // on a slow machine this may take longer than a lease
			d := newLink(w.h.Open(w.T))
			c := w.clientThrough(d)
			links = append(links, d)
			go func() { _, _ = c.Mutex(w.name).Lock(w.limit()) }()
			w.until("it waits", func() bool { return w.tickets(holder, w.name) == i+2 })
		}
		for _, d := range links {
			d.mode.Store(cut)
		}
		start := time.Now()
		w.unlock(h)
		h = w.lock(holder.Mutex(w.name))
		limit := w.h.TTL + w.h.TTL/20 + 250*time.Millisecond + w.traits.Granularity + w.h.Slack
		if took := time.Since(start); w.still.exceed(took, limit, start) {
			w.Errorf("held again after %v, TTL %v", took, w.h.TTL)
		}
		w.unlock(h)
	}},
	{name: "lost answers", about: "requests and answers that get lost change nothing but time (F1, F2, F4, F10)", run: func(w *lockWorld) {
		n := 0
		var one criticalSection
		var wg sync.WaitGroup
		for i := range 3 {
			c := w.clientWithFaults(fmt.Sprintf("seed %d; any 15%%: lose answer; any 10%%: cut request", i+1))
			wg.Go(func() {
				for range 6 {
					h, err := c.Mutex(w.name).Lock(w.limit())
					if err != nil {
						w.Errorf("Lock: %v", err)
						continue
					}
					if err := one.enter(); err != nil {
						w.Error(err)
					} else {
						n++
						time.Sleep(100 * time.Microsecond)
					}
					one.leave()
					se, unknown := errors.AsType[*holdfast.StoreError](h.Unlock())
					if unknown && !se.Unknown() {
						w.Errorf("Unlock: %v", se)
					}
				}
			})
		}
		wg.Wait()
		if n != 18 {
			w.Errorf("%d of 18", n)
		}
		c := w.client()
		w.until("nothing stays", func() bool { return w.tickets(c, w.name) == 0 })
	}},
	{name: "lost pushes", about: "pushes that get lost or doubled delay, and change nothing (F50, F71, F100)", run: func(w *lockWorld) {
		n := 0
		var one criticalSection
		var wg sync.WaitGroup
		for i, plan := range []string{"push 50%: drop", "push: repeat", "push 30%: drop"} {
			c := w.clientWithFaults(fmt.Sprintf("seed %d; %s", i+1, plan))
			wg.Go(func() {
				for range 4 {
					h := w.lock(c.Mutex(w.name))
					if err := one.enter(); err != nil {
						w.Error(err)
					} else {
						n++
						time.Sleep(100 * time.Microsecond)
					}
					one.leave()
					w.unlock(h)
				}
			})
		}
		wg.Wait()
		if n != 12 {
			w.Errorf("%d of 12", n)
		}
	}},
}
