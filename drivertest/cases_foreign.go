package drivertest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

// Foreign is a value that another program keeps where a store keeps a queue: its
// lock, or something that is no lock.
type Foreign struct {
	Name string // in words, for the log, for the log
	// Put puts the value at the end of the queue of that name.
	Put func(t T, name string) (remove func())
	// Outcome returns the fate of a ticket that joins behind it. Nil means Refused
	// for all.
	Outcome func(units, limit int64) ForeignOutcome
	// ErrorNames is a text that the error of a refused ticket has to contain.
	ErrorNames string
}

// ForeignOutcome is the fate of a ticket that meets a foreign value.
type ForeignOutcome uint8

// The meetings.
const (
	Refused ForeignOutcome = iota // an error of class Refused, and nothing stays
	Waits                         // the ticket waits, and holds when the foreign lock is gone
	Shares                        // both hold
)

var foreignCases = []Case{
	{Name: "foreign-in-line", Rules: "Join 11, F131", Needs: HasForeign, run: func(w *world) {
		// No ticket holds beside another program's value in its queue, unless that
		// value shares. A ticket that held before stays.
		for i, f := range w.h.Foreign {
			for _, k := range w.lockKinds() {
				w.joinBehindForeign(&f, fmt.Sprintf("f%d-%d-%d", i, k.units, k.limit), k.units, k.limit)
			}
			c := w.client()
			t := c.mutex(fmt.Sprintf("held-%d", i))
			c.join(t, driver.Held)
			remove := f.Put(w.T, t.Name)
			c.renew(t, driver.Held)
			c.leave(t, driver.Held)
			remove()
		}
	}},
}

// lockKind is the units and the limit of the tickets of one kind of lock.
type lockKind struct{ units, limit int64 }

// lockKinds returns the kinds of locks that the store offers.
func (w *world) lockKinds() []lockKind {
	all := []lockKind{{1, 1}, {1, driver.RWLimit}, {driver.RWLimit, driver.RWLimit}, {1, 3}, {3, 3}}
	if !w.traits.Shared {
		return all[:1]
	}
	return all
}

// joinBehindForeign joins behind a foreign value, which is then removed, and
// checks the outcome.
func (w *world) joinBehindForeign(f *Foreign, name string, units, limit int64) {
	w.Helper()
	c := w.client()
	remove := f.Put(w.T, w.name(name))
	want := Refused
	if f.Outcome != nil {
		want = f.Outcome(units, limit)
	}
	switch want {
	case Refused:
		for _, wait := range []bool{false, true} {
			w.refusedBehind(c, f, c.ticket(name, units, limit), wait)
		}
		remove()
	case Shares:
		t := c.ticket(name, units, limit)
		c.try(t, driver.Held)
		c.leave(t, driver.Held)
		remove()
	case Waits:
		c.try(c.ticket(name, units, limit), driver.Gone)
		t := c.ticket(name, units, limit)
		c.join(t, driver.Waiting)
		remove()
		w.until("the ticket behind "+f.Name+" holds", func() bool { return c.renewAny(t).State == driver.Held })
		c.leave(t, driver.Held)
	}
	t := c.ticket(name, units, limit)
	c.try(t, driver.Held)
	c.leave(t, driver.Held)
}

// refusedBehind joins behind something foreign, which the error has to name.
func (w *world) refusedBehind(c *client, f *Foreign, t *driver.Ticket, wait bool) {
	w.Helper()
	ctx, cancel := w.limit()
	defer cancel()
	p, err := c.d.Join(ctx, t, wait)
	_, limit := errors.AsType[*driver.LimitError](err)
	if err == nil || driver.ClassOf(err) != driver.Refused || !limit && !strings.Contains(err.Error(), f.ErrorNames) {
		w.Errorf("behind %s, %d of %d with wait=%v: %v, %v; want an error of class Refused that names %q",
			f.Name, t.Units, t.Limit, wait, p.State, err, f.ErrorNames)
	}
}
