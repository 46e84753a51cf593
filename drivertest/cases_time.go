package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// keep calls renew often enough for tickets to live, for at least d, and
// expects the same states from it every time. When the machine was too slow
// for that, the case proves nothing more: keep says so and returns false.
func (w *world) keep(begun time.Time, d time.Duration, renew func() []driver.Place, want ...driver.State) bool {
	w.Helper()
	last := begun // before the requests that are known to have renewed, here the joins
	for start := time.Now(); time.Since(start) < d; {
		time.Sleep(w.h.TTL / 5)
		now := time.Now()
		for i, p := range renew() {
			if p.State == want[i] {
				continue
			}
			if gap := time.Since(last); gap > w.h.TTL {
				w.Logf("renewals were %v apart: too slow to go on", gap)
				return false
			}
			w.Fatalf("after %v of renewals, ticket %d is %v, want %v", time.Since(start), i, p.State, want[i])
		}
		last = now
	}
	return true
}

// outlives waits until t, which waits behind a ticket nobody renews, is held,
// asking all the time. It checks that the other one was kept for its lease,
// and dropped in time. The other's last request was sent at sent and answered
// at answered.
func (w *world) outlives(c *client, t *driver.Ticket, sent, answered time.Time, lease, ttl time.Duration) {
	w.Helper()
	if kept := w.outlived(c, t, sent, answered, ttl); kept < lease {
		w.Errorf("dropped after %v at the most, with a lease of %v", kept, lease)
	}
}

// outlived is outlives for a ticket that may be dropped early; it returns for
// how long it was kept at the most.
func (w *world) outlived(c *client, t *driver.Ticket, sent, answered time.Time, ttl time.Duration) time.Duration {
	w.Helper()
	for {
		asked := time.Now()
		p := c.ask(t)
		if p.State == driver.Held {
			return time.Since(sent)
		}
		if p.State != driver.Waiting {
			w.Fatalf("the waiting ticket is %v", p.State)
		}
		if kept := asked.Sub(answered); kept > w.latest(ttl) {
			w.Fatalf("still there after %v, with a TTL of %v", kept, ttl)
		}
		time.Sleep(w.tick())
	}
}

