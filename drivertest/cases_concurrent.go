package drivertest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
)

// worker is one goroutine of a client that takes turns on queues. It does what
// the core does, in its simplest form: it repeats a Join with the same ticket
// when the outcome is unknown, counts its claim by the lease from before the
// request, waits for pushes, renews at Recheck, and repeats Leave until it is
// confirmed.
type worker struct {
	c   *client
	rnd *rand.Rand
	ttl time.Duration
}

// turn takes one turn on the queue and records it. It gives up waiting after
// patience, and reports whether it held.
func (h worker) turn(hist *history, t *driver.Ticket, wait bool, patience, work time.Duration) bool {
	t.TTL = h.ttl
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x := hold{id: t.ID, units: t.Units, asked: time.Now()}
	again, joinPending := false, false // to join again; whether a Join went unanswered
	var p driver.Status
	var claim time.Time // until when the place is surely kept
	for first := true; ; first = false {
		sent := time.Now()
		var err error
		p, err = h.request(ctx, t, func(ctx context.Context) ([]driver.Status, error) {
			if first || again {
				p, err := h.c.d.Join(ctx, t, wait)
				return []driver.Status{p}, err
			}
			return h.c.d.Renew(ctx, []driver.Ref{{Ticket: t, State: driver.Waiting}})
		})
		if err != nil {
			switch driver.ClassOf(err) {
			case driver.Refused:
				h.c.w.Errorf("%s: %v", t.ID, err)
				return false
			case driver.Unknown:
				again = again || first
				joinPending = joinPending || again
			default:
				again = again || first
			}
			if ctx.Err() != nil {
				break
			}
			time.Sleep(h.c.w.pollInterval())
			continue
		}
		again = false
		if p.State == driver.Gone || ctx.Err() != nil {
			break
		}
		claim = sent.Add(p.Lease - p.Lease/100)
		if p.State == driver.Held {
			break
		}
		pause := t.TTL / 3
		if p.Recheck > 0 {
			pause = min(pause, p.Recheck)
		}
		if !h.c.w.traits.Push {
			pause = min(pause, h.c.w.pollInterval())
		}
		if pushed := h.c.waitForPush(t, min(pause, time.Until(x.asked.Add(patience))+time.Millisecond)); pushed.State == driver.Held {
			p.State, p.Token = driver.Held, pushed.Token
			break
		}
	}
	held := p.State == driver.Held
	if held {
		x.from, x.token = time.Now(), p.Token
		time.Sleep(work)
		if x.to = time.Now(); x.to.After(claim) {
			x.to = claim
		}
		hist.add(x)
	}
	if p.State != driver.Gone || joinPending {
		h.leave(t, joinPending)
	}
	h.c.forget(t)
	return held
}

// holdTime returns the time for which to hold.
func (h worker) holdTime() time.Duration { return time.Duration(h.rnd.IntN(4)) * time.Millisecond / 2 }

// checkAbsent checks that the queue has nothing left of a ticket. Where a majority
// confirms a Leave, another node of a busy machine may carry it out a little later.
func (h worker) checkAbsent(t *driver.Ticket) {
	w := h.c.w
	ctx, cancel := w.limit()
	defer cancel()
	for {
		q, err := w.witness().d.Inspect(ctx, t.Name)
		if err != nil {
			w.Errorf("Inspect: %v", err)
			return
		}
		at := slices.IndexFunc(q.Tickets, func(e driver.Entry) bool { return e.ID == t.ID })
		if at < 0 {
			return
		}
		if w.traits.Fair || ctx.Err() != nil {
			w.Errorf("%s has left, and is still there, %v", t.ID, q.Tickets[at].State)
			return
		}
		time.Sleep(w.pollInterval())
	}
}

// request sends a request for one ticket. Its timeout is short, so that a lost
// answer is noticed early enough.
func (h worker) request(ctx context.Context, t *driver.Ticket, ask func(context.Context) ([]driver.Status, error)) (driver.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, t.TTL/6)
	defer cancel()
	ps, err := ask(ctx)
	if err != nil {
		return driver.Status{}, err
	}
	return ps[0], ps[0].Err
}

// leave repeats Leave until it is confirmed.
func (h worker) leave(t *driver.Ticket, joinPending bool) {
	ctx, cancel := h.c.w.limit()
	defer cancel()
	for {
		_, err := h.request(ctx, t, func(ctx context.Context) ([]driver.Status, error) {
			return h.c.d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held, JoinPending: joinPending}})
		})
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			h.c.w.Errorf("%s cannot leave: %v", t.ID, err)
			return
		}
		time.Sleep(h.c.w.pollInterval())
	}
}

