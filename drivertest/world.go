package drivertest

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// world is the part of a store that one case has to itself: names, and clients.
// Its methods check what the store shows of the queues of these names.
type world struct{ clients }

func newWorld(t T, h Harness) *world {
	w := &world{clients{stage: &stage{T: t, h: h, tag: "dt-" + rand.Text()[:10] + "-"}}}
	d := h.Open(t)
	w.traits = d.Traits()
	if err := d.Close(); err != nil {
		t.Errorf("Close of a client that did nothing: %v", err)
	}
	set := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	set(&w.h.Waiters, 1000)
	set(&w.h.Clients, 4)
	set(&w.h.Rounds, 10)
	if w.h.TTL == 0 {
		w.h.TTL = max(time.Second, w.traits.MinTTL)
	}
	if w.h.Slack == 0 {
		w.h.Slack = time.Second
		if h.bubble {
			w.h.Slack = 5 * time.Millisecond
		}
	}
	if !h.bubble {
		w.still = watchStandstills()
	}
	return w
}

// queueOf inspects a queue through a client that does nothing else.
func (w *world) queueOf(name string) driver.Queue {
	w.Helper()
	ctx, cancel := w.limit()
	defer cancel()
	l, err := w.witness().d.Inspect(ctx, name)
	if err != nil {
		w.Fatalf("Inspect: %v", err)
	}
	if l.Name != name {
		w.Errorf("Inspect: the line's name is %q, want %q", l.Name, name)
	}
	return l
}

// checkEmpty checks that a queue has no tickets.
func (w *world) checkEmpty(name string) {
	w.Helper()
	w.awaitView(func() bool { return len(w.queueOf(name).Tickets) == 0 })
	if l := w.queueOf(name); len(l.Tickets) != 0 {
		w.Errorf("the line should be empty, has %s", formatQueue(l))
	}
}

// checkQueue checks the holders of a queue, in any order, and its waiters, in
// order.
func (w *world) checkQueue(name string, held []*driver.Ticket, waiting ...*driver.Ticket) {
	w.Helper()
	w.awaitView(func() bool { return len(w.queueOf(name).Tickets) == len(held)+len(waiting) })
	l := w.queueOf(name)
	want := driver.Queue{}
	for _, t := range held {
		want.Tickets = append(want.Tickets, driver.Entry{ID: t.ID, State: driver.Held})
	}
	for _, t := range waiting {
		want.Tickets = append(want.Tickets, driver.Entry{ID: t.ID, State: driver.Waiting})
	}
	same := len(l.Tickets) == len(want.Tickets)
	found := make(map[string]bool)
	for i := 0; same && i < len(l.Tickets); i++ {
		e := l.Tickets[i]
		same = e.State == want.Tickets[i].State
		if e.State == driver.Held {
			found[e.ID] = true
		} else {
			same = same && e.ID == want.Tickets[i].ID
		}
	}
	for _, t := range held {
		same = same && found[t.ID]
	}
	if !same {
		w.Errorf("the line is %s, want %s", formatQueue(l), formatQueue(want))
	}
}

// formatQueue prints the tickets of a queue.
func formatQueue(l driver.Queue) string {
	s := "["
	for i, e := range l.Tickets {
		if i == 8 {
			return s + fmt.Sprintf(" … %d tickets]", len(l.Tickets))
		}
		if i > 0 {
			s += " "
		}
		s += fmt.Sprintf("%v:%s", e.State, e.ID)
	}
	return s + "]"
}
