package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var leaveCases = []Case{
	{Name: "leave-answers", Rules: "Leave 1, F2", run: func(w *world) {
		// Leave says what it found, once.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		b.leave(tb, driver.Waiting)
		b.leave(tb, driver.Gone)
		a.leave(ta, driver.Held)
		a.leave(ta, driver.Gone)
		a.leave(a.mutex("n"), driver.Gone)
		a.leave(a.mutex("a line that never was"), driver.Gone)
		w.empty(ta.Name)
	}},
	{Name: "leave-batch", Rules: "Leave 1", run: func(w *world) {
		// A batch is answered in order, each ticket for itself, whatever the
		// core believes.
		a, b := w.client(), w.client()
		h, x := a.mutex("n"), b.mutex("n")
		a.join(h, driver.Held)
		ts := []*driver.Ticket{a.mutex("n"), h, a.mutex("n"), a.mutex("n")}
		a.join(ts[0], driver.Waiting)
		a.join(ts[2], driver.Waiting)
		b.join(x, driver.Waiting)
		refs := make([]driver.Ref, len(ts))
		for i, t := range ts {
			refs[i] = driver.Ref{Ticket: t, State: driver.Waiting}
		}
		// The third one is granted by the second one's leaving; a store may
		// have seen it go before or after.
		want := [][]driver.State{{driver.Waiting}, {driver.Held}, {driver.Waiting, driver.Held}, {driver.Gone}}
		for i, p := range a.leaveAll(refs) {
			ok := false
			for _, s := range want[i] {
				ok = ok || p.State == s
			}
			if !ok {
				w.Errorf("answer %d is %v, want %v", i, p.State, want[i])
			}
		}
		w.line(h.Name, []*driver.Ticket{x})
	}},
	{Name: "leave-frees-no-stranger", Rules: "Leave 2, F2, F57, F58", run: func(w *world) {
		// A Leave that is repeated, late, or of a ticket that never was, frees
		// nobody, neither who holds nor who waits.
		a, b := w.client(), w.client()
		old, waited := a.mutex("n"), a.mutex("n")
		tb, tb2 := b.mutex("n"), b.mutex("n")
		a.join(old, driver.Held)
		b.join(tb, driver.Waiting)
		a.join(waited, driver.Waiting)
		a.leave(waited, driver.Waiting)
		a.leave(old, driver.Held)
		b.join(tb2, driver.Waiting)
		for range 2 {
			a.leave(old, driver.Gone)
			a.leave(waited, driver.Gone)
			a.leave(a.mutex("n"), driver.Gone)
			b.leave(b.mutex("n"), driver.Gone)
			w.line(old.Name, []*driver.Ticket{tb}, tb2)
		}
		b.renew(tb, driver.Held)
		b.renew(tb2, driver.Waiting)
	}},
	{Name: "leave-frees-no-reader", Rules: "Leave 2, F4", Needs: Shared, run: func(w *world) {
		// Repeated, it takes no units from those who hold beside it.
		a, b, c := w.client(), w.client(), w.client()
		r1, r2, wr := a.reader("n"), b.reader("n"), c.writer("n")
		a.join(r1, driver.Held)
		b.join(r2, driver.Held)
		c.join(wr, driver.Waiting)
		a.leave(r1, driver.Held)
		for range 3 {
			a.leave(r1, driver.Gone)
		}
		c.renew(wr, driver.Waiting)
		w.line(r1.Name, []*driver.Ticket{r2}, wr)
	}},
	{Name: "leave-before-join", Rules: "Leave 4, Join 2, F3", run: func(w *world) {
		// The ticket's Join is still on its way when it leaves: it arrives
		// afterwards and has no effect, and leaves nothing.
		a, b := w.client(), w.client()
		for _, join := range []func(*driver.Ticket, driver.State) driver.Place{a.join, a.try} {
			t := a.mutex("n")
			if p := a.leaveAll([]driver.Ref{{Ticket: t, State: driver.Waiting, Unsure: true}})[0]; p.State != driver.Gone {
				w.Errorf("Leave(%s) answers %v, want gone", t.ID, p.State)
			}
			join(t, driver.Gone)
			w.empty(t.Name)
		}
		tb := b.mutex("n")
		b.join(tb, driver.Held)
		t := a.mutex("n")
		a.leaveAll([]driver.Ref{{Ticket: t, State: driver.Waiting, Unsure: true}})
		a.join(t, driver.Gone)
		w.line(tb.Name, []*driver.Ticket{tb})
	}},
	{Name: "leave-after-join", Rules: "Leave 1, 4, F1", run: func(w *world) {
		// The Join whose answer was lost had taken effect: the ticket leaves,
		// and the next one is granted.
		a, b := w.client(), w.client()
		ta, tb, tc := a.mutex("n"), b.mutex("n"), a.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		a.join(tc, driver.Waiting)
		unsure := func(c *client, t *driver.Ticket) driver.State {
			return c.leaveAll([]driver.Ref{{Ticket: t, State: driver.Waiting, Unsure: true}})[0].State
		}
		if s := unsure(b, tb); s != driver.Waiting {
			w.Errorf("Leave of a waiting ticket answers %v", s)
		}
		if s := unsure(a, ta); s != driver.Held {
			w.Errorf("Leave of a held ticket answers %v", s)
		}
		w.line(ta.Name, []*driver.Ticket{tc})
		b.join(tb, driver.Gone)
		a.join(ta, driver.Gone)
		w.line(ta.Name, []*driver.Ticket{tc})
	}},
	{Name: "leave-at-ones-turn", Rules: "Leave 1, 3, F47", run: func(w *world) {
		// The holder has died and nobody has asked since: whoever is next and
		// leaves is not left behind as the one who is granted by that, and
		// the one after it is.
		a, b, c := w.client(), w.client(), w.client()
		ta, tb, tc := a.mortal(a.mutex("n")), b.mutex("n"), c.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		c.join(tc, driver.Waiting)
		time.Sleep(w.latest(ta.TTL))
		p := b.leaveAll([]driver.Ref{{Ticket: tb, State: driver.Waiting}})[0]
		if p.State != driver.Waiting && p.State != driver.Held {
			w.Errorf("Leave of who is next answers %v", p.State)
		}
		w.line(ta.Name, []*driver.Ticket{tc})
		b.leave(tb, driver.Gone)
	}},
}
