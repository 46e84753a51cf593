package pglock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// How a round trip is cut.
const (
	cutBefore = "before it was sent"
	cutAfter  = "after it was answered"
	cutKilled = "by pg_terminate_backend"
)

// cutter passes connections on to a server, a round trip at a time, and cuts the
// one it was armed for.
type cutter struct {
	l    net.Listener
	wg   sync.WaitGroup
	kill func(pid uint32)

	mu   sync.Mutex
	left int // round trips until the cut, 0 for none
	how  string
}

// arm has the k-th round trip from now cut.
func (c *cutter) arm(k int, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.how = k, how
}

// disarm says whether the cut was still to come.
func (c *cutter) disarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := c.left > 0
	c.left = 0
	return waits
}

// next returns how the round trip that begins is to be cut, or "".
func (c *cutter) next() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return ""
	}
	if c.left--; c.left > 0 {
		return ""
	}
	return c.how
}

func newCutter(t *testing.T, port int, kill func(pid uint32)) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{l: l, kill: kill}
	c.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				_ = in.Close()
				continue
			}
			w := &wire{c: c, in: in, out: out, pid: make(chan uint32, 1), deaf: make(chan struct{}), ended: make(chan struct{})}
			c.wg.Go(w.answers)
			c.wg.Go(w.requests)
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.wg.Wait() })
	return c
}

// wire is one connection through the cutter.
type wire struct {
	c       *cutter
	in, out net.Conn
	pid     chan uint32   // of the server's process
	deaf    chan struct{} // closed: answers are kept from the client
	ended   chan struct{} // closed when the server has answered a deaf client
}

// requests collects what the client sends up to the end of a round trip.
func (w *wire) requests() {
	defer w.in.Close()
	defer w.out.Close()
	var trip []byte
	for first := true; ; first = false {
		kind, message, err := readMessage(w.in, !first)
		if err != nil {
			return
		}
		trip = append(trip, message...)
		if !first && kind != 'S' && kind != 'Q' && kind != 'X' && kind != 'p' {
			continue
		}
		how := ""
		if kind == 'S' || kind == 'Q' {
			how = w.c.next()
		}
		switch how {
		case cutBefore:
			return
		case cutKilled:
			w.c.kill(<-w.pid)
		case cutAfter:
			close(w.deaf)
		}
		if _, err := w.out.Write(trip); err != nil && how == "" {
			return
		}
		if how == cutAfter {
			<-w.ended
			return
		}
		trip = trip[:0]
	}
}

// answers passes on what the server says.
func (w *wire) answers() {
	defer w.in.Close()
	for {
		kind, message, err := readMessage(w.out, true)
		deaf := false
		select {
		case <-w.deaf:
			deaf = true
		default:
		}
		if err != nil || deaf && kind == 'Z' {
			close(w.ended)
			return
		}
		if kind == 'K' {
			w.pid <- uint32(message[5])<<24 | uint32(message[6])<<16 | uint32(message[7])<<8 | uint32(message[8])
		}
		if deaf {
			continue
		}
		if _, err := w.in.Write(message); err != nil {
			close(w.ended)
			return
		}
	}
}

// readMessage returns one message of the protocol, and its type if it has one.
func readMessage(r io.Reader, typed bool) (kind byte, message []byte, err error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	size := head
	if typed {
		kind, size = head[0], head[1:]
	}
	n := int(size[0])<<24 | int(size[1])<<16 | int(size[2])<<8 | int(size[3])
	message = append(head, make([]byte, n-4)...)
	_, err = io.ReadFull(r, message[len(head):])
	return kind, message, err
}

// step is a request, and what must be true once it was asked until answered.
type step struct {
	name  string
	held  bool // there is a holder before
	waits bool // somebody waits before
	do    func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error
	after []int // who is in the line then, the holder first: 0 is h, 1 is w, 2 is n
}

// leaves asks for a ticket to leave. That it is not there is no error: an
// earlier try may have taken effect.
func leaves(ctx context.Context, d *Driver, t *driver.Ticket) error {
	p, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: driver.Held}})
	if err == nil {
		err = p[0].Err
	}
	return err
}

