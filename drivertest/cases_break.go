package drivertest

import (
	"errors"

	"github.com/holdfast-go/holdfast/driver"
)

var breakCases = []Case{
	{Name: "break-held", Rules: "Break 2, 3, Watch 1", run: func(w *world) {
		// The ticket is gone at once, its client learns of it, and the next
		// one holds and is told.
		a, b, op := w.client(), w.client(), w.clientIgnoringPushes()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		op.breakTicket(ta)
		w.checkQueue(ta.Name, []*driver.Ticket{tb})
		if w.traits.Push {
			a.awaitPush(ta, driver.Gone)
			b.awaitPush(tb, driver.Held)
		}
		a.renewBroken(ta)
		a.leave(ta, driver.Gone)
		if p := b.renew(tb, driver.Held); w.traits.Fencing && p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
	}},
	{Name: "break-waiting", Rules: "Break 2", run: func(w *world) {
		a, b, c := w.client(), w.client(), w.client()
		ta, tb, tc := a.mutex("n"), b.mutex("n"), c.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		c.join(tc, driver.Waiting)
		a.breakTicket(tb)
		w.checkQueue(ta.Name, []*driver.Ticket{ta}, tc)
		if w.traits.Push {
			b.awaitPush(tb, driver.Gone)
		}
		b.renew(tb, driver.Gone)
		a.leave(ta, driver.Held)
		w.checkQueue(ta.Name, []*driver.Ticket{tc})
	}},
	{Name: "break-nobody", Rules: "Break 1", run: func(w *world) {
		// There is no such ticket: an error, and nothing happens.
		a, b := w.client(), w.client()
		ta, other, left := a.mutex("n"), a.mutex("other"), a.mutex("n")
		a.join(left, driver.Held)
		a.leave(left, driver.Held)
		a.join(ta, driver.Held)
		a.join(other, driver.Held)
		for _, miss := range [][2]string{
			{ta.Name, other.ID}, {ta.Name, left.ID}, {ta.Name, ta.ID + "0"}, {ta.Name, ""}, {ta.Name, "*"}, {w.name("no line"), ta.ID},
		} {
			ctx, cancel := w.limit()
			if err := b.d.Break(ctx, miss[0], miss[1]); !errors.Is(err, driver.ErrNoTicket) {
				w.Errorf("Break(%q, %q): error is %v, want %q", miss[0], miss[1], err, driver.ErrNoTicket)
			}
			cancel()
		}
		w.checkQueue(ta.Name, []*driver.Ticket{ta})
		w.checkQueue(other.Name, []*driver.Ticket{other})
	}},
	{Name: "break-one-of-an-owner", Rules: "Break 2, Join 7", Needs: Owner, run: func(w *world) {
		a, b, c := w.client(), w.client(), w.client()
		t1, t2, tc := a.withOwner("job", a.mutex("n")), b.withOwner("job", b.mutex("n")), c.mutex("n")
		a.join(t1, driver.Held)
		b.join(t2, driver.Held)
		c.join(tc, driver.Waiting)
		c.breakTicket(t1)
		w.checkQueue(t1.Name, []*driver.Ticket{t2}, tc)
		a.renewBroken(t1)
		c.breakTicket(t2)
		w.checkQueue(t1.Name, []*driver.Ticket{tc})
	}},
}

// renewBroken renews a ticket after a Break and expects that it is Gone, at the
// latest when the driver has heard of the Break.
func (c *client) renewBroken(t *driver.Ticket) {
	c.w.Helper()
	c.awaitBroken(t)
	c.renew(t, driver.Gone)
}

// awaitBroken waits until the driver has heard of a Break, where it may hear late.
func (c *client) awaitBroken(t *driver.Ticket) {
	c.w.Helper()
	if c.w.h.LateBreaks {
		c.w.until("a broken ticket is no longer held", func() bool { return c.renewAny(t).State != driver.Held })
	}
}
