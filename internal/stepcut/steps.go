package stepcut

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// step is a request, and what must be true once it was asked until answered.
type step struct {
	name  string
	held  bool // there is a holder before
	waits bool // somebody waits before
	do    func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error
	after []int // who is in the line then, the holder first: 0 is h, 1 is w, 2 is n
}

// leaves asks for a ticket to leave. That it is not there is no error: an
// earlier try may have taken effect.
func leaves(ctx context.Context, d driver.Driver, t *driver.Ticket) error {
	p, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
	if err == nil {
		err = p[0].Err
	}
	return err
}

func joins(ctx context.Context, d driver.Driver, t *driver.Ticket, wait bool, want driver.State) error {
	p, err := d.Join(ctx, t, wait)
	if err == nil && p.State != want {
		err = fmt.Errorf("joined: %v, want %v", p.State, want)
	}
	return err
}

var steps = []step{
	{"join of a free line", false, false, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		return joins(ctx, d, n, true, driver.Held)
	}, []int{2}},
	{"join behind a holder", true, false, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		return joins(ctx, d, n, true, driver.Waiting)
	}, []int{0, 2}},
	{"try at a held line", true, false, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		return joins(ctx, d, n, false, driver.Gone)
	}, []int{0}},
	{"leave of the last", true, false, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		return leaves(ctx, d, h)
	}, nil},
	{"leave that hands on", true, true, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		return leaves(ctx, d, h)
	}, []int{1}},
	{"leave that hands on at once", true, true, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		if _, err := d.Inspect(ctx, h.Name); err != nil { // from here on it knows that somebody waits
			return err
		}
		return leaves(ctx, d, h)
	}, []int{1}},
	{"leave of one who waits", true, true, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		return leaves(ctx, d, w)
	}, []int{0}},
	{"join in place of a holder", true, true, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		n.Replaces = h
		return joins(ctx, d, n, true, driver.Waiting)
	}, []int{1, 2}},
	{"renewal of both", true, true, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		p, err := d.Renew(ctx, []driver.Ref{{Ticket: h, State: driver.Held}, {Ticket: w, State: driver.Waiting}})
		if err != nil {
			return err
		}
		if p[0].Err == nil && p[1].Err == nil && (p[0].State != driver.Held || p[1].State != driver.Waiting) {
			return fmt.Errorf("renewed: %v", p)
		}
		return errors.Join(p[0].Err, p[1].Err)
	}, []int{0, 1}},
	{"break of a holder", true, true, func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error {
		if err := d.Break(ctx, h.Name, h.ID); !errors.Is(err, driver.ErrNoTicket) {
			return err
		}
		return nil
	}, []int{1}},
}

// Server is a store whose connections are cut. All functions fail the test
// themselves.
type Server struct {
	Addr     string // host:port of the server
	Protocol func() Protocol
	// Open opens a client that reaches the server at addr, with a pool of one
	// connection. Its tables are those of all clients of this test.
	Open func(addr string) driver.Driver
	// Kill ends a connection at the server, and returns when it is gone.
	Kill func(id uint32)
}

// Run cuts every round trip of every request: before it is sent, after it was
// answered, and by an operator. Asked again, the request leaves the line as if
// it had been asked once. It prints how many cuts those were.
func Run(t *testing.T, s Server) {
	t.Helper()
	c := newCutter(t, s.Addr, s.Protocol, s.Kill)
	d, sure := s.Open(c.l.Addr().String()), s.Open(s.Addr)
	counts := map[string]int{}
	id := 0
	for _, st := range steps {
		for _, how := range []string{cutBefore, cutAfter, cutKilled} {
			for k := 1; cut(t, c, d, sure, st, k, how, &id); k++ {
				counts[how]++
			}
			if counts[how] == 0 {
				t.Errorf("%s was never cut %s", st.name, how)
			}
		}
	}
	all := counts[cutBefore] + counts[cutAfter] + counts[cutKilled]
	t.Logf("%d cuts of %d requests: %v", all, len(steps), counts)
	if all < 3*len(steps) {
		t.Errorf("only %d cuts of %d requests", all, len(steps))
	}
}

// cut has the k-th round trip of a request cut, and says whether it has one.
func cut(t *testing.T, c *cutter, d, sure driver.Driver, st step, k int, how string, id *int) bool {
	t.Helper()
	name := fmt.Sprintf("%s, trip %d cut %s", st.name, k, how)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	who := make([]*driver.Ticket, 3)
	for i := range who {
		*id++
		who[i] = &driver.Ticket{ID: fmt.Sprintf("%036d:%d", 7, *id), Name: name, Units: 1, Limit: 1, TTL: time.Minute}
	}
	var token uint64
	if st.held {
		p, err := sure.Join(ctx, who[0], true)
		if err != nil || p.State != driver.Held {
			t.Fatalf("%s: the holder: %v, %v", name, p.State, err)
		}
		token = p.Token
	}
	if st.waits {
		if err := joins(ctx, sure, who[1], true, driver.Waiting); err != nil {
			t.Fatalf("%s: who waits: %v", name, err)
		}
	}
	c.arm(k, how)
	err := st.do(ctx, d, who[0], who[1], who[2])
	if c.disarm() {
		if err != nil {
			t.Errorf("%s, not cut: %v", st.name, err)
		}
		return false
	}
	// A lone read that is never answered, or the end of a transaction that wrote
	// nothing, may pass unseen; a lost write may not.
	class := driver.ClassOf(err)
	if err != nil && class != driver.NotDone && class != driver.Unknown && class != driver.Unavailable {
		t.Errorf("%s: %v is of class %v", name, err, class)
	}
	for err != nil && ctx.Err() == nil {
		err = st.do(ctx, d, who[0], who[1], who[2])
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	line, err := sure.Inspect(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if len(line.Tickets) != len(st.after) {
		t.Fatalf("%s: the line is %+v", name, line.Tickets)
	}
	for i, e := range line.Tickets {
		held := i == 0
		if e.ID != who[st.after[i]].ID || (e.State == driver.Held) != held || held && st.after[0] != 0 && e.Token <= token {
			t.Errorf("%s: ticket %d of the line is %+v", name, i, e)
		}
	}
	return true
}
