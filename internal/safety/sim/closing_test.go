package sim_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/safety/sim"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestClosing checks C10 with clients that Shutdown or Close ends at random instants:
// nobody is let in while a function of Do still runs that was asked to stop, within
// the bound of Close.
func TestClosing(t *testing.T) {
	n := eachOf(t, (*schedules+3)/4, sim.PlanClosing, "TestClosing")
	if *schedules >= enough && (n.stopped.Load() < n.schedules.Load()/4 || n.grants.Load() < n.schedules.Load() || n.lost.Load() == 0) {
		t.Errorf("it says nothing: %d functions were asked to stop", n.stopped.Load())
	}
}

// leaky is a driver that does what Close once did: when its client begins to close, it
// releases all its tickets at the store, though functions still run under them.
type leaky struct {
	driver.Driver
	mu     sync.Mutex
	held   map[string]driver.Ref
	leaked map[string]bool
}

func (d *leaky) note(t *driver.Ticket, st driver.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if st.State == driver.Held {
		d.held[t.ID] = driver.Ref{Ticket: t, State: driver.Held}
	}
}

func (d *leaky) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	st, err := d.Driver.Join(ctx, t, wait)
	d.note(t, st)
	return st, err
}

func (d *leaky) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	sts, err := d.Driver.Renew(ctx, refs)
	for i := range sts {
		d.mu.Lock()
		leaked := d.leaked[refs[i].ID]
		d.mu.Unlock()
		if leaked {
			sts[i] = driver.Status{State: driver.Held, Lease: refs[i].TTL}
		}
		d.note(refs[i].Ticket, sts[i])
	}
	return sts, err
}

func (d *leaky) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	sts, err := d.Driver.Leave(ctx, refs)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range sts {
		delete(d.held, refs[i].ID)
		if d.leaked[refs[i].ID] {
			sts[i] = driver.Status{State: driver.Held}
		}
	}
	return sts, err
}

// leak releases the tickets of d that hold.
func (d *leaky) leak() {
	d.mu.Lock()
	var refs []driver.Ref
	for id, ref := range d.held {
		d.leaked[id] = true
		refs = append(refs, ref)
	}
	d.mu.Unlock()
	_, _ = d.Driver.Leave(context.Background(), refs)
}

// TestReleaseUnderAFunctionIsFound checks that a client that gives its locks back when
// it begins to close fails C10.
func TestReleaseUnderAFunctionIsFound(t *testing.T) {
	const many = 500
	for i := uint64(1); i <= many; i++ {
		p := play(t, sim.PlanClosing(i), func(*testing.T) sim.Store {
			s := memlock.NewStore()
			return sim.Store{
				Open: func() driver.Driver {
					return &leaky{Driver: memlock.New(s), held: make(map[string]driver.Ref), leaked: make(map[string]bool)}
				},
				Closing: func(d driver.Driver) { d.(*leaky).leak() },
			}
		})
		violations, _ := p.Judge()
		for _, v := range violations {
			if strings.HasPrefix(v, "C10 ") {
				t.Logf("with seed %d: %.700s", i, v)
				return
			}
		}
	}
	t.Errorf("C10 does not see it in %d schedules", many)
}
