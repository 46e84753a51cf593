package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// counter passes connections on to a server, and counts the statements that
// clients send, and the round trips.
type counter struct {
	statements, trips atomic.Int64
	l                 net.Listener
	wg                sync.WaitGroup
}

func newCounter(t *testing.T, port int) *counter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{l: l}
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
			c.wg.Go(func() { _, _ = io.Copy(in, out); _ = in.Close() })
			c.wg.Go(func() { c.count(out, in); _ = out.Close(); _ = in.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.wg.Wait() })
	return c
}

// count copies what a client sends. A packet with the number 0 begins a
// command.
func (c *counter) count(out io.Writer, in io.Reader) {
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		const query, prepare, execute = 0x03, 0x16, 0x17
		if head[3] == 0 && len(body) > 0 {
			switch body[0] {
			case query:
				c.statements.Add(1 + int64(bytes.Count(body, []byte("; "))))
				c.trips.Add(1)
			case execute:
				c.statements.Add(1)
				c.trips.Add(1)
			case prepare:
				c.trips.Add(1)
			}
		}
		if _, err := out.Write(append(slices.Clone(head), body...)); err != nil {
			return
		}
	}
}

// of returns what f costs: statements and round trips.
func (c *counter) of(f func()) (statements, trips int64) {
	s, r := c.statements.Load(), c.trips.Load()
	f()
	return c.statements.Load() - s, c.trips.Load() - r
}

func (c *counter) url(t *testing.T) string {
	return fmt.Sprintf("mysql://holdfast:%s@%s/locks?%s", "s3cret%2Fpass", c.l.Addr(), own())
}

// What an uncontended lock, a hand-off and a renewal of 1,000 tickets cost: on
// connections of our own, and on those of a pool with the library's defaults.
func TestCosts(t *testing.T) {
	c := newCounter(t, backends.SharedMariaDB(t).Port)
	t.Run("own", func(t *testing.T) { costs(t, c, openOn(t, c.url(t)), 2, 3, 3, 3) })
	t.Run("pool", func(t *testing.T) {
		url := c.url(t)
		d, err := New(poolOf(t, url, nil), &Options{TablePrefix: prefixOf(url)})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		costs(t, c, d, 4, 26, 28, 14)
	})
}

