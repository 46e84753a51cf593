package drivertest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// sameLane keeps the tickets whose names share the lane of the first one (Renew
// 6).
func (w *world) sameLane(refs []driver.Ref) []driver.Ref {
	lane := w.traits.Lane
	if lane == nil {
		return refs
	}
	return slices.DeleteFunc(refs, func(r driver.Ref) bool { return lane(r.Name) != lane(refs[0].Name) })
}

var renewCases = []Case{
	{Name: "renew-keeps", Rules: "Renew 1, Join 9", run: func(w *world) {
		// Holders and waiters that are renewed stay.
		a, b := w.client(), w.client()
		ta, tb := a.shortLived(a.mutex("n")), b.shortLived(b.mutex("n"))
		begun := time.Now()
		first := a.join(ta, driver.Held)
		if !b.joinBehind(tb, begun, ta.TTL) {
			return
		}
		if w.keepAlive(begun, ta.TTL*5/2, func() []driver.Status {
			return []driver.Status{a.renewAny(ta), b.renewAny(tb)}
		}, driver.Held, driver.Waiting) {
			if p := a.renewAny(ta); p.State == driver.Held && p.Token != first.Token {
				w.Errorf("token %d became %d", first.Token, p.Token)
			}
		}
	}},
	{Name: "renew-answers", Rules: "Renew 1, 2", run: func(w *world) {
		// The answers of a batch are in the order of its tickets, each about its
		// own ticket, whatever the core believes.
		a, b := w.client(), w.client()
		var refs []driver.Ref
		want := make(map[string]driver.Status)
		add := func(t *driver.Ticket, p driver.Status) {
			refs = append(refs, driver.Ref{Ticket: t, State: []driver.State{driver.Held, driver.Waiting}[len(refs)%2]})
			want[t.ID] = p
		}
		for i := range 12 {
			name := "n" + string(rune('a'+i))
			t := a.mutex(name)
			switch i % 4 {
			case 0:
				add(t, a.join(t, driver.Held))
			case 1:
				b.join(b.mutex(name), driver.Held)
				add(t, a.join(t, driver.Waiting))
			case 2:
				a.join(t, driver.Held)
				b.breakTicket(t)
				a.awaitBroken(t)
				add(t, driver.Status{State: driver.Gone})
			case 3:
				add(t, driver.Status{State: driver.Gone}) // never joined
			}
		}
		// One queue with several of them, in the opposite order.
		for range 3 {
			t := a.mutex("na")
			add(t, a.join(t, driver.Waiting))
		}
		slices.Reverse(refs)
		refs = w.sameLane(refs)
		for i, p := range a.renewAll(refs) {
			if q := want[refs[i].ID]; p.State != q.State || q.State == driver.Held && p.Token != q.Token {
				w.Errorf("answer %d is %v with token %d, want %v with %d", i, p.State, p.Token, q.State, q.Token)
			}
			a.checkStatus("Renew", refs[i].Ticket, p)
		}
		if ps := a.renewAll(nil); len(ps) != 0 {
			w.Errorf("no tickets have %d answers", len(ps))
		}
	}},
	{Name: "renew-200", Rules: "Renew 1", Needs: Shared, run: func(w *world) {
		// A batch of the size that the core sends.
		const n = 200
		a := w.client()
		refs := make([]driver.Ref, n)
		tokens := make([]uint64, n)
		for i := range refs {
			refs[i] = driver.Ref{Ticket: a.ticket("n", 1, n), State: driver.Held}
			tokens[i] = a.join(refs[i].Ticket, driver.Held).Token
		}
		for i, p := range a.renewAll(refs) {
			if p.State != driver.Held || p.Token != tokens[i] {
				w.Errorf("answer %d is %v with token %d, want held with %d", i, p.State, p.Token, tokens[i])
			}
		}
		for i, p := range a.leaveAll(refs) {
			if p.State != driver.Held {
				w.Errorf("Leave: answer %d is %v, want held", i, p.State)
			}
			a.forget(refs[i].Ticket)
		}
		w.checkEmpty(w.name("n"))
	}},
	{Name: "renew-creates-nothing", Rules: "Renew 2, F9", run: func(w *world) {
		a, b := w.client(), w.client()
		never, left, broken := a.mutex("n"), a.mutex("n"), a.mutex("n")
		a.renew(never, driver.Gone)
		w.checkEmpty(never.Name)
		a.join(left, driver.Held)
		a.leave(left, driver.Held)
		a.join(broken, driver.Held)
		b.breakTicket(broken)
		a.awaitBroken(broken)
		for _, t := range []*driver.Ticket{never, left, broken} {
			a.renew(t, driver.Gone)
		}
		w.checkEmpty(never.Name)
		// Nor beside one who holds.
		tb := b.mutex("n")
		b.join(tb, driver.Held)
		for _, t := range []*driver.Ticket{never, left, broken} {
			a.renew(t, driver.Gone)
		}
		w.checkQueue(tb.Name, []*driver.Ticket{tb})
	}},
	{Name: "renew-of-the-silent", Rules: "Renew 7, Join 1, Watch 1, F105", Needs: Pause, Alone: true, run: func(w *world) {
		// A store that is silent for two leases says nothing, and so does its
		// driver, also not by a push.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		resume := w.h.Pause(w.T)
		call := func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), max(w.h.TTL/6, 50*time.Millisecond))
		}
		for start := time.Now(); time.Since(start) < 2*w.h.TTL; {
			for _, x := range []struct {
				c   *client
				ref driver.Ref
			}{{a, driver.Ref{Ticket: ta, State: driver.Held}}, {b, driver.Ref{Ticket: tb, State: driver.Waiting}}} {
				ctx, cancel := call()
				ps, err := x.c.d.Renew(ctx, []driver.Ref{x.ref})
				cancel()
				if err == nil && (len(ps) != 1 || ps[0].Err == nil) {
					w.Errorf("Renew answered %+v for %s while the store was silent", ps, x.ref.ID)
				}
			}
			ctx, cancel := call()
			if p, err := b.d.Join(ctx, b.mutex("other"), true); err == nil {
				w.Errorf("Join answered %+v while the store was silent", p)
			}
			cancel()
		}
		for _, c := range []*client{a, b} {
			for _, p := range append(a.pushesOf(ta), c.pushesOf(tb)...) {
				if p.State == driver.Gone {
					w.Errorf("a push said Gone while the store was silent")
				}
			}
		}
		resume()
	}},
	{Name: "join-of-the-unleft", Rules: "Renew 7, Join 2, F105", Needs: Pause, Alone: true, run: func(w *world) {
		// A ticket whose Leave has no answer may have its place: until the store says
		// otherwise, no Join and no Leave calls it Gone.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		resume := w.h.Pause(w.T)
		for _, x := range []struct {
			c *client
			t *driver.Ticket
		}{{a, ta}, {b, tb}} {
			ref := driver.Ref{Ticket: x.t, State: driver.Held, JoinPending: true}
			for _, call := range []struct {
				name string
				send func(ctx context.Context) ([]driver.Status, error)
			}{
				{"Leave", func(ctx context.Context) ([]driver.Status, error) { return x.c.d.Leave(ctx, []driver.Ref{ref}) }},
				{"Join", func(ctx context.Context) ([]driver.Status, error) {
					p, err := x.c.d.Join(ctx, x.t, true)
					return []driver.Status{p}, err
				}},
				{"Leave again", func(ctx context.Context) ([]driver.Status, error) { return x.c.d.Leave(ctx, []driver.Ref{ref}) }},
			} {
				ctx, cancel := context.WithTimeout(context.Background(), max(w.h.TTL/8, 50*time.Millisecond))
				ps, err := call.send(ctx)
				cancel()
				if err == nil && (len(ps) != 1 || ps[0].Err == nil) {
					w.Errorf("%s answered %+v for %s while the store was silent", call.name, ps, x.t.ID)
				}
			}
		}
		resume()
		w.leaveWithRetries(a, ta)
		w.leaveWithRetries(b, tb)
		w.settle()
		w.checkEmpty(ta.Name)
	}},
	{Name: "renew-reports", Rules: "Renew 3, F46, F50", run: func(w *world) {
		// A client that hears nothing learns of its grant by asking.
		a, b := w.client(), w.clientIgnoringPushes()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		b.renew(tb, driver.Waiting)
		a.leave(ta, driver.Held)
		if p := b.renew(tb, driver.Held); w.traits.Fencing && p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
		b.breakTicket(tb)
		b.renewBroken(tb)
	}},
	{Name: "renew-too-late", Rules: "Renew 4, F9, F12, F58", run: func(w *world) {
		// A holder that slept finds another one in its place: renewing and
		// leaving tell it Gone, and do not touch the other.
		a, b := w.client(), w.client()
		ta, tb := a.shortLived(a.mutex("n")), b.mutex("n")
		a.join(ta, driver.Held)
		b.awaitGrant(tb, b.joinAny(tb))
		a.renew(ta, driver.Gone)
		a.leave(ta, driver.Gone)
		w.checkQueue(ta.Name, []*driver.Ticket{tb})
		b.leave(tb, driver.Held)
		a.renew(ta, driver.Gone)
		w.checkEmpty(ta.Name)
	}},
	{Name: "renew-against-leave", Rules: "Driver 1, 8, Renew 2, F8", run: func(w *world) {
		// A Leave that overtakes a renewal releases, and says so; the renewal
		// brings nothing back.
		a := w.client()
		for range 30 {
			t := a.mutex("n")
			if w.h.LateViews { // a node that is late has the place before for a moment
				a.awaitGrant(t, a.joinAny(t))
			} else {
				a.join(t, driver.Held)
			}
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					ctx, cancel := w.limit()
					defer cancel()
					if _, err := a.d.Renew(ctx, []driver.Ref{{Ticket: t, State: driver.Held}}); err != nil {
						w.Errorf("Renew: %v", err)
					}
				})
			}
			a.leave(t, driver.Held)
			wg.Wait()
			a.renew(t, driver.Gone)
		}
		w.checkEmpty(w.name("n"))
	}},
}
