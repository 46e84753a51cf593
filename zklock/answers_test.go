package zklock_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/zklock"
)

// A gate holds the packets of connections back while one of its mutexes is locked.
type gate struct{ in, out sync.Mutex }

func (g *gate) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, timeout)
	return &gatedConn{c, g}, err
}

type gatedConn struct {
	net.Conn
	g *gate
}

func (c *gatedConn) Write(b []byte) (int, error) {
	c.g.out.Lock()
	defer c.g.out.Unlock()
	return c.Conn.Write(b)
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.g.in.Lock()
	defer c.g.in.Unlock()
	return n, err
}

// openGate opens a driver whose connections go through a gate and a wire.
func openGate(t *testing.T, s *servers.ZooKeeperServer) (*zklock.Driver, *gate, *wire) {
	t.Helper()
	g, w := &gate{}, newWire()
	d, err := zklock.Connect(t.Context(), s.Addrs(), &zklock.Options{Tick: 2 * s.Tick,
		Dial: func(network, address string, timeout time.Duration) (net.Conn, error) {
			c, err := g.dial(network, address, timeout)
			if err != nil {
				return nil, err
			}
			wc := &wireConn{Conn: c, w: w, lit: make(chan struct{})}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.conns[wc] = true
			return wc, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, g, w
}

// TestWholeLeaseAfterStall checks that the Lease of an answer is the whole TTL although
// no heartbeat was sent for some ticks (Join 9).
func TestWholeLeaseAfterStall(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	d, g, _ := openGate(t, s)
	name := unique("stall")
	waiter, holder := ticket(name, 1), ticket(name, 2)
	joinUntil(t, d, holder)
	whole := func(what string, ask func() (driver.Status, error)) {
		t.Helper()
		g.out.Lock()
		time.Sleep(8 * s.Tick) // the stall; a connection is given up after eleven
		g.out.Unlock()
		until(t, what+" is answered", func() bool {
			p, err := ask()
			if err == nil && p.Lease < waiter.TTL {
				t.Fatalf("%s has a Lease of %v with a TTL of %v", what, p.Lease, waiter.TTL)
			}
			return err == nil
		})
	}
	whole("a Join", func() (driver.Status, error) { return d.Join(t.Context(), waiter, true) })
	for _, tk := range []*driver.Ticket{holder, waiter} {
		whole("a renewal", func() (driver.Status, error) {
			ps, err := d.Renew(t.Context(), []driver.Ref{{Ticket: tk}})
			if err != nil {
				return driver.Status{}, err
			}
			return ps[0], ps[0].Err
		})
	}
}

// TestLeaveKnowsOfGrant checks that the answer to Leave is the state that the ticket had
// when its node was deleted, although its client has not heard of the grant (Leave 1).
func TestLeaveKnowsOfGrant(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	for kind, c := range map[string]struct {
		limit   int64
		units   []int64 // the last ticket waits, and leaves
		leavers int     // the first ones leave before it
		want    driver.State
	}{
		"mutex":             {1, []int64{1, 1}, 1, driver.Held},
		"mutex-third":       {1, []int64{1, 1, 1}, 1, driver.Waiting},
		"mutex-nobody-left": {1, []int64{1, 1}, 0, driver.Waiting},
		"reader":            {driver.RWLimit, []int64{driver.RWLimit, 1}, 1, driver.Held},
		"writer":            {driver.RWLimit, []int64{1, 1, driver.RWLimit}, 2, driver.Held},
		"writer-one-reader": {driver.RWLimit, []int64{1, 1, driver.RWLimit}, 1, driver.Waiting},
		"semaphore":         {3, []int64{1, 1, 1, 1}, 1, driver.Held},
		"semaphore-full":    {3, []int64{1, 1, 1, 1}, 0, driver.Waiting},
		"semaphore-second":  {3, []int64{1, 1, 1, 1, 1}, 1, driver.Waiting},
		"semaphore-both":    {3, []int64{1, 1, 1, 1, 1}, 2, driver.Held},
		"semaphore-large":   {3, []int64{1, 2, 2}, 1, driver.Waiting},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name := unique("leave-after-grant/" + kind)
			others, _ := openWire(t, s.Addrs(), 2*s.Tick)
			d, g, w := openGate(t, s)
			var ts []*driver.Ticket
			sum := int64(0)
			for i, units := range c.units {
				tk := ticket(name, i)
				tk.Limit, tk.Units, tk.TTL = c.limit, units, time.Minute
				ts = append(ts, tk)
				by, want := driver.Driver(others), driver.Held
				if i == len(c.units)-1 {
					by = d
				}
				if sum += units; sum > c.limit {
					want = driver.Waiting
				}
				join(t, by, tk, want)
			}
			last := ts[len(ts)-1]
			if _, err := d.Renew(t.Context(), []driver.Ref{{Ticket: last}}); err != nil { // from here on nothing is asked about its node
				t.Fatal(err)
			}
			g.in.Lock() // its client hears nothing more
			hear := sync.OnceFunc(g.in.Unlock)
			defer hear()
			for _, tk := range ts[:c.leavers] {
				leave(t, others, tk, driver.Held)
			}
			w.reset()
			left := make(chan error, 1)
			go func() {
				ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: last}})
				if err == nil && (ps[0].Err != nil || ps[0].State != c.want) {
					err = fmt.Errorf("Leave answers %v, %v; want %v", ps[0].State, ps[0].Err, c.want)
				}
				left <- err
			}()
			until(t, "the Leave is sent", func() bool { n, _ := w.ops(); return n > 0 })
			hear()
			if err := <-left; err != nil {
				t.Error(err)
			}
			if n, each := w.ops(); c.limit == 1 && c.want == driver.Waiting && n > 1 {
				t.Errorf("giving a wait up took %d requests: %v", n, each)
			}
			if q, err := others.Inspect(t.Context(), name); err != nil || len(q.Tickets) != len(ts)-1-c.leavers {
				t.Errorf("afterwards the queue is %+v, %v", q.Tickets, err)
			}
			for _, tk := range ts[c.leavers : len(ts)-1] {
				if _, err := others.Leave(t.Context(), []driver.Ref{{Ticket: tk}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestAheadOfRenewal checks that a renewal counts the tickets that are ahead now, not
// those that were when the node that the waiter watches was found (Join 10).
func TestAheadOfRenewal(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("ahead")
	d, w := openWire(t, s.Addrs(), 2*s.Tick)
	var ts []*driver.Ticket
	for i := range 5 {
		ts = append(ts, ticket(name, i))
		ts[i].TTL = 5 * time.Minute
		join(t, d, ts[i], []driver.State{driver.Held, driver.Waiting}[min(i, 1)])
	}
	ahead := func(want int) {
		t.Helper()
		ps, err := d.Renew(t.Context(), []driver.Ref{{Ticket: ts[4]}})
		if err != nil || ps[0].Err != nil || ps[0].State != driver.Waiting || ps[0].Ahead != want {
			t.Errorf("Renew: %+v, %v; want %d ahead", ps, err, want)
		}
	}
	ahead(4)
	leave(t, d, ts[0], driver.Held)
	ahead(3)
	leave(t, d, ts[2], driver.Waiting)
	ahead(2)
	w.reset()
	ahead(2)
	if _, each := w.ops(); each[opExists] > 1 || each[opChildren] > 0 {
		t.Errorf("a renewal of a waiter took these requests where nothing had changed: %v", each)
	}
	for _, i := range []int{1, 3, 4} {
		leaveUntil(t, d, ts[i])
	}
}