func costs(t *testing.T, c *counter, d *Driver, simple, wait, handOff, renewal int64) {
	d.r.Sweeper.Lock() // no sweeps
	defer d.r.Sweeper.Unlock()
	mustJoin(t, d, ticket(0, "warm"), driver.Held)

	a := ticket(1, "n")
	s, r := c.of(func() { mustJoin(t, d, a, driver.Held); mustLeave(t, d, a) })
	t.Logf("uncontended join and leave: %d statements, %d round trips", s, r)
	if r != simple || s != 2 {
		t.Errorf("join and leave: %d statements, %d round trips; want 2 and %d", s, r, simple)
	}

	a, b := ticket(2, "n"), ticket(3, "n")
	mustJoin(t, d, a, driver.Held)
	s, r = c.of(func() { mustRenew(t, d, a) })
	t.Logf("renewal of one: %d statements, %d round trips", s, r)
	if s != 1 || r > simple/2 {
		t.Errorf("a renewal: %d statements, %d round trips", s, r)
	}
	s, r = c.of(func() { mustJoin(t, d, b, driver.Waiting) })
	t.Logf("join behind a holder: %d statements, %d round trips", s, r)
	if r > wait {
		t.Errorf("join behind a holder: %d round trips", r)
	}
	s, r = c.of(func() { mustLeave(t, d, a) })
	t.Logf("leave that hands on: %d statements, %d round trips", s, r)
	if r > handOff {
		t.Errorf("a hand-off takes %d round trips", r)
	}
	if p := mustRenew(t, d, b); p.State != driver.Held {
		t.Errorf("the waiter is %v", p.State)
	}

	refs := make([]driver.Ref, 1000)
	for i := range refs {
		refs[i] = driver.Ref{Ticket: ticket(100+i, fmt.Sprintf("many-%d", i)), State: driver.Held}
	}
	joinAll(t, d, refs)
	s, r = c.of(func() {
		places, err := d.Renew(context.Background(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places {
			if p.State != driver.Held || p.Err != nil {
				t.Fatalf("renewed: %+v", p)
			}
		}
	})
	t.Logf("renewal of 1,000: %d statements, %d round trips", s, r)
	// The bytes of keys are part of the text, and look like the end of a
	// statement in one of two thousand.
	if r > renewal || s > 10 {
		t.Errorf("1,000 renewals take %d statements in %d round trips", s, r)
	}
}

// joinAll joins from 16 goroutines.
func joinAll(t *testing.T, d *Driver, refs []driver.Ref) {
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

// The time from a release to the next holder's Lock returning, beside that of
// one UPDATE in the same run: told by the bell, and asking at the pace of a
// client that hears nothing.
func TestHandOffTime(t *testing.T) {
	s := backends.SharedMariaDB(t)
	s.Exec(t, "CREATE TABLE updated (k int PRIMARY KEY, n bigint NOT NULL)")
	s.Exec(t, "INSERT INTO updated VALUES (1, 0)")
	url := s.URL("holdfast", own())
	db := poolOf(t, url, nil)
	const rounds = 100
	var updates []time.Duration
	for range rounds {
		start := time.Now()
		if _, err := db.Exec("UPDATE updated SET n = n + 1 WHERE k = 1"); err != nil {
			t.Fatal(err)
		}
		updates = append(updates, time.Since(start))
	}
	slices.Sort(updates)
	for _, hears := range []bool{true, false} {
		times := handOffs(t, url, db, rounds/2, hears)
		t.Logf("bell %v: hand-off p50 %v, UPDATE p50 %v: %.1f times as long", hears, times[len(times)/2], updates[rounds/2],
			float64(times[len(times)/2])/float64(updates[rounds/2]))
	}
}

func handOffs(t *testing.T, url string, db *sql.DB, rounds int, hears bool) (times []time.Duration) {
	ctx := context.Background()
	clients := make([]*holdfast.Mutex, 2)
	for i := range clients {
		d := openOn(t, url)
		if !hears {
			d.bell.deaf.Store(true)
			d.owned = false
			d.db.SetMaxOpenConns(1) // which has none to spare
		}
		cl, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close(); _ = d.db.Close(); _ = d.bells.Close() })
		clients[i] = cl.Mutex("n")
	}
	h, err := clients[0].Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		type got struct {
			h   *holdfast.Hold
			at  time.Time
			err error
		}
		next := make(chan got, 1)
		go func() {
			h, err := clients[(i+1)%2].Lock(ctx)
			next <- got{h, time.Now(), err}
		}()
		for waiting := 0; waiting == 0; {
			if err := db.QueryRow("SELECT waiting FROM " + prefixOf(url) + "line WHERE name = 'n'").Scan(&waiting); err != nil {
				t.Fatal(err)
			}
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

// Many locks held and many waiters on one line, with a pool of four. In full,
// which HOLDFAST_TEST_FULL asks for, that is 10,000 and 1,000.
func TestF64_Many(t *testing.T) {
	d := openOn(t, backends.SharedMariaDB(t).URL("holdfast", own()+"&max_conns=4"))
	if err := d.Watch(context.Background(), func(string, driver.Place) {}); err != nil {
		t.Fatal(err)
	}
	held, waiting := 2_000, 250
	if os.Getenv("HOLDFAST_TEST_FULL") != "" {
		held, waiting = 10_000, 1_000
	}
	refs := make([]driver.Ref, held)
	for i := range refs {
		refs[i] = driver.Ref{Ticket: ticket(i, fmt.Sprintf("n-%d", i)), State: driver.Held}
	}
	start := time.Now()
	joinAll(t, d, refs)
	t.Logf("%d joins in %v", held, time.Since(start))
	start = time.Now()
	for part := range slices.Chunk(refs, 999) {
		places, err := d.Renew(context.Background(), part)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places {
			if p.State != driver.Held {
				t.Fatalf("renewed: %+v", p)
			}
		}
	}
	t.Logf("renewed in %v", time.Since(start))
	waiters := make([]driver.Ref, waiting)
	for i := range waiters {
		waiters[i] = driver.Ref{Ticket: ticket(held+i, "n-0"), State: driver.Waiting}
	}
	start = time.Now()
	joinAll(t, d, waiters)
	t.Logf("%d waiters in %v", waiting, time.Since(start))
	start = time.Now()
	if places, err := d.Renew(context.Background(), waiters[:200]); err != nil || places[199].State != driver.Waiting {
		t.Errorf("%v", err)
	}
	t.Logf("200 of them renewed in %v", time.Since(start))
	start = time.Now()
	mustLeave(t, d, refs[0].Ticket)
	t.Logf("one hand-off in %v", time.Since(start))
	if n := d.db.Stats().OpenConnections; n > 4 {
		t.Errorf("%d connections", n)
	}
}

// A sweep leaves no row of lines that are idle, nor messages of clients that
// are gone.
func TestSwept(t *testing.T) {
	s := backends.SharedMariaDB(t)
	url := s.URL("holdfast", own())
	config, o, err := parseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	prefix := prefixOf(url)
	o.clock = "(" + clockNow + " + (SELECT count(*) * 600000000 FROM " + strings.TrimSuffix(prefix, "_") + "late))"
	s.Exec(t, "CREATE TABLE "+strings.TrimSuffix(prefix, "_")+"late (k int PRIMARY KEY)")
	d, err := open(context.Background(), config, o)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range 40 {
		tk := ticket(i, fmt.Sprintf("n-%d", i))
		mustJoin(t, d, tk, driver.Held)
		mustLeave(t, d, tk)
	}
	s.Exec(t, "INSERT INTO "+prefix+"post VALUES ('nobody', 'x', 1, 0, 5)")
	s.Exec(t, "INSERT INTO "+strings.TrimSuffix(prefix, "_")+"late VALUES (1)") // ten minutes later
	limit := time.Now().Add(30 * time.Second)
	for i := 0; s.Value(t, "SELECT count(*) FROM "+prefix+"line") > 1 || s.Value(t, "SELECT count(*) FROM "+prefix+"post") > 0; i++ {
		if time.Now().After(limit) {
			t.Fatal("rows are left")
		}
		tk := ticket(1000+i, "busy")
		mustJoin(t, d, tk, driver.Held)
		mustLeave(t, d, tk)
	}
	if n := s.Value(t, "SELECT count(*) FROM "+prefix+"store WHERE purged > 0"); n != 1 {
		t.Error("the greatest token of the rows is not kept")
	}
}
