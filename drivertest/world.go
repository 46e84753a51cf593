package drivertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A world is what one case plays in: a store, clients, and names of its own.
type world struct {
	T
	h      Harness
	traits driver.Traits
	tag    string // begins every name of this case

	mu      sync.Mutex
	clients []*client
}

func newWorld(t T, h Harness) *world {
	w := &world{T: t, h: h, tag: "dt-" + rand.Text()[:10] + "-"}
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
	set(&w.h.Many, 1000)
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
	return w
}

// end leaves whatever the case left, and closes its clients.
func (w *world) end() {
	for _, c := range w.clients {
		for _, t := range c.all() {
			ctx, cancel := w.limit()
			if c.closed || c.leaveQuietly(ctx, t) != nil {
				w.breakQuietly(ctx, t)
			}
			cancel()
		}
	}
	for _, c := range w.clients {
		if !c.closed {
			if err := c.d.Close(); err != nil {
				w.Errorf("Close: %v", err)
			}
		}
	}
}

// breakQuietly removes what a closed client left.
func (w *world) breakQuietly(ctx context.Context, t *driver.Ticket) {
	d := w.h.Open(w.T)
	_ = d.Break(ctx, t.Name, t.ID)
	_ = d.Close()
}

// limit returns a context for one call.
func (w *world) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.patience())
}

// name returns a name of this case.
func (w *world) name(s string) string { return w.tag + s }

// tick is how often a case asks while it waits for the store's time.
func (w *world) tick() time.Duration {
	return min(max(w.h.TTL/50, time.Millisecond), 50*time.Millisecond)
}

// long is the TTL of tickets that do not die, however slow the machine.
func (w *world) long() time.Duration {
	return min(max(2*time.Minute, 4*w.h.TTL), w.traits.MaxTTL)
}

// latest is after how long at most the store drops a ticket of this TTL.
func (w *world) latest(ttl time.Duration) time.Duration {
	return ttl + ttl/20 + w.traits.Granularity + w.h.Slack
}

// patience bounds every wait for something that has to happen: a driver that is
// right never reaches it, however slow the machine.
func (w *world) patience() time.Duration { return 30*time.Second + 4*w.latest(w.h.TTL) }

// settle gives what should not happen the time to happen.
func (w *world) settle() { time.Sleep(max(5*w.tick(), 20*time.Millisecond)) }

// until waits for a condition.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	for start := time.Now(); !cond(); {
		if time.Since(start) > w.patience() {
			w.Fatalf("after %v: still not: %s", w.patience(), what)
		}
		time.Sleep(w.tick())
	}
}

// lineOf inspects a line through a client that does nothing else.
func (w *world) lineOf(name string) driver.Line {
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

// witness is the world's first client, which never has tickets of its own
// when a case begins with it.
func (w *world) witness() *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		if c.witness && !c.closed {
			return c
		}
	}
	c := w.newClient()
	c.witness = true
	return c
}

// empty checks that a line has no tickets.
func (w *world) empty(name string) {
	w.Helper()
	if l := w.lineOf(name); len(l.Tickets) != 0 {
		w.Errorf("the line should be empty, has %s", tickets(l))
	}
}

// line checks who holds a line, in any order, and who waits, in order.
func (w *world) line(name string, held []*driver.Ticket, waiting ...*driver.Ticket) {
	w.Helper()
	l := w.lineOf(name)
	want := driver.Line{}
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
		w.Errorf("the line is %s, want %s", tickets(l), tickets(want))
	}
}

// tickets prints a line.
func tickets(l driver.Line) string {
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
