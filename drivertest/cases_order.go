package drivertest

import "github.com/holdfast-go/holdfast/driver"

var orderCases = []Case{
	{Name: "one-holder", Rules: "Join 3, 4, F57", run: func(w *world) {
		// However many ask, one holds.
		a, b, c := w.client(), w.client(), w.client()
		ta, tb, tc := a.mutex("n"), b.mutex("n"), c.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		c.try(tc, driver.Gone)
		b.renew(tb, driver.Waiting)
		a.renew(ta, driver.Held)
		w.checkQueue(ta.Name, []*driver.Ticket{ta}, tb)
	}},
	{Name: "first-come", Rules: "Join 3", Needs: Fair, run: func(w *world) {
		// Waiters of several clients are granted in the order of their joins.
		clients := []*client{w.client(), w.client(), w.client()}
		const n = 9
		var ts [n]*driver.Ticket
		for i := range n {
			c := clients[i%3]
			ts[i] = c.mutex("n")
			if i == 0 {
				c.join(ts[i], driver.Held)
			} else {
				c.join(ts[i], driver.Waiting)
			}
		}
		for i := range n {
			w.checkQueue(ts[i].Name, ts[i:i+1], ts[i+1:]...)
			// Where the client itself finds out that it is first, this renewal tells
			// it; without, its Leave would be that of a waiter.
			clients[i%3].renew(ts[i], driver.Held)
			clients[i%3].leave(ts[i], driver.Held)
		}
		w.checkEmpty(ts[0].Name)
	}},
	{Name: "leave-the-middle", Rules: "Join 3, Leave 1", Needs: Fair, run: func(w *world) {
		// A waiter that gives up lets only the tickets behind it move forward.
		a, b := w.client(), w.client()
		ts := []*driver.Ticket{a.mutex("n"), b.mutex("n"), a.mutex("n"), b.mutex("n")}
		a.join(ts[0], driver.Held)
		b.join(ts[1], driver.Waiting)
		a.join(ts[2], driver.Waiting)
		b.join(ts[3], driver.Waiting)
		a.leave(ts[2], driver.Waiting)
		w.checkQueue(ts[0].Name, ts[:1], ts[1], ts[3])
		b.leave(ts[1], driver.Waiting)
		w.checkQueue(ts[0].Name, ts[:1], ts[3])
		a.leave(ts[0], driver.Held)
		w.checkQueue(ts[0].Name, ts[3:])
	}},
	{Name: "try-overtakes-nobody", Rules: "Join 3, F53", Needs: Shared | Fair, run: func(w *world) {
		// There is room for one more, but somebody waits for more than that.
		a, b, c := w.client(), w.client(), w.client()
		ta, tb := a.ticket("n", 1, 2), b.ticket("n", 2, 2)
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		c.try(c.ticket("n", 1, 2), driver.Gone)
		w.checkQueue(ta.Name, []*driver.Ticket{ta}, tb)
		b.leave(tb, driver.Waiting)
		c.try(c.ticket("n", 1, 2), driver.Held)
	}},
	{Name: "reader-overtakes-nobody", Rules: "Join 3, F53", Needs: Shared | Fair, run: func(w *world) {
		// A reader that comes after a waiting writer waits behind it.
		a, b := w.client(), w.client()
		r1, wr, r2, r3 := a.reader("n"), b.writer("n"), a.reader("n"), b.reader("n")
		a.join(r1, driver.Held)
		b.join(wr, driver.Waiting)
		a.join(r2, driver.Waiting)
		b.try(b.reader("n"), driver.Gone)
		b.join(r3, driver.Waiting)
		w.checkQueue(r1.Name, []*driver.Ticket{r1}, wr, r2, r3)
		a.leave(r1, driver.Held)
		w.checkQueue(r1.Name, []*driver.Ticket{wr}, r2, r3)
		b.leave(wr, driver.Held)
		w.checkQueue(r1.Name, []*driver.Ticket{r2, r3})
	}},
	{Name: "readers-and-writers", Rules: "Join 4, Driver 6", Needs: Shared, run: func(w *world) {
		// Readers hold together; a writer holds alone.
		a, b := w.client(), w.client()
		r1, r2, w1, w2, r3 := a.reader("n"), b.reader("n"), a.writer("n"), b.writer("n"), a.reader("n")
		a.join(r1, driver.Held)
		b.join(r2, driver.Held)
		a.join(w1, driver.Waiting)
		a.leave(r1, driver.Held)
		a.renew(w1, driver.Waiting)
		b.leave(r2, driver.Held)
		a.renew(w1, driver.Held)
		b.join(w2, driver.Waiting)
		a.join(r3, driver.Waiting)
		w.checkQueue(r1.Name, []*driver.Ticket{w1}, w2, r3)
		a.leave(w1, driver.Held)
		w.checkQueue(r1.Name, []*driver.Ticket{w2}, r3)
		b.leave(w2, driver.Held)
		w.checkQueue(r1.Name, []*driver.Ticket{r3})
	}},
	{Name: "units", Rules: "Join 4, Driver 6", Needs: Shared | Fair, run: func(w *world) {
		// Units add up to the limit and never above it.
		a, b := w.client(), w.client()
		take := func(c *client, units int64, s driver.State) *driver.Ticket {
			t := c.ticket("n", units, 5)
			c.join(t, s)
			return t
		}
		t2 := take(a, 2, driver.Held)
		t3 := take(b, 3, driver.Held)
		w1 := take(a, 1, driver.Waiting)
		w4 := take(b, 4, driver.Waiting)
		w2 := take(a, 2, driver.Waiting)
		w3 := take(b, 3, driver.Waiting)
		a.leave(t2, driver.Held) // 3 and 1 hold; 4 does not fit, 2 is not asked
		w.checkQueue(t2.Name, []*driver.Ticket{t3, w1}, w4, w2, w3)
		b.leave(t3, driver.Held) // 1 and 4
		w.checkQueue(t2.Name, []*driver.Ticket{w1, w4}, w2, w3)
		a.leave(w1, driver.Held) // 4: 2 does not fit
		w.checkQueue(t2.Name, []*driver.Ticket{w4}, w2, w3)
		b.leave(w4, driver.Held) // 2 and 3
		w.checkQueue(t2.Name, []*driver.Ticket{w2, w3})
	}},
}
