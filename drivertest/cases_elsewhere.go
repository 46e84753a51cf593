package drivertest

import "github.com/holdfast-go/holdfast/driver"

// Elsewhere is a way to see the same store that may look like another store, or
// like the same one at another time: with another boot id, or by a second name
// of its file.
type Elsewhere struct {
	How string // "by a hard link"
	// Open returns a new client that sees the store in this way, or why it is
	// refused: either will do. The suite closes it.
	Open func(t T) (driver.Driver, error)
}

var elsewhereCases = []Case{
	{Name: "elsewhere", Rules: "Join 3, Join 5, F127, F128", Needs: HasElsewhere, Alone: true, run: func(w *world) {
		// A client that sees the store in another way is excluded by the holders,
		// or refused. It harms nobody.
		for _, e := range w.h.Elsewhere {
			a := w.client()
			ta := a.mutex(e.How)
			held := a.join(ta, driver.Held)
			c := w.openElsewhere(e)
			second := func(after uint64) {
				if c == nil {
					return
				}
				if p := c.joinWith(c.mutex(e.How), false); p.State == driver.Held {
					w.Errorf("%s: a second client holds, with token %d after %d", e.How, p.Token, after)
				}
			}
			second(held.Token)
			if p := a.renewAny(ta); p.State != driver.Held {
				w.Errorf("%s: the holder is %v when another client has come", e.How, p.State)
				continue
			}
			b := w.client()
			tb := b.mutex(e.How)
			b.join(tb, driver.Waiting)
			a.leave(ta, driver.Held)
			next := b.awaitGrant(tb, b.renewAny(tb))
			if w.traits.Fencing && next.Token <= held.Token {
				w.Errorf("%s: token %d after %d", e.How, next.Token, held.Token)
			}
			second(next.Token)
			b.leave(tb, driver.Held)
		}
	}},
}

// openElsewhere opens a client, or returns nil if it is refused.
func (w *world) openElsewhere(e Elsewhere) *client {
	w.Helper()
	d, err := e.Open(w.T)
	if err != nil {
		if class := driver.ClassOf(err); class != driver.Refused {
			w.Errorf("%s: the class of %q is %v, want %v", e.How, err, class, driver.Refused)
		}
		w.Logf("%s: %v", e.How, err)
		return nil
	}
	return w.adopt(d)
}
