package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// keepAlive calls renew often enough to keep tickets alive for at least d, and
// expects the same states each time. If the machine was too slow for that, the
// case proves nothing: keepAlive logs it and returns false.
func (w *world) keepAlive(begun time.Time, d time.Duration, renew func() []driver.Status, want ...driver.State) bool {
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

// joinBehind joins behind a ticket of this TTL, whose last request was sent after
// sent, and expects to wait. If the machine was so slow that the other ticket was
// dropped meanwhile, the case proves nothing: joinBehind logs it and returns false.
func (c *client) joinBehind(t *driver.Ticket, sent time.Time, ttl time.Duration) bool {
	c.w.Helper()
	p := c.joinAny(t)
	if gap := time.Since(sent); p.State == driver.Held && gap > ttl {
		c.w.Logf("the ticket before was joined %v ago: too slow to go on", gap)
		return false
	}
	if p.State != driver.Waiting {
		c.w.Fatalf("Join(%s) answers %v, want %v", t.ID, p.State, driver.Waiting)
	}
	return true
}

// checkExpiryTimes renews t, which waits behind a ticket that nobody renews,
// until t is held. It checks that the other ticket was kept for its lease and
// dropped in time. The other ticket's last request was sent at sent and answered
// at answered.
func (w *world) checkExpiryTimes(c *client, t *driver.Ticket, sent, answered time.Time, lease, ttl time.Duration) {
	w.Helper()
	if kept := w.checkExpiryBound(c, t, sent, answered, ttl); kept < lease {
		w.Errorf("dropped after %v at the most, with a lease of %v", kept, lease)
	}
}

// checkExpiryBound is checkExpiryTimes for a ticket that may be dropped early.
// It returns the longest time for which that ticket may have been kept.
func (w *world) checkExpiryBound(c *client, t *driver.Ticket, sent, answered time.Time, ttl time.Duration) time.Duration {
	w.Helper()
	for {
		asked := time.Now()
		p := c.renewAny(t)
		if p.State == driver.Held {
			return time.Since(sent)
		}
		if p.State != driver.Waiting {
			w.Fatalf("the waiting ticket is %v", p.State)
		}
		if kept := asked.Sub(answered); w.still.exceed(kept, w.latestExpiry(ttl), answered) {
			w.Fatalf("still there after %v, with a TTL of %v", kept, ttl)
		}
		time.Sleep(w.pollInterval())
	}
}

var timeCases = []Case{
	{Name: "dead-holder", Rules: "Join 9, Driver 6, Driver 7, F48", run: func(w *world) {
		// A holder that nobody renews is dropped: not before its lease is
		// over, and not later than promised.
		a, b := w.client(), w.client()
		ta, tb := a.shortLived(a.mutex("n")), b.mutex("n")
		sent := time.Now()
		p := a.join(ta, driver.Held)
		answered := time.Now()
		if !b.joinBehind(tb, sent, ta.TTL) {
			return
		}
		w.checkExpiryTimes(b, tb, sent, answered, p.Lease, ta.TTL)
	}},
	{Name: "dead-holder-renewed", Rules: "Join 9, Renew 3, F14", run: func(w *world) {
		// The same counted from a renewal, by the lease that the renewal
		// answered.
		a, b := w.client(), w.client()
		ta, tb := a.shortLived(a.mutex("n")), b.mutex("n")
		begun := time.Now()
		a.join(ta, driver.Held)
		if !b.joinBehind(tb, begun, ta.TTL) {
			return
		}
		time.Sleep(ta.TTL / 2)
		sent := time.Now()
		p := a.renewAny(ta)
		answered := time.Now()
		if p.State != driver.Held {
			w.Logf("too slow to go on")
			return
		}
		w.checkExpiryTimes(b, tb, sent, answered, p.Lease, ta.TTL)
	}},
	{Name: "dead-holder-try", Rules: "Driver 6, F48", run: func(w *world) {
		// TryLock alone gets past a dead holder.
		a, b := w.client(), w.client()
		ta := a.shortLived(a.mutex("n"))
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
			b.forget(t)
			if kept := asked.Sub(answered); w.still.exceed(kept, w.latestExpiry(ta.TTL), answered) {
				w.Fatalf("still there after %v, with a TTL of %v", kept, ta.TTL)
			}
			time.Sleep(w.pollInterval())
		}
		if kept := time.Since(sent); kept < p.Lease {
			w.Errorf("dropped after %v at the most, with a lease of %v", kept, p.Lease)
		}
	}},
	{Name: "dead-readers", Rules: "Driver 6, Renew 5", Needs: Shared, run: func(w *world) {
		// Of several that hold, those die that are not renewed, each by its
		// own time.
		a, b, c := w.client(), w.client(), w.client()
		long, short, wr := a.shortLived(a.reader("n")), b.shortLived(b.reader("n")), c.writer("n")
		long.TTL *= 2
		sent := time.Now()
		p := a.join(long, driver.Held)
		answered := time.Now()
		b.join(short, driver.Held)
		if !c.joinBehind(wr, sent, long.TTL) {
			return
		}
		b.renewAny(short)
		w.checkExpiryTimes(c, wr, sent, answered, p.Lease, long.TTL)
	}},
	{Name: "dead-waiter", Rules: "Driver 6, F48, F49", Needs: Fair, run: func(w *world) {
		// A waiter that nobody renews is passed over, and is told Gone when it
		// comes back.
		a, b, c := w.client(), w.client(), w.client()
		ta, dead, tc := a.mutex("n"), b.shortLived(b.mutex("n")), c.mutex("n")
		a.join(ta, driver.Held)
		b.join(dead, driver.Waiting)
		time.Sleep(w.latestExpiry(dead.TTL))
		c.join(tc, driver.Waiting)
		a.leave(ta, driver.Held)
		c.renew(tc, driver.Held)
		b.renew(dead, driver.Gone)
		w.checkQueue(ta.Name, []*driver.Ticket{tc})
	}},
	{Name: "grant-extends-nothing", Rules: "Watch 2", run: func(w *world) {
		// A granted waiter that sends nothing lives by its last renewal, not by the
		// grant. A driver of several servers may lose its place when they are slow,
		// and holds nothing then.
		for try := 1; ; try++ {
			name := "n" + string(rune('0'+try))
			a, b, c := w.client(), w.client(), w.client()
			ta, tb, tc := a.mutex(name), b.shortLived(b.mutex(name)), c.mutex(name)
			a.join(ta, driver.Held)
			sent := time.Now()
			p := b.join(tb, driver.Waiting)
			answered := time.Now()
			c.join(tc, driver.Waiting)
			time.Sleep(tb.TTL * 7 / 10)
			a.leave(ta, driver.Held)
			kept := w.checkExpiryBound(c, tc, sent, answered, tb.TTL)
			if kept >= p.Lease {
				return
			}
			if w.traits.Fair || try == 5 || b.renewAny(tb).State == driver.Held {
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
			var begun, answered time.Time
			for range dead {
				begun = time.Now()
				a.joinAny(a.shortLived(a.mutex(name)))
				answered = time.Now()
			}
			t := c.mutex(name)
			sent := time.Now()
			p := c.joinAny(t)
			if p.State == driver.Held && time.Since(begun) > w.h.TTL {
				w.Logf("too slow to go on")
				return
			}
			if p.State != driver.Waiting {
				w.Fatalf("Join(%s) answers %v behind one that lives", t.ID, p.State)
			}
			enough := 16
			if !w.traits.Push { // then it asks all the time, at a pace
				enough = int(w.latestExpiry(w.h.TTL) / (10 * time.Millisecond))
			}
			for asks := 0; p.State == driver.Waiting; asks++ {
				if p.Recheck == 0 {
					// Nothing to ask for: then the store tells.
					if c.waitForPush(t, w.maxWait()).State != driver.Held {
						w.Fatalf("no Recheck, and no push")
					}
					break
				}
				if late := sent.Add(p.Recheck).Sub(answered); w.still.exceed(late, w.latestExpiry(w.h.TTL), answered) {
					w.Errorf("Recheck is %v after the predecessor's last word; its TTL is %v", late, w.h.TTL)
				}
				if asks == enough {
					w.Fatalf("asked %d times and still waits", asks)
				}
				if c.waitForPush(t, p.Recheck).State == driver.Held {
					break
				}
				sent = time.Now()
				p = c.renewAny(t)
				if kept := sent.Sub(answered); p.State == driver.Waiting && w.still.exceed(kept, w.latestExpiry(w.h.TTL), answered) {
					w.Fatalf("still waits %v after the last word of a predecessor with a TTL of %v", kept, w.h.TTL)
				}
			}
		}
	}},
	{Name: "many-dead", Rules: "Driver 6, Join 10, F48", Needs: Fair, run: func(w *world) {
		// More dead waiters than one request has to drop: the first living one
		// behind them comes to its turn in a few requests.
		const dead = 5 * driver.MinDrops / 2
		a, c := w.client(), w.client()
		var begun time.Time
		for range dead {
			begun = time.Now()
			a.joinAny(a.shortLived(a.mutex("n")))
		}
		died := time.Now()
		t := c.mutex("n")
		if !c.joinBehind(t, begun, w.h.TTL) {
			return
		}
		// The last renewal before all are dead is sent when few are.
		p := driver.Status{State: driver.Waiting}
		ask := func(wait time.Duration) {
			if c.waitForPush(t, wait).State == driver.Held {
				p.State = driver.Held
			} else {
				p = c.renewAny(t)
			}
		}
		for left := w.h.TTL; p.State == driver.Waiting && left > 0; left = w.h.TTL - time.Since(died) {
			ask(min(left, w.h.TTL/3))
		}
		if p.State == driver.Waiting {
			ask(w.latestExpiry(w.h.TTL) - time.Since(died) + time.Millisecond)
		}
		// All are dead: the store says with each answer that there is more to do at
		// once, until it has dropped them.
		for asks, unfinished := 0, 0; p.State == driver.Waiting; asks++ {
			if asks > 10+dead/8 {
				w.Fatalf("asked %d times behind %d dead waiters, and still waits", asks, dead)
			}
			if p.Recheck > 0 && p.Recheck <= time.Millisecond {
				if unfinished++; unfinished > dead/driver.MinDrops+2 {
					w.Fatalf("%d requests have not dropped %d dead waiters", unfinished, dead)
				}
			}
			wait := w.h.TTL / 3
			if p.Recheck > 0 {
				wait = min(wait, p.Recheck)
			}
			ask(wait)
		}
		w.checkQueue(t.Name, []*driver.Ticket{t})
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
		b.awaitGrant(next, b.joinAny(next))
		time.Sleep(w.pollInterval())
		l := w.queueOf(long.Name)
		if len(l.Tickets) != 1 || l.Tickets[0].Left < long.TTL/2 || l.Tickets[0].Left > 2*long.TTL {
			w.Errorf("a ticket with a TTL of %v is listed as %+v", long.TTL, l.Tickets)
		}
	}},
}
