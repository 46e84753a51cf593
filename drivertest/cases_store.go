package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// left lets a ticket leave, as often as a store that was away needs.
func (w *world) left(c *client, t *driver.Ticket) {
	w.Helper()
	w.until("the store lets a ticket leave", func() bool {
		ctx, cancel := w.limit()
		defer cancel()
		return c.leaveQuietly(ctx, t) == nil
	})
}

var storeCases = []Case{
	{Name: "lost-data", Rules: "Join 5, Renew 2, F20, F26, F37, F101", Needs: Fencing | LoseData, Alone: true, run: func(w *world) {
		// The store is empty all of a sudden: who held and who waited learn
		// that they are gone, nothing is made anew, and tokens grow on.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		w.h.LoseData(w.T)
		a.renew(ta, driver.Gone)
		b.renew(tb, driver.Gone)
		a.leave(ta, driver.Gone)
		w.empty(ta.Name)
		time.Sleep(time.Millisecond)
		last := first.Token
		for range 3 {
			t := b.mutex("n")
			p := b.join(t, driver.Held)
			if p.Token <= last {
				w.Errorf("token %d after %d", p.Token, last)
			}
			last = p.Token
			w.h.LoseData(w.T)
			time.Sleep(time.Millisecond) // it takes some ticks of the token clock
		}
	}},
	{Name: "old-data", Rules: "Join 5, F27", Needs: Fencing | Snapshot, Alone: true, run: func(w *world) {
		// The store goes back to an older state: tokens do not.
		a := w.client()
		t := a.mutex("n")
		last := a.join(t, driver.Held).Token
		a.leave(t, driver.Held)
		restore := w.h.Snapshot(w.T)
		for range 10 {
			t = a.mutex("n")
			last = a.join(t, driver.Held).Token
			a.leave(t, driver.Held)
			time.Sleep(time.Millisecond)
		}
		restore()
		t = a.mutex("n")
		if p := a.join(t, driver.Held); p.Token <= last {
			w.Errorf("token %d after %d", p.Token, last)
		}
	}},
	{Name: "restart", Rules: "Traits, Watch 3, Join 5", Needs: Restart, Alone: true, run: func(w *world) {
		// The store restarts: holds survive if Traits say so, tokens grow, and
		// pushes flow again, or the client is told that there was a gap.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		w.settle()
		gaps := b.gapCount()
		w.h.Restart(w.T)
		settled := func(c *client, t *driver.Ticket) (s driver.State) {
			w.until("the store answers again", func() bool {
				ctx, cancel := w.limit()
				defer cancel()
				ps, err := c.d.Renew(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
				if err != nil || ps[0].Err != nil {
					return false
				}
				s = ps[0].State
				return true
			})
			return s
		}
		sa, sb := settled(a, ta), settled(b, tb)
		if w.traits.SurvivesRestart && (sa != driver.Held || sb != driver.Waiting) {
			w.Errorf("after a restart, the holder is %v and the waiter %v", sa, sb)
		}
		if w.traits.Push {
			w.until("the waiter hears of the restart, or of its grant", func() bool {
				if b.gapCount() > gaps || sb == driver.Gone {
					return true
				}
				w.left(a, ta)
				return len(b.told(tb)) > 0
			})
		}
		w.left(a, ta)
		w.left(b, tb)
		t := a.mutex("n")
		if p := a.granted(t, a.joinAny(t)); w.traits.Fencing && p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
	}},
	{Name: "clock-forward", Rules: "Driver 7, Join 5, F18", Needs: Fencing | StepClock, Alone: true, run: func(w *world) {
		// The store's clock is set forward and, later, back: tokens grow on,
		// and no line is left with a ticket that cannot be dropped or held.
		a, b := w.client(), w.client()
		ta := a.mutex("n")
		last := a.join(ta, driver.Held).Token
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			w.h.StepClock(w.T, step)
			t := b.mutex("n")
			// What became of the old holder is the store's affair.
			for _, e := range w.lineOf(t.Name).Tickets {
				ctx, cancel := w.limit()
				_ = a.d.Break(ctx, t.Name, e.ID)
				cancel()
			}
			p := b.join(t, driver.Held)
			if p.Token <= last {
				w.Errorf("the clock went by %v: token %d after %d", step, p.Token, last)
			}
			last = p.Token
		}
	}},
	{Name: "clock-back", Rules: "Join 5, F19", Needs: Fencing | StepClock, Alone: true, run: func(w *world) {
		// The store's clock is set back: a holder that renews is not harmed,
		// and tokens grow on.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		w.h.StepClock(w.T, -2*time.Minute)
		defer w.h.StepClock(w.T, 2*time.Minute)
		a.renew(ta, driver.Held)
		a.leave(ta, driver.Held)
		if p := b.renew(tb, driver.Held); p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
	}},
}
