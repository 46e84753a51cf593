package drivertest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest/faults"
)

// A hand is one goroutine of a client that takes turns on lines. It does what
// the core does, in its simplest form: asks again with the same ticket when it
// does not know, claims by the lease counted from before the request, waits
// for pushes and asks at Recheck, and leaves until that is confirmed.
type hand struct {
	c   *client
	rnd *rand.Rand
	ttl time.Duration
}

// turn takes one turn on the line and writes it down. It gives up waiting
// after patience, and reports whether it held.
func (h hand) turn(hist *history, t *driver.Ticket, wait bool, patience, work time.Duration) bool {
	t.TTL = h.ttl
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	x := hold{id: t.ID, units: t.Units, asked: time.Now()}
	again, unsure := false, false // to join again; whether a Join went unanswered
	var p driver.Place
	var claim time.Time // until when the place is surely kept
	for first := true; ; first = false {
		sent := time.Now()
		var err error
		p, err = h.request(ctx, t, func(ctx context.Context) ([]driver.Place, error) {
			if first || again {
				p, err := h.c.d.Join(ctx, t, wait)
				return []driver.Place{p}, err
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
				unsure = unsure || again
			default:
				again = again || first
			}
			if ctx.Err() != nil {
				break
			}
			time.Sleep(h.c.w.tick())
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
			pause = min(pause, h.c.w.tick())
		}
		if pushed := h.c.doze(t, min(pause, time.Until(x.asked.Add(patience))+time.Millisecond)); pushed.State == driver.Held {
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
	if p.State != driver.Gone || unsure {
		h.leave(t, unsure)
	}
	h.c.settled(t)
	return held
}

// work is how long to hold.
func (h hand) work() time.Duration { return time.Duration(h.rnd.IntN(4)) * time.Millisecond / 2 }

// absent checks that nothing is left of a ticket.
func (h hand) absent(t *driver.Ticket) {
	w := h.c.w
	ctx, cancel := w.limit()
	defer cancel()
	l, err := w.witness().d.Inspect(ctx, t.Name)
	if err != nil {
		w.Errorf("Inspect: %v", err)
	}
	for _, e := range l.Tickets {
		if e.ID == t.ID {
			w.Errorf("%s has left, and is still there, %v", t.ID, e.State)
		}
	}
}

// request asks for one ticket and bounds the time of that, so that an answer
// that is lost is missed early enough.
func (h hand) request(ctx context.Context, t *driver.Ticket, ask func(context.Context) ([]driver.Place, error)) (driver.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, t.TTL/6)
	defer cancel()
	ps, err := ask(ctx)
	if err != nil {
		return driver.Place{}, err
	}
	return ps[0], ps[0].Err
}

// leave leaves until that is confirmed.
func (h hand) leave(t *driver.Ticket, unsure bool) {
	ctx, cancel := h.c.w.limit()
	defer cancel()
	for {
		_, err := h.request(ctx, t, func(ctx context.Context) ([]driver.Place, error) {
			return h.c.d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held, Unsure: unsure}})
		})
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			h.c.w.Errorf("%s cannot leave: %v", t.ID, err)
			return
		}
		time.Sleep(h.c.w.tick())
	}
}

