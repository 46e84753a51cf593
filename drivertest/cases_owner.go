package drivertest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var limitCases = []Case{
	{Name: "limit-of-the-dead", Rules: "Join 6, Driver 6", Needs: Shared, run: func(w *world) {
		// A queue whose last ticket has expired has no limit.
		a, b := w.client(), w.client()
		a.join(a.shortLived(a.mutex("n")), driver.Held) // a is heard of no more
		t := b.ticket("n", 2, 3)
		w.until("a ticket of another limit is let in", func() bool {
			ctx, cancel := w.limit()
			defer cancel()
			p, err := b.d.Join(ctx, t, true)
			if err == nil && p.State == driver.Held {
				return true
			}
			if le := (*driver.LimitError)(nil); !errors.As(err, &le) {
				w.Fatalf("Join: %v, %v; want a LimitError", p.State, err)
			}
			return false
		})
	}},
}

var ownerCases = []Case{
	{Name: "owner-shares", Rules: "Join 7", Needs: Owner, run: func(w *world) {
		// Tickets of one owner hold together, with one token, until the last
		// of them is gone.
		a, b, c := w.client(), w.client(), w.client()
		t1, t2, t3 := a.withOwner("job 1", a.mutex("n")), b.withOwner("job 1", b.mutex("n")), b.withOwner("job 1", b.mutex("n"))
		other := c.withOwner("job 2", c.mutex("n"))
		p1 := a.join(t1, driver.Held)
		c.join(other, driver.Waiting)
		// Also past those who wait: it takes no place.
		if p := b.join(t2, driver.Held); p.Token != p1.Token {
			w.Errorf("one owner has tokens %d and %d", p1.Token, p.Token)
		}
		b.try(t3, driver.Held)
		w.checkQueue(t1.Name, []*driver.Ticket{t1, t2, t3}, other)
		a.leave(t1, driver.Held)
		w.checkQueue(t1.Name, []*driver.Ticket{t2, t3}, other)
		if p := b.renew(t2, driver.Held); p.Token != p1.Token {
			w.Errorf("token %d became %d", p1.Token, p.Token)
		}
		b.leave(t3, driver.Held)
		b.leave(t2, driver.Held)
		w.checkQueue(t1.Name, []*driver.Ticket{other})
	}},
	{Name: "owner-waits", Rules: "Join 7", Needs: Owner | Fair, run: func(w *world) {
		// Tickets of one owner wait in one place and are granted together.
		a, b, c := w.client(), w.client(), w.client()
		h := c.mutex("n")
		c.join(h, driver.Held)
		t1 := a.withOwner("job", a.mutex("n"))
		a.join(t1, driver.Waiting)
		behind := c.mutex("n")
		c.join(behind, driver.Waiting)
		t2 := b.withOwner("job", b.mutex("n"))
		b.join(t2, driver.Waiting)
		b.try(b.withOwner("job", b.mutex("n")), driver.Gone)
		c.leave(h, driver.Held)
		if w.traits.Push { // before they renew: a ticket that was answered needs no push
			a.awaitPush(t1, driver.Held)
			b.awaitPush(t2, driver.Held)
		}
		p1, p2 := a.renew(t1, driver.Held), b.renew(t2, driver.Held)
		if p1.Token != p2.Token {
			w.Errorf("one owner has tokens %d and %d", p1.Token, p2.Token)
		}
		w.checkQueue(t1.Name, []*driver.Ticket{t1, t2}, behind)
		a.leave(t1, driver.Held)
		c.renew(behind, driver.Waiting)
		b.leave(t2, driver.Held)
		c.renew(behind, driver.Held)
	}},
	{Name: "owner-stays-waiting", Rules: "Join 7, Leave 2", Needs: Owner, run: func(w *world) {
		// One ticket of a waiting owner leaves; the place stays for the other.
		a, b, c := w.client(), w.client(), w.client()
		h, t1, t2 := c.mutex("n"), a.withOwner("job", a.mutex("n")), b.withOwner("job", b.mutex("n"))
		c.join(h, driver.Held)
		a.join(t1, driver.Waiting)
		b.join(t2, driver.Waiting)
		a.leave(t1, driver.Waiting)
		w.checkQueue(h.Name, []*driver.Ticket{h}, t2)
		c.leave(h, driver.Held)
		w.checkQueue(h.Name, []*driver.Ticket{t2})
	}},
	{Name: "owner-upgrade", Rules: "Join 7, Driver 5", Needs: Owner | Shared, run: func(w *world) {
		// An owner that reads cannot write without letting go; one that writes
		// may read.
		a, b := w.client(), w.client()
		r := a.withOwner("job", a.reader("n"))
		a.join(r, driver.Held)
		if err := b.joinRefused(b.withOwner("job", b.writer("n"))); !errors.Is(err, driver.ErrUpgrade) {
			w.Errorf("error is %q, want %q", err, driver.ErrUpgrade)
		}
		w.checkQueue(r.Name, []*driver.Ticket{r})
		a.leave(r, driver.Held)
		wr, r2 := b.withOwner("job", b.writer("n")), a.withOwner("job", a.reader("n"))
		b.join(wr, driver.Held)
		a.join(r2, driver.Held)
		b.leave(wr, driver.Held)
		// The place is still the writer's.
		a.try(a.reader("n"), driver.Gone)
	}},
	{Name: "owner-in-part-dead", Rules: "Join 7, Driver 6", Needs: Owner, run: func(w *world) {
		// One process of an owner dies; the other one's place is not touched,
		// and ends when that dies as well.
		a, b, c := w.client(), w.client(), w.client()
		dead, alive, next := a.withOwner("job", a.mutex("n")), b.withOwner("job", b.mutex("n")), c.mutex("n")
		for _, t := range []*driver.Ticket{dead, alive, next} {
			a.shortLived(t)
		}
		begun := time.Now()
		a.join(dead, driver.Held)
		b.join(alive, driver.Held)
		if !c.joinBehind(next, begun, dead.TTL) {
			return
		}
		p := driver.Status{State: driver.Waiting}
		if w.keepAlive(begun, w.latestExpiry(dead.TTL)+dead.TTL/5, func() []driver.Status {
			p = c.renewAny(next)
			return []driver.Status{b.renewAny(alive), p}
		}, driver.Held, driver.Waiting) {
			c.awaitGrant(next, p)
		}
	}},
	{Name: "owner-apart", Rules: "Join 7", Needs: Owner, run: func(w *world) {
		// Different owners, and the same owner in another queue, are strangers.
		// An unnamed ticket is nobody's.
		b := w.client()
		b.join(b.withOwner("job", b.mutex("other")), driver.Held)
		w.checkDistinctOwners("job", "Job", "job ", "jo", "job:1", "", "{job}", "%s", "*", "")
	}},
}

// checkDistinctOwners checks that tickets of these owners wait for each other,
// and that Inspect returns the owners unchanged.
func (w *world) checkDistinctOwners(owners ...string) {
	w.Helper()
	c := w.client()
	var ts []*driver.Ticket
	for _, owner := range owners {
		t := c.withOwner(owner, c.mutex("n"))
		c.joinAny(t)
		ts = append(ts, t)
	}
	for i, e := range w.queueOf(w.name("n")).Tickets {
		if e.Owner != owners[i] {
			w.Errorf("owner %.40q is listed as %.40q", owners[i], e.Owner)
		}
	}
	for i := range ts {
		l := w.queueOf(ts[i].Name)
		for j, e := range l.Tickets {
			if e.ID != ts[i+j].ID || (e.State == driver.Held) != (j == 0) {
				w.Fatalf("after %d owners the line is %s, want the next one to hold alone", i, formatQueue(l))
			}
		}
		c.leave(ts[i], driver.Held)
	}
}
