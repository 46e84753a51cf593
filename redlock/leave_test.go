package redlock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
			lost.late.Shut()
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
			lost.late.Open()
			restricted.refuses.Store(true)
			want := driver.Refused
			if silent {
				other.own.Shut()
				defer other.own.Open()
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

// TestRepeatedLeaveFindsWhatAnEarlierOneLeft checks that a Leave answers Gone if an
// earlier one, whose outcome was unknown to its caller, has freed a majority since: another
// ticket may hold by then. A Leave that still finds a majority answers Held.
func TestRepeatedLeaveFindsWhatAnEarlierOneLeft(t *testing.T) {
	for _, late := range []int{1, 2} { // nodes that carry the first Leave out after its caller's time
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(3)
			d, other := w.open(t), w.open(t)
			defer d.Close()
			defer other.Close()
			ticket := &driver.Ticket{ID: "1", Name: "n", Units: 1, Limit: 1, TTL: ttl}
			next := &driver.Ticket{ID: "2", Name: "n", Units: 1, Limit: 1, TTL: ttl}
			if p, err := d.Join(t.Context(), ticket, false); err != nil || p.State != driver.Held {
				t.Fatalf("Join: %+v, %v", p, err)
			}
			synctest.Wait() // the third vote is answered, too
			for i, n := range w.nodes {
				if n.dead.Store(i >= late); i < late {
					wireTo(d, i).own.Shut()
				}
			}
			short, stop := context.WithTimeout(t.Context(), time.Millisecond)
			defer stop()
			refs := []driver.Ref{{Ticket: ticket, State: driver.Held}}
			if ps, err := d.Leave(short, refs); err != nil || driver.ClassOf(ps[0].Err) != driver.Unknown {
				t.Fatalf("Leave that is not answered in time: %+v, %v", ps, err)
			}
			for i := range late {
				wireTo(d, i).own.Open()
			}
			synctest.Wait()
			for _, n := range w.nodes {
				n.dead.Store(false)
			}
			want := driver.Held
			if late == 2 {
				want = driver.Gone
				if p, err := other.Join(t.Context(), next, false); err != nil || p.State != driver.Held {
					t.Fatalf("Join of the next ticket: %+v, %v", p, err)
				}
			}
			if ps, err := d.Leave(t.Context(), refs); err != nil || ps[0].Err != nil || ps[0].State != want {
				t.Errorf("%d nodes were left before: Leave: %+v, %v; want %v", late, ps, err, want)
			}
		})
	}
}
