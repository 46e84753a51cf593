package drivertest

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var pushCases = []Case{
	{Name: "push-one", Rules: "Watch 1, 2, Leave 5, F51", Needs: Push | Fair, run: func(w *world) {
		// One release is told to one client: the one whose turn it is.
		const n = 6
		var clients [n]*client
		var ts [n]*driver.Ticket
		for i := range n {
			clients[i] = w.client()
			ts[i] = clients[i].mutex("n")
			clients[i].joinAny(ts[i])
		}
		w.settle()
		gaps := 0
		for _, c := range clients {
			gaps -= c.gapCount()
		}
		for i := range n - 1 {
			clients[i].leave(ts[i], driver.Held)
			if p := clients[i+1].awaitPush(ts[i+1], driver.Held); p.Lease != 0 {
				w.Errorf("a push has a Lease of %v", p.Lease)
			}
			for j := i + 2; j < n; j++ {
				if len(clients[j].pushesOf(ts[j])) > 0 {
					w.Errorf("client %d was told something at the turn of client %d", j, i+1)
				}
			}
		}
		w.settle()
		for i, c := range clients {
			gaps += c.gapCount()
			for _, p := range c.allPushes() {
				if p.id != ts[i].ID {
					w.Errorf("client %d was told about %s, which is not its own", i, p.id)
				}
			}
		}
		if gaps > 0 {
			w.Errorf("%d times a client was told to ask for all its tickets", gaps)
		}
	}},
	{Name: "push-readers", Rules: "Watch 1, Driver 6", Needs: Push | Shared, run: func(w *world) {
		// Each ticket that one release grants gets a push.
		a, b := w.client(), w.client()
		wr := a.writer("n")
		a.join(wr, driver.Held)
		clients := []*client{a, b, w.client(), b}
		var ts []*driver.Ticket
		for _, c := range clients {
			t := c.reader("n")
			c.join(t, driver.Waiting)
			ts = append(ts, t)
		}
		a.leave(wr, driver.Held)
		for i, c := range clients {
			c.awaitPush(ts[i], driver.Held)
		}
	}},
	{Name: "push-for-the-dead", Rules: "Watch 1, Driver 6", Needs: Push | Fair, run: func(w *world) {
		// The next ticket gets a push, whichever client's request finds the expired
		// one.
		a, b, c := w.client(), w.client(), w.client()
		ta, tb, tc := a.shortLived(a.mutex("n")), b.mutex("n"), c.mutex("n")
		begun := time.Now()
		a.join(ta, driver.Held)
		if !b.joinBehind(tb, begun, ta.TTL) {
			return
		}
		c.joinAny(tc)
		w.until("a push says that it is held", func() bool {
			c.renewAny(tc)
			return len(b.pushesOf(tb)) > 0
		})
		b.awaitPush(tb, driver.Held)
	}},
	{Name: "push-failed", Rules: "Watch 5, Renew 3, F124", run: func(w *world) {
		// When Watch has failed tickets take their places, and turns are found by
		// asking.
		a, b := w.client(), w.clientWithoutWatch()
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.d.Watch(over, func(string, driver.Status) {})
		ta, tb := a.mutex("n"), b.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		a.leave(ta, driver.Held)
		if !w.traits.Fair { // where a majority releases, the others may still grant
			w.until("a renewal says that it is held", func() bool { return b.renewAny(tb).State == driver.Held })
		}
		b.renew(tb, driver.Held)
		b.leave(tb, driver.Held)
		free := b.mutex("free")
		b.join(free, driver.Held)
		b.leave(free, driver.Held)
	}},
	{Name: "push-unwritable", Rules: "Leave 1, 5, Break 3, Renew 3, F125", Needs: Push | FailPushes, Alone: true, run: func(w *world) {
		// The push of a grant cannot be written. Releases and grants are made all the
		// same, and a waiter learns of its grant with its renewal.
		restore := w.h.FailPushes(w.T)
		a, b, c := w.client(), w.client(), w.client()
		ta, tb, tc := a.mutex("n"), b.mutex("n"), c.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		c.join(tc, driver.Waiting)
		a.leave(ta, driver.Held)
		b.renew(tb, driver.Held)
		ctx, cancel := w.limit()
		defer cancel()
		if err := a.d.Break(ctx, tb.Name, tb.ID); err != nil {
			w.Errorf("Break: %v", err)
		}
		c.renew(tc, driver.Held)
		b.renew(tb, driver.Gone)
		c.leave(tc, driver.Held)
		restore()
		w.checkEmpty(ta.Name)
	}},
	{Name: "push-ends", Rules: "Watch 1, Close 1", Needs: Push, run: func(w *world) {
		// Pushes end with the context of Watch, and with Close.
		const tries = 5 // a busy machine takes a while to notice the end of a context
		a, b, c := w.client(), w.client(), w.client()
		var ta, tb [tries]*driver.Ticket
		for i := range tries {
			name := "n" + strconv.Itoa(i)
			ta[i], tb[i] = a.mutex(name), b.mutex(name)
			a.join(ta[i], driver.Held)
			b.join(tb[i], driver.Waiting)
		}
		tc := c.mutex("n0")
		c.join(tc, driver.Waiting)
		b.stop()
		c.close()
		told := true
		for i := 0; told && i < tries; i++ {
			for range 1 << i {
				w.settle()
			}
			a.leave(ta[i], driver.Held)
			w.settle()
			told = len(b.pushesOf(tb[i])) > 0
		}
		if told {
			w.Errorf("told after the context of Watch had ended")
		}
		a.breakTicket(tb[0])
		w.settle()
		if len(c.pushesOf(tc)) > 0 {
			w.Errorf("told after Close")
		}
	}},
}

// close closes the client's driver before the end of the case.
func (c *client) close() {
	c.w.Helper()
	c.closed = true
	if err := c.d.Close(); err != nil {
		c.w.Errorf("Close: %v", err)
	}
}
