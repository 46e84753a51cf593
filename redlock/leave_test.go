package redlock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/driver"
)

// withdrawn is a node whose user may lose the right to leave.
type withdrawn struct {
	driver.Driver
	refuses atomic.Bool
}

func (d *withdrawn) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	if d.refuses.Load() {
		return nil, driver.Errorf(driver.Refused, "no right")
	}
	return d.Driver.Leave(ctx, refs)
}

// TestLeaveIsRefusedByAllThatHaveNotConfirmed checks that Leave is refused if
// all nodes that have not confirmed it refuse, although they are a minority, and
// that its outcome is unknown if one of them has not answered. The hold has two
// votes of three: the answer to the third vote was lost.
func TestLeaveIsRefusedByAllThatHaveNotConfirmed(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			nodes := w.drivers()
			restricted := &withdrawn{Driver: nodes[1]}
			nodes[1] = restricted
			lost, other := nodes[2].(*wire), nodes[0].(*wire)
			d, err := New(nodes, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			ticket := &driver.Ticket{ID: "1", Name: "n", Units: 1, Limit: 1, TTL: ttl}
			lost.late.shut()
			if p, err := d.Join(t.Context(), ticket, false); err != nil || p.State != driver.Held {
				t.Fatalf("Join: %+v, %v", p, err)
			}
			e := d.find(ticket.ID)
			for { // the third vote is given back once its answer is overdue
				e.mu.Lock()
				pending, changed := e.votes[2].t != nil, e.changed
				e.mu.Unlock()
				if !pending {
					break
				}
				<-changed
			}
			lost.late.reopen()
			restricted.refuses.Store(true)
			want := driver.Refused
			if silent {
				other.own.shut()
				defer other.own.reopen()
				want = driver.Unknown
			}
			ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: ticket, State: driver.Held}})
			if err != nil {
				t.Fatal(err)
			}
			if got := driver.ClassOf(ps[0].Err); ps[0].Err == nil || got != want {
				t.Errorf("silent %v: Leave: %+v; want an error of class %v", silent, ps[0], want)
			}
		})
	}
}