var steps = []step{
	{"join of a free line", false, false, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		return joins(ctx, d, n, true, driver.Held)
	}, []int{2}},
	{"join behind a holder", true, false, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		return joins(ctx, d, n, true, driver.Waiting)
	}, []int{0, 2}},
	{"try at a held line", true, false, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		return joins(ctx, d, n, false, driver.Gone)
	}, []int{0}},
	{"leave of the last", true, false, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		return leaves(ctx, d, h)
	}, nil},
	{"leave that hands on", true, true, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		return leaves(ctx, d, h)
	}, []int{1}},
	{"leave of one who waits", true, true, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		return leaves(ctx, d, w)
	}, []int{0}},
	{"join in place of a holder", true, true, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		n.Replaces = h
		return joins(ctx, d, n, true, driver.Waiting)
	}, []int{1, 2}},
	{"renewal of both", true, true, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		p, err := d.Renew(ctx, []driver.Ref{{Ticket: h, State: driver.Held}, {Ticket: w, State: driver.Waiting}})
		if err != nil {
			return err
		}
		if p[0].Err == nil && p[1].Err == nil && (p[0].State != driver.Held || p[1].State != driver.Waiting) {
			return fmt.Errorf("renewed: %v", p)
		}
		return errors.Join(p[0].Err, p[1].Err)
	}, []int{0, 1}},
	{"break of a holder", true, true, func(ctx context.Context, d *Driver, h, w, n *driver.Ticket) error {
		if err := d.Break(ctx, h.Name, h.ID); !errors.Is(err, driver.ErrNoTicket) {
			return err
		}
		return nil
	}, []int{1}},
}

func joins(ctx context.Context, d *Driver, t *driver.Ticket, wait bool, want driver.State) error {
	p, err := d.Join(ctx, t, wait)
	if err == nil && p.State != want {
		err = fmt.Errorf("joined: %v, want %v", p.State, want)
	}
	return err
}

// Every round trip of every request is cut, before it is sent,
// after it was answered, and by an operator. Asked again, the request leaves the
// line as if it had been asked once.
//
// Covers: F1, F2, F4, F97.
func TestEveryStepCut(t *testing.T) {
	t.Parallel()
	s := backends.SharedPostgres(t)
	// F97: the server's process is gone before the round trip reaches it.
	kill := func(pid uint32) {
		s.Exec(t, "SELECT pg_terminate_backend($1::bigint::int)", int64(pid))
		for s.Value(t, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1::bigint", int64(pid)) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	c := newCutter(t, s.Port, kill)
	prefix := own()
	d := openOn(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&pool_max_conns=1&%s", c.l.Addr(), prefix))
	sure := openOn(t, s.URL("postgres", prefix))
	cuts, id := 0, 1000
	for _, st := range steps {
		for _, how := range []string{cutBefore, cutAfter, cutKilled} {
			for k := 1; ; k++ {
				name := fmt.Sprintf("%s, trip %d cut %s", st.name, k, how)
				who := make([]*driver.Ticket, 3)
				for i := range who {
					id++
					who[i] = ticket(id, name)
				}
				var token uint64
				if st.held {
					token = mustJoin(t, sure, who[0], driver.Held).Token
				}
				if st.waits {
					mustJoin(t, sure, who[1], driver.Waiting)
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				c.arm(k, how)
				err := st.do(ctx, d, who[0], who[1], who[2])
				if c.disarm() {
					cancel()
					if err != nil {
						t.Errorf("%s, not cut: %v", st.name, err)
					}
					break
				}
				cuts++
				// A lone read that is never answered, or the end of a transaction
				// that wrote nothing, may pass unseen; a lost write may not.
				class := driver.ClassOf(err)
				if err != nil && class != driver.NotDone && class != driver.Unknown && class != driver.Unavailable {
					t.Errorf("%s: %v is of class %v", name, err, class)
				}
				for err != nil && ctx.Err() == nil {
					err = st.do(ctx, d, who[0], who[1], who[2])
				}
				cancel()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				line, err := sure.Inspect(context.Background(), name)
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
			}
		}
	}
	t.Logf("%d cuts of %d requests", cuts, len(steps))
	if cuts < 3*len(steps) {
		t.Errorf("only %d cuts of %d requests", cuts, len(steps))
	}
}