var timeCases = []Case{
	{Name: "dead-holder", Rules: "Join 9, Driver 6, Driver 7, F48", run: func(w *world) {
		// A holder that nobody renews is dropped: not before its lease is
		// over, and not later than promised.
		a, b := w.client(), w.client()
		ta, tb := a.mortal(a.mutex("n")), b.mutex("n")
		sent := time.Now()
		p := a.join(ta, driver.Held)
		answered := time.Now()
		b.join(tb, driver.Waiting)
		w.outlives(b, tb, sent, answered, p.Lease, ta.TTL)
	}},
	{Name: "dead-holder-renewed", Rules: "Join 9, Renew 3, F14", run: func(w *world) {
		// The same counted from a renewal, by the lease that the renewal
		// answered.
		a, b := w.client(), w.client()
		ta, tb := a.mortal(a.mutex("n")), b.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		time.Sleep(ta.TTL / 2)
		sent := time.Now()
		p := a.ask(ta)
		answered := time.Now()
		if p.State != driver.Held {
			w.Logf("too slow to go on")
			return
		}
		w.outlives(b, tb, sent, answered, p.Lease, ta.TTL)
	}},
	{Name: "dead-holder-try", Rules: "Driver 6, F48", run: func(w *world) {
		// TryLock alone gets past a dead holder.
		a, b := w.client(), w.client()
		ta := a.mortal(a.mutex("n"))
		sent := time.Now()
		p := a.join(ta, driver.Held)
		answered := time.Now()
		for {
			asked := time.Now()
			t := b.mutex("n")
			ctx, cancel := w.limit()
			q, err := b.d.Join(ctx, t, false)
			cancel()
			if err != nil {
				w.Fatalf("Join: %v", err)
			}
			if q.State == driver.Held {
				break
			}
			b.settled(t)
			if kept := asked.Sub(answered); kept > w.latest(ta.TTL) {
				w.Fatalf("still there after %v, with a TTL of %v", kept, ta.TTL)
			}
			time.Sleep(w.tick())
		}
		if kept := time.Since(sent); kept < p.Lease {
			w.Errorf("dropped after %v at the most, with a lease of %v", kept, p.Lease)
		}
	}},
	{Name: "dead-readers", Rules: "Driver 6, Renew 5", Needs: Shared, run: func(w *world) {
		// Of several that hold, those die that are not renewed, each by its
		// own time.
		a, b, c := w.client(), w.client(), w.client()
		long, short, wr := a.mortal(a.reader("n")), b.mortal(b.reader("n")), c.writer("n")
		long.TTL *= 2
		sent := time.Now()
		p := a.join(long, driver.Held)
		answered := time.Now()
		b.join(short, driver.Held)
		c.join(wr, driver.Waiting)
		b.ask(short)
		w.outlives(c, wr, sent, answered, p.Lease, long.TTL)
	}},
	{Name: "dead-waiter", Rules: "Driver 6, F48, F49", Needs: Fair, run: func(w *world) {
		// A waiter that nobody renews is passed over, and is told Gone when it
		// comes back.
		a, b, c := w.client(), w.client(), w.client()
		ta, dead, tc := a.mutex("n"), b.mortal(b.mutex("n")), c.mutex("n")
		a.join(ta, driver.Held)
		b.join(dead, driver.Waiting)
		time.Sleep(w.latest(dead.TTL))
		c.join(tc, driver.Waiting)
		a.leave(ta, driver.Held)
		c.renew(tc, driver.Held)
		b.renew(dead, driver.Gone)
		w.line(ta.Name, []*driver.Ticket{tc})
	}},
	{Name: "grant-extends-nothing", Rules: "Watch 2", run: func(w *world) {
		// A waiter that was granted and is not heard of lives by its last
		// renewal, not by the grant. One who needs several servers may have to
		// give way when they are slow, and holds nothing then.
		for try := 1; ; try++ {
			name := "n" + string(rune('0'+try))
			a, b, c := w.client(), w.client(), w.client()
			ta, tb, tc := a.mutex(name), b.mortal(b.mutex(name)), c.mutex(name)
			a.join(ta, driver.Held)
			sent := time.Now()
			p := b.join(tb, driver.Waiting)
			answered := time.Now()
			c.join(tc, driver.Waiting)
			time.Sleep(tb.TTL * 7 / 10)
			a.leave(ta, driver.Held)
			kept := w.outlived(c, tc, sent, answered, tb.TTL)
			if kept >= p.Lease {
				return
			}
			if w.traits.Fair || try == 5 || b.ask(tb).State == driver.Held {
				w.Errorf("dropped after %v at the most, with a lease of %v", kept, p.Lease)
				return
			}
			c.leave(tc, driver.Held)
		}
	}},
	{Name: "recheck", Rules: "Join 10, F48", Needs: Fair, run: func(w *world) {
		// A waiter that asks only when Recheck says so, or is told, comes to
		// its turn in time behind the dead.
		for _, dead := range []int{1, 4} {
			name := "behind " + string(rune('0'+dead))
			a, c := w.client(), w.client()
			var answered time.Time
			for range dead {
				a.joinAny(a.mortal(a.mutex(name)))
				answered = time.Now()
			}
			t := c.mutex(name)
			sent := time.Now()
			p := c.join(t, driver.Waiting)
			enough := 16
			if !w.traits.Push { // then it asks all the time, at a pace
				enough = int(w.latest(w.h.TTL) / (10 * time.Millisecond))
			}
			for asks := 0; p.State == driver.Waiting; asks++ {
				if p.Recheck == 0 {
					// Nothing to ask for: then the store tells.
					if c.doze(t, w.patience()).State != driver.Held {
						w.Fatalf("no Recheck, and no push")
					}
					break
				}
				if late := sent.Add(p.Recheck).Sub(answered); late > w.latest(w.h.TTL) {
					w.Errorf("Recheck is %v after the predecessor's last word; its TTL is %v", late, w.h.TTL)
				}
				if asks == enough {
					w.Fatalf("asked %d times and still waits", asks)
				}
				if c.doze(t, p.Recheck).State == driver.Held {
					break
				}
				sent = time.Now()
				p = c.ask(t)
				if kept := sent.Sub(answered); p.State == driver.Waiting && kept > w.latest(w.h.TTL) {
					w.Fatalf("still waits %v after the last word of a predecessor with a TTL of %v", kept, w.h.TTL)
				}
			}
		}
	}},
	{Name: "many-dead", Rules: "Driver 6, Join 10, F48", Needs: Fair, run: func(w *world) {
		// More dead waiters than one request may drop: the first living one
		// behind them comes to its turn in a few requests.
		const dead = 3 * driver.MaxSteps / 2
		a, c := w.client(), w.client()
		for range dead {
			a.joinAny(a.mortal(a.mutex("n")))
		}
		t := c.mutex("n")
		p := c.join(t, driver.Waiting)
		asks := 0
		for p.State == driver.Waiting {
			wait := w.h.TTL / 3
			if p.Recheck > 0 {
				wait = min(wait, p.Recheck)
			}
			if c.doze(t, wait).State == driver.Held {
				break
			}
			p = c.ask(t)
			if asks++; asks > 10+dead/8 {
				w.Fatalf("asked %d times behind %d dead waiters, and still waits", asks, dead)
			}
		}
		w.line(t.Name, []*driver.Ticket{t})
	}},
	{Name: "ttl-extremes", Rules: "Driver 9, Join 9, F60", run: func(w *world) {
		// The shortest and the longest TTL are kept.
		a, b := w.client(), w.client()
		long := a.mutex("long")
		long.TTL = w.traits.MaxTTL
		p := a.join(long, driver.Held)
		if p.Lease < long.TTL {
			w.Errorf("Lease is %v with a TTL of %v", p.Lease, long.TTL)
		}
		a.renew(long, driver.Held)
		short, next := a.mutex("short"), b.mutex("short")
		short.TTL = w.traits.MinTTL
		a.joinAny(short)
		b.granted(next, b.joinAny(next))
		time.Sleep(w.tick())
		l := w.lineOf(long.Name)
		if len(l.Tickets) != 1 || l.Tickets[0].Left < long.TTL/2 || l.Tickets[0].Left > 2*long.TTL {
			w.Errorf("a ticket with a TTL of %v is listed as %+v", long.TTL, l.Tickets)
		}
	}},
}
