package drivertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// world is the stage of one case: a store, clients, and names of its own.
type world struct {
	T
	h      Harness
	traits driver.Traits
	tag    string // begins every name of this case
	still  *standstills

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

// end removes the tickets that the case left, and closes its clients.
func (w *world) end() {
	defer w.still.end()
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

// breakQuietly removes a ticket of a closed client.
func (w *world) breakQuietly(ctx context.Context, t *driver.Ticket) {
	d := w.h.Open(w.T)
	_ = d.Break(ctx, t.Name, t.ID)
	_ = d.Close()
}

// limit returns a context for one call.
func (w *world) limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), w.maxWait())
}

// name returns a name of this case.
func (w *world) name(s string) string { return w.tag + s }

// pollInterval is the time between two requests while a case waits for the
// store's time.
func (w *world) pollInterval() time.Duration {
	return min(max(w.h.TTL/50, time.Millisecond), 50*time.Millisecond)
}

// longTTL is the TTL of tickets that must not expire, however slow the machine.
func (w *world) longTTL() time.Duration {
	return min(max(2*time.Minute, 4*w.h.TTL), w.traits.MaxTTL)
}

// latestExpiry is the longest time for which the store may keep a ticket of this
// TTL.
func (w *world) latestExpiry(ttl time.Duration) time.Duration {
	return ttl + ttl/20 + w.traits.Granularity + w.h.Slack
}

// maxWait bounds each wait for an event that has to happen. A correct driver
// never reaches it, however slow the machine.
func (w *world) maxWait() time.Duration { return 30*time.Second + 4*w.latestExpiry(w.h.TTL) }

// settle gives an event that must not happen the time to happen.
func (w *world) settle() { time.Sleep(max(5*w.pollInterval(), 20*time.Millisecond)) }

// until waits for a condition.
func (w *world) until(what string, cond func() bool) {
	w.Helper()
	for start := time.Now(); !cond(); {
		if time.Since(start) > w.maxWait() {
			w.Fatalf("after %v: still not: %s", w.maxWait(), what)
		}
		time.Sleep(w.pollInterval())
	}
}

// awaitView waits until Inspect and Names show what was answered, where they may be
// late. The caller then checks what they show, so awaitView does not fail.
func (w *world) awaitView(shown func() bool) {
	w.Helper()
	for start := time.Now(); w.h.LateViews && time.Since(start) < w.maxWait() && !shown(); {
		time.Sleep(w.pollInterval())
	}
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

// witness is the client that inspects queues. It has no tickets of its own.
func (w *world) witness() *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		if c.witness && !c.closed {
			return c
		}
	}
	c := w.newClientLocked()
	c.witness = true
	return c
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