// hammer lets many workers take turns on one queue, each as play decides, and
// checks what they believed. Play reports whether the worker held; at least one
// has to.
func (w *world) hammer(name string, limit int64, ttl time.Duration, open func() *client, play func(worker, *history) bool) {
	w.Helper()
	var hist history
	var wg sync.WaitGroup
	var turns atomic.Int64
	for i := range w.h.Clients {
		c := open()
		for j := range 4 {
			h := worker{c, rand.New(rand.NewPCG(uint64(i), uint64(j))), ttl}
			wg.Go(func() {
				for range w.h.Rounds {
					if w.Failed() {
						return
					}
					if play(h, &hist) {
						turns.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	hist.check(w, limit)
	if turns.Load() == 0 {
		w.Errorf("nobody ever held")
	}
	w.checkEmpty(w.name(name))
}

var hammerCases = []Case{
	{Name: "hammer-mutex", Rules: "Driver 1, Join 4, 5, F50, F56", Alone: true, run: func(w *world) {
		// Many goroutines of many clients take turns: never two at once, with
		// tokens in the order of the grants, and each gets its turn.
		w.hammer("n", 1, w.calmTTL(), w.client, func(h worker, hist *history) bool {
			t := h.c.mutex("n")
			held := h.turn(hist, t, true, w.maxWait(), h.holdTime())
			if !held && !w.Failed() {
				w.Errorf("%s waited %v in vain", t.ID, w.maxWait())
			}
			return held
		})
	}},
	{Name: "hammer-try", Rules: "Join 4", Alone: true, run: func(w *world) {
		// The same with workers that do not wait, but try again.
		w.hammer("n", 1, w.calmTTL(), w.client, func(h worker, hist *history) bool {
			for range 20 {
				if h.turn(hist, h.c.mutex("n"), false, w.maxWait(), h.holdTime()) {
					return true
				}
				time.Sleep(time.Duration(h.rnd.Int64N(int64(5 * time.Millisecond))))
			}
			return false
		})
	}},
	{Name: "hammer-readers", Rules: "Driver 1, Join 4, 5", Needs: Shared, Alone: true, run: func(w *world) {
		w.hammer("n", driver.RWLimit, w.calmTTL(), w.client, func(h worker, hist *history) bool {
			t := h.c.reader("n")
			if h.rnd.IntN(4) == 0 {
				t.Units = t.Limit
			}
			return h.turn(hist, t, true, w.maxWait(), h.holdTime())
		})
	}},
	{Name: "hammer-units", Rules: "Driver 1, Join 4", Needs: Shared, Alone: true, run: func(w *world) {
		w.hammer("n", 5, w.calmTTL(), w.client, func(h worker, hist *history) bool {
			t := h.c.ticket("n", 1+h.rnd.Int64N(5), 5)
			return h.turn(hist, t, h.rnd.IntN(4) > 0, w.maxWait(), h.holdTime())
		})
	}},
	{Name: "hammer-cancel", Rules: "Driver 2, Leave 4, F5, F47", Alone: true, run: func(w *world) {
		// Workers give up at any moment, and leave nothing behind.
		w.hammer("n", 1, w.calmTTL(), w.client, func(h worker, hist *history) bool {
			patience := w.maxWait()
			if h.rnd.IntN(2) == 0 {
				patience = time.Duration(h.rnd.Int64N(int64(20 * time.Millisecond)))
			}
			t := h.c.mutex("n")
			held := h.turn(hist, t, true, patience, h.holdTime())
			h.checkAbsent(t)
			return held
		})
	}},
	{Name: "hammer-faults", Rules: "Driver 2, 5, Join 1, 2, Leave 2, 4, F1, F2, F3, F4, F10, F15, F50", Alone: true, run: func(w *world) {
		// Requests, answers and pushes are lost, late and doubled on the way.
		// Exclusion and the order of tokens hold, and nothing is left behind.
		var seed atomic.Uint64
		var all []*faults.Driver
		var clients []*client
		w.hammer("n", 1, w.h.TTL, func() *client {
			c := w.clientWithoutWatch()
			// Longer than a lease, and shorter than any store's memory of tombstones.
			plan := faults.Random(seed.Add(1), 3, min(w.h.TTL*3/2, 45*time.Second))
			f := faults.Wrap(c.d, plan)
			all = append(all, f)
			clients = append(clients, c)
			c.d = Strict(w.T, f)
			for err := c.watchOnce(); err != nil; err = c.watchOnce() {
				time.Sleep(w.pollInterval())
			}
			w.Cleanup(func() {
				if w.Failed() {
					w.Logf("plan: %v", plan)
				}
			})
			return c
		}, func(h worker, hist *history) bool {
			patience := w.maxWait()
			if h.rnd.IntN(3) == 0 {
				patience = time.Duration(h.rnd.Int64N(int64(w.h.TTL / 2)))
			}
			t := h.c.mutex("n")
			held := h.turn(hist, t, h.rnd.IntN(5) > 0, patience, h.holdTime())
			h.checkAbsent(t)
			return held
		})
		met := 0
		for _, f := range all {
			for _, n := range f.Applied() {
				met += n
			}
		}
		if met == 0 && !w.Failed() {
			w.Errorf("no fault ever met a request")
		}
		// Requests that are still under way arrive, and leave nothing either.
		for _, c := range clients {
			c.close()
		}
		w.checkEmpty(w.name("n"))
	}},
	{Name: "hammer-lines", Rules: "Driver 1, Renew 6", Alone: true, run: func(w *world) {
		// Two queues in use at once do not disturb each other.
		var other history
		w.hammer("n", 1, w.calmTTL(), w.client, func(h worker, hist *history) bool {
			if h.rnd.IntN(2) == 0 {
				return h.turn(hist, h.c.mutex("n"), true, w.maxWait(), h.holdTime())
			}
			return h.turn(&other, h.c.mutex("m"), true, w.maxWait(), h.holdTime())
		})
		other.check(w, 1)
		w.checkEmpty(w.name("m"))
	}},
}
