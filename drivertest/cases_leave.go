package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var leaveCases = []Case{
	{Name: "leave-answers", Rules: "Leave 1, F2", run: func(w *world) {
		// Leave reports the state that it found, once.
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
		w.checkEmpty(ta.Name)
	}},
	{Name: "leave-batch", Rules: "Leave 1", run: func(w *world) {
		// The answers of a batch are in order, each about its own ticket, whatever
		// the core believes.
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
		w.checkQueue(h.Name, []*driver.Ticket{x})
	}},
	{Name: "leave-frees-no-stranger", Rules: "Leave 2, F2, F57, F58", run: func(w *world) {
		// A Leave that is repeated, late, or of an unknown ticket frees nobody
		// else's place, neither a holder's nor a waiter's.
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
			w.checkQueue(old.Name, []*driver.Ticket{tb}, tb2)
		}
		b.renew(tb, driver.Held)
		b.renew(tb2, driver.Waiting)
	}},
	{Name: "leave-frees-no-reader", Rules: "Leave 2, F4", Needs: Shared, run: func(w *world) {
		// A repeated Leave takes no units from the other holders.
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
		w.checkQueue(r1.Name, []*driver.Ticket{r2}, wr)
	}},
	{Name: "leave-before-join", Rules: "Leave 4, Join 2, F3", run: func(w *world) {
		// The ticket's Join is still on its way when it leaves: it arrives
		// afterwards and has no effect, and leaves nothing.
		a, b := w.client(), w.client()
		for _, join := range []func(*driver.Ticket, driver.State) driver.Status{a.join, a.try} {
			t := a.mutex("n")
			if p := a.leaveAll([]driver.Ref{{Ticket: t, State: driver.Waiting, JoinPending: true}})[0]; p.State != driver.Gone {
				w.Errorf("Leave(%s) answers %v, want gone", t.ID, p.State)
			}
			join(t, driver.Gone)
			w.checkEmpty(t.Name)
		}
		tb := b.mutex("n")
		b.join(tb, driver.Held)
		t := a.mutex("n")
		a.leaveAll([]driver.Ref{{Ticket: t, State: driver.Waiting, JoinPending: true}})
		a.join(t, driver.Gone)
		w.checkQueue(tb.Name, []*driver.Ticket{tb})
	}},
	{Name: "leave-after-join", Rules: "Leave 1, 4, F1", run: func(w *world) {
		// The Join whose answer was lost had taken effect: the ticket leaves,
		// and the next one is granted.
		a, b := w.client(), w.client()
		ta, tb, tc := a.mutex("n"), b.mutex("n"), a.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		a.join(tc, driver.Waiting)
		joinPending := func(c *client, t *driver.Ticket) driver.State {
			return c.leaveAll([]driver.Ref{{Ticket: t, State: driver.Waiting, JoinPending: true}})[0].State
		}
		if s := joinPending(b, tb); s != driver.Waiting {
			w.Errorf("Leave of a waiting ticket answers %v", s)
		}
		if s := joinPending(a, ta); s != driver.Held {
			w.Errorf("Leave of a held ticket answers %v", s)
		}
		w.checkQueue(ta.Name, []*driver.Ticket{tc})
		b.join(tb, driver.Gone)
		a.join(ta, driver.Gone)
		w.checkQueue(ta.Name, []*driver.Ticket{tc})
	}},
	{Name: "leave-at-ones-turn", Rules: "Leave 1, 3, F47", run: func(w *world) {
		// The holder has expired and no request has come since. The next ticket
		// leaves: the same request must not grant that ticket, but the one after
		// it.
		a, b, c := w.client(), w.client(), w.client()
		ta, tb, tc := a.shortLived(a.mutex("n")), b.mutex("n"), c.mutex("n")
		a.join(ta, driver.Held)
		b.joinAny(tb) // on a slow machine, the holder has expired already
		c.join(tc, driver.Waiting)
		time.Sleep(w.latestExpiry(ta.TTL))
		p := b.leaveAll([]driver.Ref{{Ticket: tb, State: driver.Waiting}})[0]
		if p.State != driver.Waiting && p.State != driver.Held {
			w.Errorf("Leave of who is next answers %v", p.State)
		}
		w.checkQueue(ta.Name, []*driver.Ticket{tc})
		b.leave(tb, driver.Gone)
	}},
}
