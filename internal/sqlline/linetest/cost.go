package linetest

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
	"github.com/holdfast-go/holdfast/internal/sqlline"
)

// Relay passes connections on to a server: a name behind which there is one
// today and another one tomorrow, and a place to count what passes.
type Relay struct {
	// Addr is where clients connect.
	Addr string
	// Port is that of the server which the next connection leads to.
	Port atomic.Int64
	// Statements and Trips are counted by what passes on requests.
	Statements, Trips atomic.Int64
}

// NewRelay returns one that leads to a port of this machine. Requests passes on
// what a client sends, until it ends; nil is [io.Copy].
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

// of returns what f costs.
func (r *Relay) of(f func()) Cost {
	s, n := r.Statements.Load(), r.Trips.Load()
	f()
	return Cost{Statements: r.Statements.Load() - s, Trips: r.Trips.Load() - n}
}

// Cost is a number of statements, and of round trips.
type Cost struct{ Statements, Trips int64 }

// Costs are the most that requests may cost; 0 is no limit.
type Costs struct {
	Free    Cost // a join and a leave of a line that nobody else is in
	Renewal Cost // of one ticket
	Wait    Cost // a join behind a holder, where nobody waited lately
	Behind  Cost // a join where somebody waits
	Try     Cost // and one that holds at once or not at all
	HandOn  Cost // a leave that grants the next
	Many    Cost // a renewal of 1,000 tickets
}

// Counted has a client whose connections lead through the relay do what has a
// limit.
func (want Costs) Counted(t *testing.T, r *Relay, d driver.Driver, remote *sqlline.Remote) {
	t.Helper()
	remote.Sweeper.Lock() // no sweeps
	defer remote.Sweeper.Unlock()
	count := func(what string, most Cost, f func()) {
		t.Helper()
		got := r.of(f)
		t.Logf("%s: %d statements, %d round trips", what, got.Statements, got.Trips)
		if got.Trips == 0 || got.Trips > most.Trips || most.Statements > 0 && got.Statements > most.Statements {
			t.Errorf("%s: %+v; want at most %+v", what, got, most)
		}
	}
	warm := Ticket(0, "warm") // what is prepared, is
	Join(t, d, warm, driver.Held)
	Renew(t, d, warm)
	Leave(t, d, warm)

	a := Ticket(1, "n")
	count("uncontended join and leave", want.Free, func() { Join(t, d, a, driver.Held); Leave(t, d, a) })
	a, b := Ticket(2, "n"), Ticket(3, "n")
	Join(t, d, a, driver.Held)
	count("renewal of one", want.Renewal, func() { Renew(t, d, a) })
	count("join behind a holder", want.Wait, func() { Join(t, d, b, driver.Waiting) })
	count("leave that hands on", want.HandOn, func() { Leave(t, d, a) })
	c := Ticket(4, "n")
	count("join where somebody waited", want.Behind, func() { Join(t, d, c, driver.Waiting) })
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

// refsOf returns n refs whose ids begin with id, of lines of their own if the
// name has a %d.
func refsOf(id, n int, name string, state driver.State) []driver.Ref {
	refs := make([]driver.Ref, n)
	for i := range refs {
		refs[i] = driver.Ref{Ticket: Ticket(id+i, fmt.Sprintf(name, i)), State: state}
	}
	return refs
}

// joinAll joins from 16 goroutines.
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

// Many has a client hold many locks, and wait many times on one line. In full,
// which HOLDFAST_TEST_FULL asks for, that is 10,000 and 1,000.
func Many(t *testing.T, d driver.Driver) {
	t.Helper()
	if err := d.Watch(context.Background(), func(string, driver.Place) {}); err != nil {
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
	took(fmt.Sprint(waiting, " joins of one line"), func() { joinAll(t, d, waiters) })
	took("a renewal of 200 of them", func() { renewAll(t, d, waiters[:200]) })
	took("one hand-off", func() { Leave(t, d, holders[0].Ticket) })
}

// HandOffs returns how long it took, in order, from a release to the return of
// the next holder's Lock, between two clients. Before each release one waits,
// as waits says.
func HandOffs(t *testing.T, rounds int, open func() driver.Driver, waits func() bool) []time.Duration {
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
		for !waits() && ctx.Err() == nil { // a client that cannot wait says so below
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
