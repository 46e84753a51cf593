package drivertest

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// leaveWithRetries lets a ticket leave, with as many tries as a store that was
// away needs.
func (w *world) leaveWithRetries(c *client, t *driver.Ticket) {
	w.Helper()
	w.until("the store lets a ticket leave", func() bool {
		ctx, cancel := w.limit()
		defer cancel()
		return c.leaveQuietly(ctx, t) == nil
	})
}

var storeCases = []Case{
	{Name: "lost-data", Rules: "Join 5, Renew 2, F20, F26, F37, F101", Needs: Fencing | LoseData, Alone: true, run: func(w *world) {
		// The store loses its data. Holders and waiters learn that they are gone, no
		// place is created again, and tokens keep growing.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		w.h.LoseData(w.T)
		a.renew(ta, driver.Gone)
		b.renew(tb, driver.Gone)
		a.leave(ta, driver.Gone)
		w.checkEmpty(ta.Name)
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
				w.leaveWithRetries(a, ta)
				return len(b.pushesOf(tb)) > 0
			})
		}
		w.leaveWithRetries(a, ta)
		w.leaveWithRetries(b, tb)
		t := a.mutex("n")
		if p := a.awaitGrant(t, a.joinAny(t)); w.traits.Fencing && p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
	}},
	{Name: "clock-forward", Rules: "Driver 7, Join 5, F18", Needs: Fencing | StepClock, Alone: true, run: func(w *world) {
		// The store's clock is set forward and, later, back: tokens grow on,
		// and no queue is left with a ticket that cannot be dropped or held.
		a, b := w.client(), w.client()
		ta := a.mutex("n")
		last := a.join(ta, driver.Held).Token
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			w.h.StepClock(w.T, step)
			t := b.mutex("n")
			// The store decides whether the old holder is still there.
			for _, e := range w.queueOf(t.Name).Tickets {
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
		b.renew(tb, driver.Waiting)
		a.renew(ta, driver.Held)
		a.leave(ta, driver.Held)
		if p := b.renew(tb, driver.Held); p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
	}},
	{Name: "clock-back-dead", Rules: "Driver 6, F19, F127", Needs: StepClock, Alone: true, run: func(w *world) {
		// The store's clock is set back, or begins anew with its machine: the
		// dead block the others for their TTL, not for as long as the clock is
		// behind.
		a, b := w.client(), w.client()
		limits := map[string]int64{"mutex": 1, "mutex try": 1}
		if w.traits.Shared {
			limits["readers"], limits["readers try"] = driver.RWLimit, driver.RWLimit
		}
		const dead = 3
		for line, limit := range limits {
			for range dead {
				a.joinAny(a.shortLived(a.ticket(line, 1, limit)))
			}
		}
		w.h.StepClock(w.T, -time.Hour)
		defer w.h.StepClock(w.T, time.Hour)
		for line, limit := range limits {
			next := func() *driver.Ticket { return b.shortLived(b.ticket(line, limit, limit)) }
			t, try := next(), strings.HasSuffix(line, "try")
			ask := func() driver.State {
				if !try {
					return b.joinAny(t).State
				}
				defer func() { t = next() }()
				return b.joinWith(t, false).State
			}
			ask()
			// At the worst, each waits for the one before.
			for asked := time.Now(); ask() != driver.Held; time.Sleep(w.pollInterval()) {
				if blocked := time.Since(asked); w.still.exceed(blocked, dead*w.latestExpiry(w.h.TTL), asked) {
					w.Fatalf("line %q is blocked by the dead for %v after the clock was set back; their TTL is %v", line, blocked, w.h.TTL)
				}
			}
		}
	}},
	{Name: "idle-counter", Rules: "Join 5, F116", Needs: Fencing | StepClock, Alone: true, run: func(w *world) {
		// A queue is idle for more than an hour, by the store's clock, which is
		// then corrected to before the last grant: nothing was lost, and tokens
		// do not go back, also not that of a floor which was ahead of the clock.
		// So it is while other lines are in use, and while none is.
		const second = uint64(time.Second / driver.TokenTick)
		for _, busy := range []bool{false, true} {
			a := w.client()
			cycle := func(name string, limit int64, floor uint64) uint64 {
				t := a.ticket(fmt.Sprintf("idle %v %s", busy, name), limit, limit)
				t.MinToken = floor
				p := a.join(t, driver.Held)
				a.leave(t, driver.Held)
				return p.Token
			}
			last := map[string]uint64{"mutex": cycle("mutex", 1, 0)}
			last["floor"] = cycle("floor", 1, last["mutex"]+second)
			if w.traits.Shared {
				last["writer"] = cycle("writer", driver.RWLimit, 0)
				last["floor of a writer"] = cycle("floor of a writer", driver.RWLimit, last["writer"]+second)
			}
			w.h.StepClock(w.T, 62*time.Minute)
			w.settle() // for places with an expiry to end
			if busy {
				cycle("another", 1, 0)
			}
			w.h.StepClock(w.T, -72*time.Minute)
			for range 2 {
				for name, before := range last {
					limit := int64(1)
					if strings.HasSuffix(name, "writer") {
						limit = driver.RWLimit
					}
					if last[name] = cycle(name, limit, 0); last[name] <= before {
						w.Errorf("after an idle hour and a clock set back, token %d after %d (%s, others in use: %v)", last[name], before, name, busy)
					}
				}
			}
			w.h.StepClock(w.T, 10*time.Minute)
		}
	}},
}
