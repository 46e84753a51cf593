package drivertest

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lane keeps the tickets whose names share the lane of the first one (Renew 6).
func (w *world) lane(refs []driver.Ref) []driver.Ref {
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
		ta, tb := a.mortal(a.mutex("n")), b.mortal(b.mutex("n"))
		begun := time.Now()
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		if w.keep(begun, ta.TTL*5/2, func() []driver.Place {
			return []driver.Place{a.ask(ta), b.ask(tb)}
		}, driver.Held, driver.Waiting) {
			if p := a.ask(ta); p.State == driver.Held && p.Token != first.Token {
				w.Errorf("token %d became %d", first.Token, p.Token)
			}
		}
	}},
	{Name: "renew-answers", Rules: "Renew 1, 2", run: func(w *world) {
		// The answers of a batch are in the order of its tickets, each for
		// itself, whatever the core believes about them.
		a, b := w.client(), w.client()
		var refs []driver.Ref
		want := make(map[string]driver.Place)
		add := func(t *driver.Ticket, p driver.Place) {
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
				b.brk(t)
				add(t, driver.Place{State: driver.Gone})
			case 3:
				add(t, driver.Place{State: driver.Gone}) // never joined
			}
		}
		// One line with several of them, in the opposite order.
		for range 3 {
			t := a.mutex("na")
			add(t, a.join(t, driver.Waiting))
		}
		slices.Reverse(refs)
		refs = w.lane(refs)
		for i, p := range a.renewAll(refs) {
			if q := want[refs[i].ID]; p.State != q.State || q.State == driver.Held && p.Token != q.Token {
				w.Errorf("answer %d is %v with token %d, want %v with %d", i, p.State, p.Token, q.State, q.Token)
			}
			a.sane("Renew", refs[i].Ticket, p)
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
			a.settled(refs[i].Ticket)
		}
		w.empty(w.name("n"))
	}},
	{Name: "renew-creates-nothing", Rules: "Renew 2, F9", run: func(w *world) {
		a, b := w.client(), w.client()
		never, left, broken := a.mutex("n"), a.mutex("n"), a.mutex("n")
		a.renew(never, driver.Gone)
		w.empty(never.Name)
		a.join(left, driver.Held)
		a.leave(left, driver.Held)
		a.join(broken, driver.Held)
		b.brk(broken)
		for _, t := range []*driver.Ticket{never, left, broken} {
			a.renew(t, driver.Gone)
		}
		w.empty(never.Name)
		// Nor beside one who holds.
		tb := b.mutex("n")
		b.join(tb, driver.Held)
		for _, t := range []*driver.Ticket{never, left, broken} {
			a.renew(t, driver.Gone)
		}
		w.line(tb.Name, []*driver.Ticket{tb})
	}},
	{Name: "renew-reports", Rules: "Renew 3, F46, F50", run: func(w *world) {
		// A client that hears nothing learns of its grant by asking.
		a, b := w.client(), w.deaf()
		ta, tb := a.mutex("n"), b.mutex("n")
		first := a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		b.renew(tb, driver.Waiting)
		a.leave(ta, driver.Held)
		if p := b.renew(tb, driver.Held); w.traits.Fencing && p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
		b.brk(tb)
		b.renew(tb, driver.Gone)
	}},
	{Name: "renew-too-late", Rules: "Renew 4, F9, F12, F58", run: func(w *world) {
		// A holder that slept finds another one in its place: renewing and
		// leaving tell it Gone, and do not touch the other.
		a, b := w.client(), w.client()
		ta, tb := a.mortal(a.mutex("n")), b.mutex("n")
		a.join(ta, driver.Held)
		b.granted(tb, b.joinAny(tb))
		a.renew(ta, driver.Gone)
		a.leave(ta, driver.Gone)
		w.line(ta.Name, []*driver.Ticket{tb})
		b.leave(tb, driver.Held)
		a.renew(ta, driver.Gone)
		w.empty(ta.Name)
	}},
	{Name: "renew-against-leave", Rules: "Driver 1, 8, Renew 2, F8", run: func(w *world) {
		// A Leave that overtakes a renewal releases, and says so; the renewal
		// brings nothing back.
		a := w.client()
		for range 30 {
			t := a.mutex("n")
			a.join(t, driver.Held)
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
		w.empty(w.name("n"))
	}},
}
