package cuts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Subject is a store whose drivers are cut off.
type Subject struct {
	// Target is host and port of the server.
	Target string
	// Open opens a driver that reaches the server by this address, with one
	// connection if that can be said. All share the store.
	Open func(t testing.TB, addr string) driver.Driver
	TTL  time.Duration // of the tickets; no step may take as long
}

// step is a request, and who is in the line once it was asked until answered.
type step struct {
	name  string
	held  bool // there is a holder before
	waits bool // somebody waits before
	do    func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error
	after []int // who is in the line then, the holder first: 0 is h, 1 is w, 2 is n
}

func joins(ctx context.Context, d driver.Driver, t *driver.Ticket, wait bool, want driver.State) error {
	p, err := d.Join(ctx, t, wait)
	if err == nil && p.State != want {
		err = fmt.Errorf("joined: %v, want %v", p.State, want)
	}
	return err
}

// leaves asks for a ticket to leave. That it is not there is no error: an
// earlier try may have taken effect.
func leaves(ctx context.Context, d driver.Driver, t *driver.Ticket, state driver.State) error {
	p, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: state}})
	if err == nil {
		err = p[0].Err
	}
	return err
}

var steps = []step{
	{"join of a free line", false, false, func(ctx context.Context, d driver.Driver, _, _, n *driver.Ticket) error {
		return joins(ctx, d, n, true, driver.Held)
	}, []int{2}},
	{"join behind a holder", true, false, func(ctx context.Context, d driver.Driver, _, _, n *driver.Ticket) error {
		return joins(ctx, d, n, true, driver.Waiting)
	}, []int{0, 2}},
	{"try at a held line", true, false, func(ctx context.Context, d driver.Driver, _, _, n *driver.Ticket) error {
		return joins(ctx, d, n, false, driver.Gone)
	}, []int{0}},
	{"leave of the last", true, false, func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
		return leaves(ctx, d, h, driver.Held)
	}, nil},
	{"leave that hands on", true, true, func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
		return leaves(ctx, d, h, driver.Held)
	}, []int{1}},
	{"leave of one who waits", true, true, func(ctx context.Context, d driver.Driver, _, w, _ *driver.Ticket) error {
		return leaves(ctx, d, w, driver.Waiting)
	}, []int{0}},
	{"join in place of a holder", true, true, func(ctx context.Context, d driver.Driver, h, _, n *driver.Ticket) error {
		n.Replaces = h
		return joins(ctx, d, n, true, driver.Waiting)
	}, []int{1, 2}},
	{"renewal of both", true, true, func(ctx context.Context, d driver.Driver, h, w, _ *driver.Ticket) error {
		p, err := d.Renew(ctx, []driver.Ref{{Ticket: h, State: driver.Held}, {Ticket: w, State: driver.Waiting}})
		if err != nil {
			return err
		}
		if p[0].Err == nil && p[1].Err == nil && (p[0].State != driver.Held || p[1].State != driver.Waiting) {
			return fmt.Errorf("renewed: %v", p)
		}
		return errors.Join(p[0].Err, p[1].Err)
	}, []int{0, 1}},
	{"break of a holder", true, true, func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
		if err := d.Break(ctx, h.Name, h.ID); !errors.Is(err, driver.ErrNoTicket) {
			return err
		}
		return nil
	}, []int{1}},
}

// patience ends a step that hangs.
const patience = time.Minute

// give is how long a request is waited for whose connection has gone silent.
const give = 300 * time.Millisecond

// EveryStep cuts every message of every request, before it arrives and after it
// was carried out, by an end, a reset and silence. Asked again until it is
// answered, the request must leave the line as if it had been asked once, with
// a token above the last. It logs how many cuts there were.
func EveryStep(t *testing.T, s Subject) {
	var met, ids atomic.Int64
	t.Run("cuts", func(t *testing.T) {
		for _, st := range steps {
			for _, when := range []When{Before, After} {
				for _, how := range []How{Close, Reset, Silence} {
					name := fmt.Sprintf("%s, cut %s, connection %s", st.name, when, how)
					t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
						t.Parallel()
						x := &cutting{T: t, s: s, st: st, when: when, how: how, name: name, ids: &ids}
						met.Add(x.run())
					})
				}
			}
		}
	})
	t.Logf("%d cuts of %d requests", met.Load(), len(steps))
	if least := int64(6 * len(steps)); met.Load() < least {
		t.Errorf("%d cuts: fewer than one a request and way", met.Load())
	}
}

