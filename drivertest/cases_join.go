package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var joinCases = []Case{
	{Name: "join-free", Rules: "Join 4, 9", run: func(w *world) {
		// A free lock is granted at once, with and without waiting, and only to the
		// ticket that joined.
		a, b := w.client(), w.client()
		for _, join := range []func(*driver.Ticket, driver.State) driver.Status{a.join, b.try} {
			t := a.mutex("n")
			if p := join(t, driver.Held); p.Lease > t.TTL+t.TTL/20+max(w.traits.Granularity, time.Second) {
				w.Errorf("Lease is %v with a TTL of %v", p.Lease, t.TTL)
			}
			w.checkQueue(t.Name, []*driver.Ticket{t})
			// It leaves as it joined: tickets belong to one client.
			a.breakTicket(t)
		}
	}},
	{Name: "join-again", Rules: "Join 1, F1, F4", run: func(w *world) {
		// The answer of a Join was lost: asked again, the ticket is where it
		// was, it has one place only, and one Leave gives that up.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		for range 3 {
			if p := a.join(ta, driver.Held); p.Token != first.Token {
				w.Errorf("token %d became %d", first.Token, p.Token)
			}
			if p := a.try(ta, driver.Held); p.Token != first.Token {
				w.Errorf("token %d became %d with wait=false", first.Token, p.Token)
			}
			b.join(tb, driver.Waiting)
		}
		w.checkQueue(ta.Name, []*driver.Ticket{ta}, tb)
		a.leave(ta, driver.Held)
		w.checkQueue(ta.Name, []*driver.Ticket{tb})
		b.join(tb, driver.Held)
		b.leave(tb, driver.Held)
		w.checkEmpty(ta.Name)
	}},
	{Name: "join-again-shared", Rules: "Join 1, F4", Needs: Shared, run: func(w *world) {
		// The same where several hold: units are counted once.
		a, b := w.client(), w.client()
		ta, tb := a.ticket("n", 2, 5), b.ticket("n", 2, 5)
		for range 3 {
			a.join(ta, driver.Held)
			b.join(tb, driver.Held)
		}
		one, two := b.ticket("n", 1, 5), a.ticket("n", 1, 5)
		b.join(one, driver.Held)
		a.try(two, driver.Gone)
		a.leave(ta, driver.Held)
		a.join(a.ticket("n", 2, 5), driver.Held)
	}},
	{Name: "join-renews", Rules: "Join 1", run: func(w *world) {
		// A repeated Join keeps the place like a Renew.
		a, b := w.client(), w.client()
		ta, tb := a.shortLived(a.mutex("n")), b.shortLived(b.mutex("n"))
		begun := time.Now()
		a.join(ta, driver.Held)
		if !b.joinBehind(tb, begun, ta.TTL) {
			return
		}
		w.keepAlive(begun, ta.TTL*3/2, func() []driver.Status {
			return []driver.Status{a.joinWith(ta, true), b.joinWith(tb, true)}
		}, driver.Held, driver.Waiting)
	}},
	{Name: "gone-stays-gone", Rules: "Join 2, Leave 4, F3", run: func(w *world) {
		// A ticket leaves, unsure whether a Join of it is still on its way:
		// the Join that arrives afterwards changes nothing.
		a, b := w.client(), w.client()
		joinPending := func(c *client, t *driver.Ticket) {
			c.leaveAll([]driver.Ref{{Ticket: t, State: driver.Held, JoinPending: true}})
		}
		ta, tb, tc := a.mutex("n"), b.mutex("n"), a.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		a.join(tc, driver.Waiting)
		joinPending(a, tc)
		a.join(tc, driver.Gone)
		joinPending(a, ta)
		a.join(ta, driver.Gone)
		w.checkQueue(ta.Name, []*driver.Ticket{tb})
		joinPending(b, tb)
		for _, t := range []*driver.Ticket{ta, tc, ta} {
			a.try(t, driver.Gone)
			a.join(t, driver.Gone)
			a.renew(t, driver.Gone)
		}
		b.join(tb, driver.Gone)
		w.checkEmpty(ta.Name)
	}},
	{Name: "broken-stays-gone", Rules: "Join 2", run: func(w *world) {
		a, b := w.client(), w.client()
		ta := a.mutex("n")
		a.join(ta, driver.Held)
		b.breakTicket(ta)
		a.join(ta, driver.Gone)
		a.try(ta, driver.Gone)
		w.checkEmpty(ta.Name)
	}},
	{Name: "try-busy", Rules: "Join 4", run: func(w *world) {
		// wait=false leaves nothing behind.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		a.join(ta, driver.Held)
		for range 3 {
			if p := b.try(tb, driver.Gone); p.Holder != "" && p.Holder != ta.Meta {
				w.Errorf("Holder is %q, want %q", p.Holder, ta.Meta)
			}
			tb = b.mutex("n")
		}
		w.checkQueue(ta.Name, []*driver.Ticket{ta})
		a.leave(ta, driver.Held)
		w.checkEmpty(ta.Name)
		b.try(tb, driver.Held)
	}},
	{Name: "try-tells-left", Rules: "Join 10", run: func(w *world) {
		// A Gone answer to wait=false tells how long the store keeps the holder,
		// counted from its last renewal, or nothing.
		a, b := w.client(), w.client()
		ta := a.shortLived(a.mutex("n"))
		sent := time.Now()
		a.join(ta, driver.Held)
		b.checkLeft(b.mutex("n"), ta.TTL, sent, time.Now())
		if !w.h.TellsLeft {
			return
		}
		time.Sleep(ta.TTL / 3)
		sent = time.Now()
		if p := a.renewAny(ta); p.State == driver.Held { // else the machine is slow
			b.checkLeft(b.mutex("n"), ta.TTL, sent, time.Now())
		}
	}},
	{Name: "waiting-tells", Rules: "Join 10", run: func(w *world) {
		// The status of a waiter is true about the tickets before it.
		const n = 4
		var clients [n]*client
		var ts [n]*driver.Ticket
		for i := range n {
			clients[i] = w.client()
			ts[i] = clients[i].mutex("n")
			if i == 0 {
				clients[i].join(ts[i], driver.Held)
				continue
			}
			joined := clients[i].join(ts[i], driver.Waiting)
			for _, p := range []driver.Status{joined, clients[i].renewAny(ts[i])} {
				if p.Ahead != -1 && p.Ahead != i {
					w.Errorf("%d ahead of ticket %d", p.Ahead, i)
				}
				if p.Holder != "" && p.Holder != ts[0].Meta {
					w.Errorf("Holder is %q, want %q", p.Holder, ts[0].Meta)
				}
				if p.Recheck > w.latestExpiry(ts[i].TTL) {
					w.Errorf("Recheck is %v with a TTL of %v", p.Recheck, ts[i].TTL)
				}
			}
		}
	}},
	{Name: "foreign-limit", Rules: "Join 6, Driver 5, F63", run: func(w *world) {
		// While a queue has tickets, its limit is theirs.
		a, b := w.client(), w.client()
		ta := a.mutex("n")
		if w.traits.Shared {
			ta = a.ticket("n", 2, 3)
		}
		a.join(ta, driver.Held)
		for _, limit := range []int64{1, 2, 3, 7, driver.RWLimit} {
			if limit == ta.Limit || limit > 1 && !w.traits.Shared {
				continue
			}
			var le *driver.LimitError
			if err := b.joinRefused(b.ticket("n", 1, limit)); !errors.As(err, &le) {
				w.Errorf("error is %T %q, want a LimitError", err, err)
			} else if le.Have != ta.Limit || le.Want != limit || le.Name != ta.Name {
				w.Errorf("LimitError is %+v, want {%q %d %d}", *le, ta.Name, ta.Limit, limit)
			}
			w.checkQueue(ta.Name, []*driver.Ticket{ta})
		}
		a.leave(ta, driver.Held)
		t := b.ticket("n", 1, 1)
		b.join(t, driver.Held)
		w.checkQueue(t.Name, []*driver.Ticket{t})
	}, Needs: Shared},
}

// checkLeft joins with t, which must not wait, and checks what the answer tells
// of the holder's time. The holder, with that TTL, was joined or renewed last
// between sent and answered; on a slow machine its time may be over.
func (c *client) checkLeft(t *driver.Ticket, ttl time.Duration, sent, answered time.Time) {
	c.w.Helper()
	ctx, cancel := c.w.limit()
	defer cancel()
	asked := time.Now()
	p, err := c.d.Join(ctx, t, false)
	if err != nil {
		c.w.Fatalf("Join(%s): %v", t.ID, err)
	}
	c.checkStatus("Join", t, p)
	least := ttl - ttl/50 - c.w.traits.Granularity - time.Since(sent)
	most := c.w.latestExpiry(ttl) - asked.Sub(answered)
	switch {
	case p.State == driver.Held && least < 0:
		c.leave(t, driver.Held)
	case p.State != driver.Gone:
		c.w.Errorf("Join(%s) answers %v", t.ID, p.State)
	case (p.Recheck != 0 || c.w.h.TellsLeft) && (p.Recheck < least || p.Recheck > most):
		c.w.Errorf("Recheck is %v, want from %v to %v", p.Recheck, least, most)
	}
}
