package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var joinCases = []Case{
	{Name: "join-free", Rules: "Join 4, 9", run: func(w *world) {
		// A free line is held at once, with and without waiting, and only by
		// the one who joined.
		a, b := w.client(), w.client()
		for _, join := range []func(*driver.Ticket, driver.State) driver.Place{a.join, b.try} {
			t := a.mutex("n")
			if p := join(t, driver.Held); p.Lease > t.TTL+t.TTL/20+max(w.traits.Granularity, time.Second) {
				w.Errorf("Lease is %v with a TTL of %v", p.Lease, t.TTL)
			}
			w.line(t.Name, []*driver.Ticket{t})
			// It leaves as it joined: tickets belong to one client.
			a.brk(t)
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
		w.line(ta.Name, []*driver.Ticket{ta}, tb)
		a.leave(ta, driver.Held)
		w.line(ta.Name, []*driver.Ticket{tb})
		b.join(tb, driver.Held)
		b.leave(tb, driver.Held)
		w.empty(ta.Name)
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
		ta, tb := a.mortal(a.mutex("n")), b.mortal(b.mutex("n"))
		begun := time.Now()
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		w.keep(begun, ta.TTL*3/2, func() []driver.Place {
			return []driver.Place{a.rejoin(ta), b.rejoin(tb)}
		}, driver.Held, driver.Waiting)
	}},
	{Name: "gone-stays-gone", Rules: "Join 2, Leave 4, F3", run: func(w *world) {
		// A ticket leaves, unsure whether a Join of it is still on its way:
		// the Join that arrives afterwards changes nothing.
		a, b := w.client(), w.client()
		unsure := func(c *client, t *driver.Ticket) {
			c.leaveAll([]driver.Ref{{Ticket: t, State: driver.Held, Unsure: true}})
		}
		ta, tb, tc := a.mutex("n"), b.mutex("n"), a.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		a.join(tc, driver.Waiting)
		unsure(a, tc)
		a.join(tc, driver.Gone)
		unsure(a, ta)
		a.join(ta, driver.Gone)
		w.line(ta.Name, []*driver.Ticket{tb})
		unsure(b, tb)
		for _, t := range []*driver.Ticket{ta, tc, ta} {
			a.try(t, driver.Gone)
			a.join(t, driver.Gone)
			a.renew(t, driver.Gone)
		}
		b.join(tb, driver.Gone)
		w.empty(ta.Name)
	}},
	{Name: "broken-stays-gone", Rules: "Join 2", run: func(w *world) {
		a, b := w.client(), w.client()
		ta := a.mutex("n")
		a.join(ta, driver.Held)
		b.brk(ta)
		a.join(ta, driver.Gone)
		a.try(ta, driver.Gone)
		w.empty(ta.Name)
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
		w.line(ta.Name, []*driver.Ticket{ta})
		a.leave(ta, driver.Held)
		w.empty(ta.Name)
		b.try(tb, driver.Held)
	}},
	{Name: "waiting-tells", Rules: "Join 10", run: func(w *world) {
		// What a waiting place says about those before it is true.
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
			for _, p := range []driver.Place{joined, clients[i].ask(ts[i])} {
				if p.Ahead != -1 && p.Ahead != i {
					w.Errorf("%d ahead of ticket %d", p.Ahead, i)
				}
				if p.Holder != "" && p.Holder != ts[0].Meta {
					w.Errorf("Holder is %q, want %q", p.Holder, ts[0].Meta)
				}
				if p.Recheck > w.latest(ts[i].TTL) {
					w.Errorf("Recheck is %v with a TTL of %v", p.Recheck, ts[i].TTL)
				}
			}
		}
	}},
	{Name: "foreign-limit", Rules: "Join 6, Driver 5, F63", run: func(w *world) {
		// While a line has tickets, its limit is theirs.
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
			if err := b.refused(b.ticket("n", 1, limit)); !errors.As(err, &le) {
				w.Errorf("error is %T %q, want a LimitError", err, err)
			} else if le.Have != ta.Limit || le.Want != limit || le.Name != ta.Name {
				w.Errorf("LimitError is %+v, want {%q %d %d}", *le, ta.Name, ta.Limit, limit)
			}
			w.line(ta.Name, []*driver.Ticket{ta})
		}
		a.leave(ta, driver.Held)
		t := b.ticket("n", 1, 1)
		b.join(t, driver.Held)
		w.line(t.Name, []*driver.Ticket{t})
	}, Needs: Shared},
}