// cutting is one request that is cut in one way.
type cutting struct {
	*testing.T
	s    Subject
	st   step
	when When
	how  How
	name string
	ids  *atomic.Int64
}

func (x *cutting) ticket(name string) *driver.Ticket {
	// A client has an id of its own, and tickets of several clients meet here.
	n := x.ids.Add(1)
	return &driver.Ticket{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d:1", n), Name: name, Units: 1, Limit: 1, TTL: x.s.TTL}
}

// run cuts one message after the other, until the request has no more.
func (x *cutting) run() (cuts int64) {
	p := Between(x.T, x.s.Target)
	cut := x.s.Open(x.T, p.Addr())
	sure := x.s.Open(x.T, x.s.Target)
	for _, d := range []driver.Driver{cut, sure} {
		if err := d.Watch(x.Context(), func(string, driver.Place) {}); err != nil {
			x.Fatal(err)
		}
	}
	for k := 1; !x.Failed(); k++ {
		if !x.one(p, cut, sure, k) {
			return cuts
		}
		cuts++
	}
	return cuts
}

// one cuts message k; false when there is none.
func (x *cutting) one(p *Proxy, cut, sure driver.Driver, k int) bool {
	name := fmt.Sprintf("%s, message %d %d", x.name, k, x.ids.Load())
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	who := []*driver.Ticket{x.ticket(name), x.ticket(name), x.ticket(name)}
	var token uint64
	must := func(i int, want driver.State) {
		pl, err := cut.Join(ctx, who[i], true)
		for err != nil && ctx.Err() == nil { // it has not noticed the last cut
			pl, err = cut.Join(ctx, who[i], true)
		}
		if err != nil || pl.State != want {
			x.Fatalf("%s: a join before it: %v, %v", name, pl.State, err)
		}
		token = max(token, pl.Token)
	}
	if x.st.held {
		must(0, driver.Held)
	}
	if x.st.waits {
		must(1, driver.Waiting)
	}
	// The end of the connection that was cut last may still be unknown to the
	// driver, and would pass for a failure without a cut.
	for _, err := cut.Inspect(ctx, name); err != nil; _, err = cut.Inspect(ctx, name) {
		if ctx.Err() != nil {
			x.Fatalf("%s: a question before it: %v", name, err)
		}
	}
	p.Arm(k, x.when, x.how)
	limit, end := ctx, func() {}
	if x.how == Silence {
		limit, end = context.WithTimeout(ctx, give)
	}
	err := x.st.do(limit, cut, who[0], who[1], who[2])
	end()
	if p.Disarm() {
		if err != nil {
			x.Errorf("%s, not cut: %v", name, err)
		}
		return false
	}
	classes := []driver.Class{driver.NotDone, driver.Unknown, driver.Unavailable}
	if class := driver.ClassOf(err); err != nil && !slices.Contains(classes, class) {
		x.Errorf("%s: %v is of class %v", name, err, class)
	}
	for err != nil && ctx.Err() == nil {
		limit, end := context.WithTimeout(ctx, patience/10)
		err = x.st.do(limit, cut, who[0], who[1], who[2])
		end()
	}
	if err != nil {
		x.Fatalf("%s: %v", name, err)
	}
	line, err := sure.Inspect(ctx, name)
	if err != nil {
		x.Fatal(err)
	}
	if len(line.Tickets) != len(x.st.after) {
		x.Fatalf("%s: the line is %+v", name, line.Tickets)
	}
	for i, e := range line.Tickets {
		held := i == 0
		if e.ID != who[x.st.after[i]].ID || (e.State == driver.Held) != held || held && x.st.after[0] != 0 && e.Token <= token {
			x.Errorf("%s: ticket %d of the line is %+v", name, i, e)
		}
	}
	return true
}
