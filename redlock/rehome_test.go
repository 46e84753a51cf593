package redlock

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// TestNextHomeThatWasAskedNotToLetTheTicketWait refuses a ticket at its home, by the
// restart guard, while the next node's answer is under way, which was asked for its vote
// alone and has another holder: the ticket waits there, and the Join is not answered Gone
// (Join 4).
func TestNextHomeThatWasAskedNotToLetTheTicketWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		a, b := w.open(t), w.open(t)
		defer a.Close()
		defer b.Close()
		order := b.nodes.homes("n")
		home, next := w.nodes[order[0]], wireTo(b, order[1])
		home.restart(ttl)
		holder := &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: ttl}
		if p, err := a.Join(t.Context(), holder, true); err != nil || p.State != driver.Held {
			t.Fatalf("the first ticket: %v, %v", p.State, err)
		}
		next.late.shut()
		time.AfterFunc(5*time.Millisecond, next.late.reopen)
		waiter := &driver.Ticket{ID: "b:1", Name: "n", Units: 1, Limit: 1, TTL: ttl}
		if p, err := b.Join(t.Context(), waiter, true); err != nil || p.State != driver.Waiting {
			t.Fatalf("the ticket that waits: %v, %v", p.State, err)
		}
		if all, err := a.Leave(t.Context(), []driver.Ref{{Ticket: holder, State: driver.Held}}); err != nil || all[0].State != driver.Held {
			t.Fatalf("Leave: %v, %v", all, err)
		}
		if all, err := b.Renew(t.Context(), []driver.Ref{{Ticket: waiter, State: driver.Waiting}}); err != nil || all[0].State != driver.Held || all[0].Err != nil {
			t.Errorf("its renewal: %v, %v", all, err)
		}
	})
}

// TestNoJoinThatWaitsIsAnsweredGone lets tickets of several clients repeat their Joins
// while the guards of nodes end one after the other and answers are late: each Join is
// answered by a hold, a place in the queue, or an error, and each ticket gets its turn.
func TestNoJoinThatWaitsIsAnsweredGone(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			for _, s := range w.nodes {
				s.restart(ttl - rand.N(20*time.Millisecond))
				s.slow.Store(int64(5 * time.Millisecond))
			}
			var clients sync.WaitGroup
			for c := range 4 {
				d := w.open(t)
				clients.Go(func() {
					defer d.Close()
					time.Sleep(ttl - rand.N(20*time.Millisecond))
					ticket := &driver.Ticket{ID: fmt.Sprintf("%d:1", c), Name: "n", Units: 1, Limit: 1, TTL: ttl}
					for end := time.Now().Add(10 * ttl); ; time.Sleep(rand.N(10 * time.Millisecond)) {
						p, err := d.Join(t.Context(), ticket, true)
						if err == nil && p.State == driver.Held {
							break
						}
						if err == nil && p.State != driver.Waiting || time.Now().After(end) {
							t.Errorf("client %d: %v, %v", c, p.State, err)
							return
						}
					}
					if all, err := d.Leave(t.Context(), []driver.Ref{{Ticket: ticket, State: driver.Held}}); err != nil || all[0].Err != nil {
						t.Errorf("client %d: Leave: %v, %v", c, all, err)
					}
				})
			}
			clients.Wait()
		})
	}
}
