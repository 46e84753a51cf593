package sqlcases

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
)

// Relay forwards connections to a server, which may be a different one later,
// and counts the traffic.
type Relay struct {
	// Addr is where clients connect.
	Addr string
	// Port is the port of the server for the next connection.
	Port atomic.Int64
	// Statements and Trips are counted by the function that forwards requests.
	Statements, Trips atomic.Int64
}

// NewRelay returns a relay to a port of this machine. Requests forwards a
// client's requests until the client ends; nil is [io.Copy].
func NewRelay(t *testing.T, port int, requests func(r *Relay, out io.Writer, in io.Reader)) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if requests == nil {
		requests = func(_ *Relay, out io.Writer, in io.Reader) { _, _ = io.Copy(out, in) }
	}
	r := &Relay{Addr: l.Addr().String()}
	r.Port.Store(int64(port))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port.Load()))
			if err != nil {
				_ = in.Close()
				continue
			}
			end := func() { _ = in.Close(); _ = out.Close() }
			wg.Go(func() { _, _ = io.Copy(in, out); end() })
			wg.Go(func() { requests(r, out, in); end() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return r
}

// costOf returns the cost of f.
func (r *Relay) costOf(f func()) Cost {
	s, n := r.Statements.Load(), r.Trips.Load()
	f()
	return Cost{Statements: r.Statements.Load() - s, Trips: r.Trips.Load() - n}
}

// Cost is a number of statements and of round trips.
type Cost struct{ Statements, Trips int64 }

// Costs are upper limits for requests; 0 is no limit.
type Costs struct {
	Free             Cost // a join and a leave of a free lock
	Renewal          Cost // of one ticket
	JoinBehindHolder Cost // a join behind a holder, where nobody waited lately
	JoinBehindWaiter Cost // a join where somebody waits
	Try              Cost // a join with wait=false there
	HandOff          Cost // a leave that grants the next ticket
	Many             Cost // a renewal of 1,000 tickets
}

// Check checks the limits of a client whose connections go through the relay.
func (want Costs) Check(t *testing.T, r *Relay, d driver.Driver, tables *sqlqueue.Tables) {
	t.Helper()
	tables.SweepLock.Lock() // no sweeps
	defer tables.SweepLock.Unlock()
	count := func(what string, limit Cost, f func()) {
		t.Helper()
		got := r.costOf(f)
		t.Logf("%s: %d statements, %d round trips", what, got.Statements, got.Trips)
		if got.Trips == 0 || got.Trips > limit.Trips || limit.Statements > 0 && got.Statements > limit.Statements {
			t.Errorf("%s: %+v; want at most %+v", what, got, limit)
		}
	}
	for _, name := range []string{"warm", "warm, too"} { // prepares the statements
		warm, next := Ticket(0, name), Ticket(1, name)
		Join(t, d, warm, driver.Held)
		Renew(t, d, warm)
		if name != "warm" {
			Join(t, d, next, driver.Waiting)
			Leave(t, d, warm)
			warm = next
		}
		Leave(t, d, warm)
	}

	a := Ticket(1, "n")
	count("uncontended join and leave", want.Free, func() { Join(t, d, a, driver.Held); Leave(t, d, a) })
	a, b := Ticket(2, "n"), Ticket(3, "n")
	Join(t, d, a, driver.Held)
	count("renewal of one", want.Renewal, func() { Renew(t, d, a) })
	count("join behind a holder", want.JoinBehindHolder, func() { Join(t, d, b, driver.Waiting) })
	count("leave that hands on", want.HandOff, func() { Leave(t, d, a) })
	c := Ticket(4, "n")
	count("join where somebody waited", want.JoinBehindWaiter, func() { Join(t, d, c, driver.Waiting) })
	count("try of a lock that is held", want.Try, func() {
		if p, err := d.Join(context.Background(), Ticket(5, "n"), false); err != nil || p.State != driver.Gone {
			t.Errorf("tried: %+v, %v", p, err)
		}
	})
	if p := Renew(t, d, b); p.State != driver.Held {
		t.Errorf("the waiter is %v", p.State)
	}

	refs := refsOf(100, 1000, "many-%d", driver.Held)
	joinAll(t, d, refs)
	count("renewal of 1,000", want.Many, func() { renewAll(t, d, refs) })
}

// refsOf returns n refs whose ids count from id, each in a queue of its own if
// the name has a %d.
func refsOf(id, n int, name string, state driver.State) []driver.Ref {
	refs := make([]driver.Ref, n)
	for i := range refs {
		refs[i] = driver.Ref{Ticket: Ticket(id+i, fmt.Sprintf(name, i)), State: state}
	}
	return refs
}

// joinAll joins all refs from 16 goroutines.
func joinAll(t *testing.T, d driver.Driver, refs []driver.Ref) {
	t.Helper()
	var wg sync.WaitGroup
	for part := range slices.Chunk(refs, (len(refs)+15)/16) {
		wg.Go(func() {
			for _, ref := range part {
				if p, err := d.Join(context.Background(), ref.Ticket, true); err != nil || p.State != ref.State {
					t.Errorf("Join: %+v, %v", p, err)
				}
			}
		})
	}
	wg.Wait()
}

func renewAll(t *testing.T, d driver.Driver, refs []driver.Ref) {
	t.Helper()
	places, err := d.Renew(context.Background(), refs)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range places {
		if p.State != refs[i].State || p.Err != nil {
			t.Fatalf("renewed: %+v", p)
		}
	}
}

// ManyTickets makes a client hold many locks, and wait many times in one queue:
// 10,000 and 1,000 with HOLDFAST_TEST_FULL.
func ManyTickets(t *testing.T, d driver.Driver) {
	t.Helper()
	if err := d.Watch(context.Background(), func(string, driver.Status) {}); err != nil {
		t.Fatal(err)
	}
	n, waiting := 2_000, 250
	if os.Getenv("HOLDFAST_TEST_FULL") != "" {
		n, waiting = 10_000, 1_000
	}
	took := func(what string, f func()) {
		start := time.Now()
		f()
		t.Logf("%s in %v", what, time.Since(start))
	}
	holders := refsOf(0, n, "n-%d", driver.Held)
	waiters := make([]driver.Ref, waiting)
	for i := range waiters {
		waiters[i] = driver.Ref{Ticket: Ticket(n+i, "n-0"), State: driver.Waiting}
	}
	took(fmt.Sprint(n, " joins"), func() { joinAll(t, d, holders) })
	took("their renewal", func() {
		for part := range slices.Chunk(holders, 999) {
			renewAll(t, d, part)
		}
	})
	took(fmt.Sprint(waiting, " joins of one queue"), func() { joinAll(t, d, waiters) })
	took("a renewal of 200 of them", func() { renewAll(t, d, waiters[:200]) })
	took("one hand-off", func() { Leave(t, d, holders[0].Ticket) })
}

// HandOffTimes returns, in ascending order, the times from a release to the
// return of the next holder's Lock, between two clients. Before each release it
// waits until waits reports a waiter.
func HandOffTimes(t *testing.T, rounds int, open func() driver.Driver, waits func() bool) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	locks := mutexes(t, 2, open)
	h, err := locks[0].Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	type got struct {
		h   *holdfast.Hold
		at  time.Time
		err error
	}
	var times []time.Duration
	for i := range rounds {
		next := make(chan got, 1)
		go func() {
			h, err := locks[(i+1)%2].Lock(ctx)
			next <- got{h, time.Now(), err}
		}()
		for !waits() && ctx.Err() == nil { // a client that cannot wait reports that below
		}
		start := time.Now()
		if err := h.Unlock(); err != nil {
			t.Fatal(err)
		}
		g := <-next
		if g.err != nil {
			t.Fatal(g.err)
		}
		h = g.h
		times = append(times, g.at.Sub(start))
	}
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(times)
	return times
}