// hammer lets many hands take turns on one line, each as play says, and checks
// what they believed. Play returns whether it held; some have to.
func (w *world) hammer(name string, limit int64, ttl time.Duration, open func() *client, play func(hand, *history) bool) {
	w.Helper()
	var hist history
	var wg sync.WaitGroup
	var turns atomic.Int64
	for i := range w.h.Clients {
		c := open()
		for j := range 4 {
			h := hand{c, rand.New(rand.NewPCG(uint64(i), uint64(j))), ttl}
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
	w.empty(w.name(name))
}

// calm is a TTL at which no hand on a slow machine loses its place.
func (w *world) calm() time.Duration { return max(w.h.TTL, min(6*time.Second, w.traits.MaxTTL)) }

var hammerCases = []Case{
	{Name: "hammer-mutex", Rules: "Driver 1, Join 4, 5, F50, F56", Alone: true, run: func(w *world) {
		// Many goroutines of many clients take turns: never two at once, with
		// tokens in their order, and all of them come to their turn.
		w.hammer("n", 1, w.calm(), w.client, func(h hand, hist *history) bool {
			t := h.c.mutex("n")
			held := h.turn(hist, t, true, w.patience(), h.work())
			if !held && !w.Failed() {
				w.Errorf("%s waited %v in vain", t.ID, w.patience())
			}
			return held
		})
	}},
	{Name: "hammer-try", Rules: "Join 4", Alone: true, run: func(w *world) {
		// The same by those who do not wait, but try again.
		w.hammer("n", 1, w.calm(), w.client, func(h hand, hist *history) bool {
			for range 20 {
				if h.turn(hist, h.c.mutex("n"), false, w.patience(), h.work()) {
					return true
				}
				time.Sleep(time.Duration(h.rnd.Int64N(int64(5 * time.Millisecond))))
			}
			return false
		})
	}},
	{Name: "hammer-readers", Rules: "Driver 1, Join 4, 5", Needs: Shared, Alone: true, run: func(w *world) {
		w.hammer("n", driver.RWLimit, w.calm(), w.client, func(h hand, hist *history) bool {
			t := h.c.reader("n")
			if h.rnd.IntN(4) == 0 {
				t.Units = t.Limit
			}
			return h.turn(hist, t, true, w.patience(), h.work())
		})
	}},
	{Name: "hammer-units", Rules: "Driver 1, Join 4", Needs: Shared, Alone: true, run: func(w *world) {
		w.hammer("n", 5, w.calm(), w.client, func(h hand, hist *history) bool {
			t := h.c.ticket("n", 1+h.rnd.Int64N(5), 5)
			return h.turn(hist, t, h.rnd.IntN(4) > 0, w.patience(), h.work())
		})
	}},
	{Name: "hammer-cancel", Rules: "Driver 2, Leave 4, F5, F47", Alone: true, run: func(w *world) {
		// They lose patience at any moment, and leave nothing behind.
		w.hammer("n", 1, w.calm(), w.client, func(h hand, hist *history) bool {
			patience := w.patience()
			if h.rnd.IntN(2) == 0 {
				patience = time.Duration(h.rnd.Int64N(int64(20 * time.Millisecond)))
			}
			t := h.c.mutex("n")
			held := h.turn(hist, t, true, patience, h.work())
			h.absent(t)
			return held
		})
	}},
	{Name: "hammer-faults", Rules: "Driver 2, 5, Join 1, 2, Leave 2, 4, F1, F2, F3, F4, F10, F15, F50", Alone: true, run: func(w *world) {
		// Requests and answers are lost, late and doubled on the way, pushes
		// as well: exclusion, tokens and cleanliness are the same.
		var seed atomic.Uint64
		var all []*faults.Driver
		var clients []*client
		w.hammer("n", 1, w.h.TTL, func() *client {
			c := w.bare()
			// Longer than a lease, and shorter than any store forgets.
			plan := faults.Random(seed.Add(1), 3, min(w.h.TTL*3/2, 45*time.Second))
			f := faults.Wrap(c.d, plan)
			all = append(all, f)
			clients = append(clients, c)
			c.d = Strict(w.T, f)
			for err := c.watchOnce(); err != nil; err = c.watchOnce() {
				time.Sleep(w.tick())
			}
			w.Cleanup(func() {
				if w.Failed() {
					w.Logf("plan: %v", plan)
				}
			})
			return c
		}, func(h hand, hist *history) bool {
			patience := w.patience()
			if h.rnd.IntN(3) == 0 {
				patience = time.Duration(h.rnd.Int64N(int64(w.h.TTL / 2)))
			}
			t := h.c.mutex("n")
			held := h.turn(hist, t, h.rnd.IntN(5) > 0, patience, h.work())
			h.absent(t)
			return held
		})
		met := 0
		for _, f := range all {
			for _, n := range f.Met() {
				met += n
			}
		}
		if met == 0 && !w.Failed() {
			w.Errorf("no fault ever met a request")
		}
		// What is still on its way arrives, and leaves nothing either.
		for _, c := range clients {
			c.close()
		}
		w.empty(w.name("n"))
	}},
	{Name: "hammer-lines", Rules: "Driver 1, Renew 6", Alone: true, run: func(w *world) {
		// Two lines at once do not disturb each other.
		var other history
		w.hammer("n", 1, w.calm(), w.client, func(h hand, hist *history) bool {
			if h.rnd.IntN(2) == 0 {
				return h.turn(hist, h.c.mutex("n"), true, w.patience(), h.work())
			}
			return h.turn(&other, h.c.mutex("m"), true, w.patience(), h.work())
		})
		other.check(w, 1)
		w.empty(w.name("m"))
	}},
}
