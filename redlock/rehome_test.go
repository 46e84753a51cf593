package redlock

import (
	"context"
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
		next.late.Shut()
		time.AfterFunc(5*time.Millisecond, next.late.Open)
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

// TestLeaveWaitsForTheHomeOfAJoinUnderWay gives up a Join whose answer the home of a
// contended name owes, and lets the ticket leave while that node is silent. The ticket has its only
// place there: as long as a view of the queue shows it, its Leave is not confirmed.
func TestLeaveWaitsForTheHomeOfAJoinUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		a, witness := w.open(t), w.open(t)
		defer a.Close()
		defer witness.Close()
		home := wireTo(a, a.nodes.homes("n")[0])
		a.contended.set("n")
		ticket := &driver.Ticket{ID: "a:1", Name: "n", Units: 1, Limit: 1, TTL: ttl}
		home.late.Shut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if p, err := a.Join(ctx, ticket, true); driver.ClassOf(err) != driver.Unknown {
			t.Fatalf("Join: %v, %v", p.State, err)
		}
		home.own.Shut()
		ctx, cancel = context.WithTimeout(t.Context(), ttl/8)
		defer cancel()
		left, err := a.Leave(ctx, []driver.Ref{{Ticket: ticket, State: driver.Held, JoinPending: true}})
		q, seen := witness.Inspect(t.Context(), "n")
		if seen != nil {
			t.Fatal(seen)
		}
		if err == nil && left[0].Err == nil && len(q.Tickets) > 0 {
			t.Errorf("its Leave is answered %v, and %s is there, %v", left[0].State, q.Tickets[0].ID, q.Tickets[0].State)
		}
		home.late.Open()
		home.own.Open()
		synctest.Wait()
		left, err = a.Leave(t.Context(), []driver.Ref{{Ticket: ticket, State: driver.Held, JoinPending: true}})
		if err != nil || left[0].Err != nil {
			t.Errorf("its second Leave: %v, %v", left, err)
		}
		time.Sleep(ttl / 8)
		if q, err := witness.Inspect(t.Context(), "n"); err != nil || len(q.Tickets) > 0 {
			t.Errorf("in the end the queue has %v, %v", q.Tickets, err)
		}
	})
}
