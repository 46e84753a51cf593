package drivertest

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var tokenCases = []Case{
	{Name: "tokens-grow", Rules: "Join 5", Needs: Fencing, run: func(w *world) {
		// Over release, hand-off, TryLock and Break.
		a, b := w.client(), w.client()
		var last uint64
		grown := func(how string, p driver.Status) {
			w.Helper()
			if p.Token <= last {
				w.Errorf("%s: token %d after %d", how, p.Token, last)
			}
			last = p.Token
		}
		for range 20 {
			ta, tb := a.mutex("n"), b.mutex("n")
			grown("join", a.join(ta, driver.Held))
			b.join(tb, driver.Waiting)
			a.leave(ta, driver.Held)
			grown("hand-off", b.renew(tb, driver.Held))
			tc := a.mutex("n")
			a.join(tc, driver.Waiting)
			a.breakTicket(tb)
			grown("break", a.renew(tc, driver.Held))
			a.leave(tc, driver.Held)
			td := b.mutex("n")
			grown("try", b.try(td, driver.Held))
			b.leave(td, driver.Held)
		}
	}},
	{Name: "tokens-of-answers", Rules: "Join 5, Renew 3, Watch 1", Needs: Fencing | Push, run: func(w *world) {
		// A grant has one token, whoever tells it: push, Renew, Join, Inspect,
		// Leave.
		a, b := w.client(), w.client()
		ta, tb := a.mutex("n"), b.mutex("n")
		a.join(ta, driver.Held)
		b.join(tb, driver.Waiting)
		a.leave(ta, driver.Held)
		pushed := b.awaitPush(tb, driver.Held)
		l := w.queueOf(tb.Name)
		if len(l.Tickets) != 1 {
			w.Fatalf("the line is %s", formatQueue(l))
		}
		if l.Token != 0 && l.Token != pushed.Token {
			w.Errorf("Inspect says that the last token is %d, the push said %d", l.Token, pushed.Token)
		}
		for how, token := range map[string]uint64{
			"Renew": b.renew(tb, driver.Held).Token, "Join": b.join(tb, driver.Held).Token, "Inspect": l.Tickets[0].Token,
		} {
			if token != pushed.Token {
				w.Errorf("%s says token %d, the push said %d", how, token, pushed.Token)
			}
		}
	}},
	{Name: "tokens-shared", Rules: "Join 5", Needs: Fencing | Shared, run: func(w *world) {
		// Writers' tokens are above those of the readers before them, and the
		// other way round.
		a, b := w.client(), w.client()
		var last uint64
		for range 5 {
			r1, r2, wr := a.reader("n"), b.reader("n"), a.writer("n")
			p1, p2 := a.join(r1, driver.Held), b.join(r2, driver.Held)
			if min(p1.Token, p2.Token) <= last {
				w.Errorf("readers have tokens %d and %d after a writer's %d", p1.Token, p2.Token, last)
			}
			a.join(wr, driver.Waiting)
			a.leave(r1, driver.Held)
			b.leave(r2, driver.Held)
			last = a.renew(wr, driver.Held).Token
			if last <= max(p1.Token, p2.Token) {
				w.Errorf("a writer has token %d after readers' %d and %d", last, p1.Token, p2.Token)
			}
			a.leave(wr, driver.Held)
		}
	}},
	{Name: "token-floor", Rules: "Join 5", Needs: Fencing, run: func(w *world) {
		// A token is not below the ticket's minimum, whether it was granted at once
		// or after waiting. The next token is above it.
		a, b := w.client(), w.client()
		ta := a.mutex("n")
		p := a.join(ta, driver.Held)
		tb := b.mutex("n")
		tb.MinToken = p.Token + 1000_000
		b.join(tb, driver.Waiting)
		a.leave(ta, driver.Held)
		if p = b.renew(tb, driver.Held); p.Token < tb.MinToken {
			w.Errorf("token %d with a floor of %d", p.Token, tb.MinToken)
		}
		b.leave(tb, driver.Held)
		last := p.Token
		tc := a.mutex("n")
		tc.MinToken = last + 1000_000
		if p = a.join(tc, driver.Held); p.Token < tc.MinToken {
			w.Errorf("token %d with a floor of %d", p.Token, tc.MinToken)
		}
		a.leave(tc, driver.Held)
		last = p.Token
		td := b.mutex("n")
		td.MinToken = 1
		if p = b.join(td, driver.Held); p.Token <= last {
			w.Errorf("token %d after %d", p.Token, last)
		}
	}},
	{Name: "tokens-after-expiry", Rules: "Join 5", Needs: Fencing, run: func(w *world) {
		a, b := w.client(), w.client()
		ta, tb := a.shortLived(a.mutex("n")), b.shortLived(b.mutex("n"))
		first := a.join(ta, driver.Held)
		p := b.awaitGrant(tb, b.joinAny(tb)) // on a slow machine, the first has expired already
		if p.Token <= first.Token {
			w.Errorf("token %d after %d", p.Token, first.Token)
		}
		// The queue is left alone for longer than its last lease.
		time.Sleep(w.latestExpiry(tb.TTL))
		tc := b.mutex("n")
		if q := b.awaitGrant(tc, b.joinAny(tc)); q.Token <= p.Token {
			w.Errorf("token %d after %d", q.Token, p.Token)
		}
	}},
}
