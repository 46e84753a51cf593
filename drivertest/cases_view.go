package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// listNames lists the names that begin with prefix.
func (c *client) listNames(prefix string) []string {
	c.w.Helper()
	ctx, cancel := c.w.limit()
	defer cancel()
	var all []string
	for name, err := range c.d.Names(ctx, prefix) {
		if err != nil {
			c.w.Fatalf("Names(%q): %v", prefix, err)
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// checkNames checks the names that Names yields.
func (w *world) checkNames(c *client, prefix string, want ...string) {
	w.Helper()
	slices.Sort(want)
	w.awaitView(func() bool { return slices.Equal(c.listNames(prefix), want) })
	if got := c.listNames(prefix); !slices.Equal(got, want) {
		if len(got)+len(want) > 20 {
			w.Errorf("Names(%q) yields %d names, want %d others", prefix, len(got), len(want))
		} else {
			w.Errorf("Names(%q) yields %q, want %q", prefix, got, want)
		}
	}
}

var viewCases = []Case{
	{Name: "inspect", Rules: "Inspect, Join 6", run: func(w *world) {
		// Everything about everyone, in order.
		a, b := w.client(), w.client()
		ts := []*driver.Ticket{a.mutex("n"), b.mutex("n"), a.mutex("n")}
		if w.traits.Shared {
			ts = []*driver.Ticket{a.ticket("n", 2, 5), b.ticket("n", 3, 5), a.ticket("n", 4, 5), b.ticket("n", 1, 5)}
		}
		ts[0].Meta = ""
		if w.traits.Owner {
			ts[1].Owner = "job 7"
		}
		held := int64(0)
		var last uint64
		for i, t := range ts {
			p := []*client{a, b}[i%2].joinAny(t)
			if p.State == driver.Held {
				held++
				last = max(last, p.Token)
			}
		}
		l := w.queueOf(ts[0].Name)
		if l.Limit != ts[0].Limit {
			w.Errorf("Limit is %d, want %d", l.Limit, ts[0].Limit)
		}
		if l.Token != 0 && l.Token != last {
			w.Errorf("Token is %d, want %d", l.Token, last)
		}
		if len(l.Tickets) != len(ts) {
			w.Fatalf("the line is %s, want %d tickets", formatQueue(l), len(ts))
		}
		for i, t := range ts {
			at := slices.IndexFunc(l.Tickets, func(e driver.Entry) bool { return e.ID == t.ID })
			if at < 0 || at != i && (w.traits.Fair && i >= int(held) || at >= int(held)) {
				w.Errorf("ticket %d is at %d of %s", i, at, formatQueue(l))
				continue
			}
			e := l.Tickets[at]
			s := driver.Waiting
			if i < int(held) {
				s = driver.Held
			}
			if e.State != s || e.Units != t.Units || e.Owner != t.Owner || e.Meta != t.Meta {
				w.Errorf("ticket %d is listed as %+v, want state %v, units %d, owner %q, meta %q", i, e, s, t.Units, t.Owner, t.Meta)
			}
			if e.Left > w.latestExpiry(t.TTL) || e.Left < -w.latestExpiry(t.TTL) || badToken(w, e) {
				w.Errorf("ticket %d is listed with %v left and token %d, and a TTL of %v", i, e.Left, e.Token, t.TTL)
			}
		}
	}},
	{Name: "inspect-nothing", Rules: "Inspect 1", run: func(w *world) {
		// A queue that never was, and a queue that everybody has left.
		a := w.client()
		t := a.mutex("n")
		for range 2 {
			if l := w.queueOf(t.Name); len(l.Tickets) != 0 || l.Limit != 0 {
				w.Errorf("the line is %s with a limit of %d", formatQueue(l), l.Limit)
			}
			a.joinAny(t)
			a.leave(t, driver.Held)
			t = a.mutex("n")
		}
	}},
	{Name: "inspect-renews-nothing", Rules: "Inspect 2, Names 3", run: func(w *world) {
		// Inspect does not extend a lease.
		a := w.client()
		t := a.shortLived(a.mutex("n"))
		sent := time.Now()
		p := a.join(t, driver.Held)
		answered := time.Now()
		for {
			asked := time.Now()
			w.witness().listNames(t.Name)
			l := w.queueOf(t.Name)
			if len(l.Tickets) == 0 {
				if kept := time.Since(sent); kept < p.Lease {
					w.Errorf("gone after %v, with a lease of %v", kept, p.Lease)
				}
				return
			}
			if kept := asked.Sub(answered); w.still.exceed(kept, w.latestExpiry(t.TTL), answered) {
				w.Fatalf("still there after %v with a TTL of %v", kept, t.TTL)
			}
			// The remaining time may grow meanwhile: a store may keep all tickets of a
			// client by one lease, which lives as long as the client.
			if left := l.Tickets[0].Left; left > t.TTL*2 {
				w.Errorf("%v left of a TTL of %v", left, t.TTL)
			}
			time.Sleep(w.pollInterval())
		}
	}},
	{Name: "inspect-meta", Rules: "Join 10, Inspect", run: func(w *world) {
		// Metadata comes back byte for byte.
		a := w.client()
		for i, meta := range []string{
			"", " ", "\x00", "a\x00b", "\n\r\t", `"'\`, `{"host":"a","pid":1}`, "%s%00", "äöü 世界 🔒", "e\u0301 é", "\ufeffbom", "$1 ? :x", ";DROP TABLE", "0", "null",
			strings.Repeat("m", driver.MaxMeta), strings.Repeat("界", driver.MaxMeta/3),
		} {
			t := a.mutex(fmt.Sprint("n", i))
			t.Meta = meta
			a.join(t, driver.Held)
			if l := w.queueOf(t.Name); len(l.Tickets) != 1 || l.Tickets[0].Meta != meta {
				w.Errorf("metadata %.40q is listed as %.60q", meta, fmt.Sprintf("%+v", l.Tickets))
			}
			if p := a.try(a.mutex(fmt.Sprint("n", i)), driver.Gone); p.Holder != "" && p.Holder != meta {
				w.Errorf("metadata %.40q is answered as %.40q", meta, p.Holder)
			}
		}
	}},
	{Name: "names", Rules: "Names 1, 3", run: func(w *world) {
		// Lines that have tickets, once each, and by their beginning.
		a, b := w.client(), w.client()
		free := a.mutex("a free one")
		a.join(free, driver.Held)
		var all []string
		for _, s := range []string{"a", "ab", "abc", "b", "a/b", "a*", "A"} {
			t := a.mutex(s)
			a.join(t, driver.Held)
			b.join(b.mutex(s), driver.Waiting)
			all = append(all, t.Name)
		}
		a.leave(free, driver.Held)
		w.checkNames(b, w.tag, all...)
		w.checkNames(a, w.name("a"), w.name("a"), w.name("ab"), w.name("abc"), w.name("a/b"), w.name("a*"))
		w.checkNames(a, w.name("ab"), w.name("ab"), w.name("abc"))
		w.checkNames(a, w.name("a*"), w.name("a*"))
		w.checkNames(a, w.name("a/"), w.name("a/b"))
		w.checkNames(a, w.name("abcd"))
		w.checkNames(a, w.name("?"))
	}},
	{Name: "names-many", Rules: "Names 1", run: func(w *world) {
		// More than a store lists in one go; and the list may be left early.
		a, b := w.client(), w.client()
		const n = 300
		all := make([]string, n)
		for i := range all {
			t := a.mutex(fmt.Sprint(i))
			a.join(t, driver.Held)
			all[i] = t.Name
		}
		w.checkNames(b, w.tag, all...)
		ctx, cancel := w.limit()
		defer cancel()
		seen := 0
		for _, err := range b.d.Names(ctx, w.tag) {
			if err != nil {
				w.Errorf("Names: %v", err)
			}
			if seen++; seen == 3 {
				break
			}
		}
		if seen != 3 {
			w.Errorf("left after %d names, want 3", seen)
		}
	}},
}

// badToken reports whether a held entry has no token, or a waiting one has one.
func badToken(w *world, e driver.Entry) bool {
	return w.traits.Fencing && (e.State == driver.Held) != (e.Token != 0)
}
