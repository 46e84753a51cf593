package drivertest

import (
	"github.com/holdfast-go/holdfast/driver"
)

var replaceCases = []Case{
	{Name: "replaces", Rules: "Join 8", run: func(w *world) {
		// The old ticket leaves before the new one takes its place at the end, so
		// that a waiter is granted, and gets its push, first.
		a, b := w.client(), w.client()
		old, tb, next := a.mutex("n"), b.mutex("n"), a.mutex("n")
		first := a.join(old, driver.Held)
		b.join(tb, driver.Waiting)
		next.Replaces = old
		a.join(next, driver.Waiting)
		w.checkQueue(old.Name, []*driver.Ticket{tb}, next)
		if w.traits.Push {
			b.awaitPush(tb, driver.Held)
		}
		if p := b.renew(tb, driver.Held); w.traits.Fencing && p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
		a.renew(old, driver.Gone)
		w.checkQueue(old.Name, []*driver.Ticket{tb}, next)
	}},
	{Name: "replaces-alone", Rules: "Join 8, Join 1", run: func(w *world) {
		// Nobody waits: the new ticket holds at once, with a new token, and
		// asked again it is still there.
		a := w.client()
		old := a.mutex("n")
		p := a.join(old, driver.Held)
		for i := range 4 {
			next := a.mutex("n")
			next.Replaces = old
			join := a.join
			if i%2 == 1 {
				join = a.try
			}
			q := join(next, driver.Held)
			if w.traits.Fencing && q.Token <= p.Token {
				w.Errorf("token %d after %d", q.Token, p.Token)
			}
			if r := join(next, driver.Held); r.Token != q.Token {
				w.Errorf("token %d became %d", q.Token, r.Token)
			}
			w.checkQueue(old.Name, []*driver.Ticket{next})
			old, p = next, q
		}
	}},
	{Name: "replaces-nothing", Rules: "Join 8", run: func(w *world) {
		// The old ticket is gone already, by itself or by Break: no error, and
		// nobody else goes.
		a, b := w.client(), w.client()
		left, broken, never := a.mutex("n"), a.mutex("n"), a.mutex("n")
		a.join(left, driver.Held)
		a.leave(left, driver.Held)
		a.join(broken, driver.Held)
		b.breakTicket(broken)
		tb := b.mutex("n")
		b.join(tb, driver.Held)
		var waiting []*driver.Ticket
		for _, old := range []*driver.Ticket{left, broken, never} {
			next := a.mutex("n")
			next.Replaces = old
			a.join(next, driver.Waiting)
			waiting = append(waiting, next)
		}
		w.checkQueue(tb.Name, []*driver.Ticket{tb}, waiting...)
	}},
	{Name: "replaces-gone", Rules: "Join 2, Join 8, Leave 4", run: func(w *world) {
		// A Join whose ticket has left before it arrives changes nothing: the ticket
		// that it would replace holds on, and is freed by its own Leave.
		a, b := w.client(), w.client()
		old, tb := a.mutex("n"), b.mutex("n")
		held := a.join(old, driver.Held)
		b.join(tb, driver.Waiting)
		for _, join := range []func(*driver.Ticket, driver.State) driver.Status{a.join, a.try} {
			next := a.mutex("n")
			next.Replaces = old
			a.leaveAll([]driver.Ref{{Ticket: next, State: driver.Waiting, JoinPending: true}})
			join(next, driver.Gone)
			if p := a.renew(old, driver.Held); p.Token != held.Token {
				w.Errorf("token %d became %d", held.Token, p.Token)
			}
			w.checkQueue(old.Name, []*driver.Ticket{old}, tb)
		}
		a.leave(old, driver.Held)
		w.checkQueue(old.Name, []*driver.Ticket{tb})
	}},
	{Name: "replaces-shared", Rules: "Join 8", Needs: Shared, run: func(w *world) {
		// A reader that joins anew lets the writer in that waits for it.
		a, b := w.client(), w.client()
		r1, wr, r2 := a.reader("n"), b.writer("n"), a.reader("n")
		a.join(r1, driver.Held)
		b.join(wr, driver.Waiting)
		r2.Replaces = r1
		a.join(r2, driver.Waiting)
		w.checkQueue(r1.Name, []*driver.Ticket{wr}, r2)
	}},
}
