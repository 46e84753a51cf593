package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestHomeThatAnswersLateAfterAllOthersRefused lets the home grant a ticket after
// seek has waited twice for it, when the other nodes have refused: nobody is left to
// be asked or waited for, so the try must end then.
func TestHomeThatAnswersLateAfterAllOthersRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newWorld(3).open(t)
		defer d.Close()
		e := d.enter(&driver.Ticket{ID: "00000000-0000-4000-8000-000000000001:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute})
		e.mu.Lock()
		order := d.nodes.homes("n")
		e.home = order[0]
		home, n := &e.votes[e.home], d.nodes.all[e.home]
		home.t, home.busy = e.newTicketLocked(time.Minute, 0), true
		for _, i := range order[1:] {
			e.votes[i].t, e.votes[i].State = e.newTicketLocked(time.Minute, 0), driver.Gone
			d.nodes.all[i].hung.Store(true) // so that the home is waited for, however slow
		}
		sent := time.Now()
		go func() {
			time.Sleep(time.Second)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.onVoteLocked(n, home, home.t, driver.Status{State: driver.Held, Token: 7, Lease: time.Minute}, nil, sent, 1)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := seek{e, true, sent}.runLocked(ctx)
		e.mu.Unlock()
		if err != nil || p.State != driver.Waiting || time.Since(sent) > 2*time.Second {
			t.Errorf("the try ended with %v, %v after %v", p.State, err, time.Since(sent))
		}
	})
}

// TestRefusingNodeIsAskedAgainBesideASilentOne lets one node of three be silent and
// another one refuse its vote for a moment: the refusing one is asked again before the
// silent one's whole time is over, which is a tenth of the TTL.
func TestRefusingNodeIsAskedAgainBesideASilentOne(t *testing.T) {
	for _, refused := range []time.Duration{30 * time.Millisecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			c, d := w.client(t, 4*time.Second)
			order := d.nodes.homes("n")
			silent, refuses := w.nodes[order[1]], w.nodes[order[2]]
			silent.Shut()
			defer silent.Open()
			other := memlock.New(refuses.Store)
			defer other.Close()
			k := &driver.Ticket{ID: "00000000-0000-4000-8000-000000000001:1", Name: "n", Units: 1, Limit: 1, TTL: time.Minute}
			if p, err := other.Join(t.Context(), k, true); err != nil || p.State != driver.Held {
				t.Fatal(p, err)
			}
			time.AfterFunc(refused, func() {
				_, _ = other.Leave(context.Background(), []driver.Ref{{Ticket: k, State: driver.Held}})
			})
			begun := time.Now()
			h, err := c.Mutex("n").Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if took, most := time.Since(begun), 2*refused+20*time.Millisecond; took > most {
				t.Errorf("refused for %v, locked after %v, want at most %v", refused, took, most)
			}
			if err := h.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}
