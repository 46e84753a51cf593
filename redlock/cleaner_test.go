package redlock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestF3_VoteUnderWayAtClose checks that a vote does not stay for a TTL if a
// node gave it, but had not answered yet when the lock was released and the
// client closed. A silent node delays Close by at most a second.
func TestF3_VoteUnderWayAtClose(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			c, d := w.client(t, ttl)
			other := w.open(t)
			defer other.Close()
			far := wireTo(d, 2)
			far.late.Shut()
			h, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the node has given its vote
			if err := h.Unlock(); err != nil {
				t.Fatal(err)
			}
			if silent {
				far.own.Shut()
			}
			begun := time.Now()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("Close took %v", took)
			}
			for i := range w.nodes {
				l, err := other.nodes.all[i].d.Inspect(t.Context(), "n")
				if err != nil {
					t.Fatal(err)
				}
				if n := len(l.Tickets); n > 0 != (silent && i == 2) {
					t.Errorf("silent %v: node %d has %d tickets of a client that has left", silent, i+1, n)
				}
			}
		})
	}
}

// TestBreakFindsNoTicketThatLeft checks that a Break finds no ticket that has
// left, although the answer of a node with a vote for it is still on its way,
// and that a Break of a hold ends the hold.
func TestBreakFindsNoTicketThatLeft(t *testing.T) {
	for _, left := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			c, d := w.client(t, ttl)
			other := w.open(t)
			defer other.Close()
			far := wireTo(d, d.nodes.homes("n")[2])
			far.late.Shut()
			defer far.late.Open()
			h, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if left {
				if err := h.Unlock(); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait() // the far node has given its vote
			l, err := other.nodes.all[d.nodes.homes("n")[2]].d.Inspect(t.Context(), "n")
			if err != nil || len(l.Tickets) != 1 {
				t.Fatalf("the far node has %+v, %v", l.Tickets, err)
			}
			if err := other.Break(t.Context(), "n", baseID(l.Tickets[0].ID)); errors.Is(err, driver.ErrNoTicket) != left || !left && err != nil {
				t.Errorf("left %v: Break: %v", left, err)
			}
		})
	}
}
