package pglock

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// counter passes connections on to a server, and counts the statements that
// clients have it execute, and the round trips.
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

// count copies what a client sends. The first message has no type.
func (c *counter) count(out io.Writer, in io.Reader) {
	kind := make([]byte, 1)
	for first := true; ; first = false {
		head := make([]byte, 4)
		if !first {
			if _, err := io.ReadFull(in, kind); err != nil {
				return
			}
		}
		if _, err := io.ReadFull(in, head); err != nil {
			return
		}
		size := int(head[0])<<24 | int(head[1])<<16 | int(head[2])<<8 | int(head[3])
		body := make([]byte, size-4)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		message := append(head, body...)
		if !first {
			message = append(slices.Clone(kind), message...)
			switch kind[0] {
			case 'E':
				c.statements.Add(1)
			case 'S', 'Q':
				c.trips.Add(1)
			}
		}
		if _, err := out.Write(message); err != nil {
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

func (c *counter) url(t *testing.T, more string) string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&%s%s", c.l.Addr(), own(), more)
}

// What an uncontended lock, a hand-off and a renewal of 1,000 tickets cost.
func TestCosts(t *testing.T) {
	c := newCounter(t, backends.SharedPostgres(t).Port)
	d := openOn(t, c.url(t, ""))
	d.r.Sweeper.Lock() // no sweeps
	defer d.r.Sweeper.Unlock()
	mustJoin(t, d, ticket(0, "warm"), driver.Held)

	a := ticket(1, "n")
	s, r := c.of(func() { mustJoin(t, d, a, driver.Held); mustLeave(t, d, a) })
	t.Logf("uncontended join and leave: %d statements, %d round trips", s, r)
	if r != 2 || s > 4 {
		t.Errorf("join and leave: %d statements, %d round trips; want at most 4 and 2", s, r)
	}

	told := make(chan string, 10)
	if err := d.Watch(t.Context(), func(id string, p driver.Place) { told <- id }); err != nil {
		t.Fatal(err)
	}
	a, b := ticket(2, "n"), ticket(3, "n")
	mustJoin(t, d, a, driver.Held)
	s, r = c.of(func() { mustJoin(t, d, b, driver.Waiting) })
	t.Logf("join behind a holder: %d statements, %d round trips", s, r)
	if r > 4 {
		t.Errorf("join behind a holder: %d round trips", r)
	}
	s, r = c.of(func() { mustLeave(t, d, a) })
	t.Logf("leave that hands on: %d statements, %d round trips", s, r)
	if r != 1 || s > 4 {
		t.Errorf("a hand-off takes %d statements in %d round trips; want at most 4 in 1", s, r)
	}
	if id := <-told; id != b.ID {
		t.Errorf("told %s", id)
	}

	refs := make([]driver.Ref, 1000)
	for i := range refs {
		refs[i] = driver.Ref{Ticket: ticket(100+i, fmt.Sprintf("many-%d", i)), State: driver.Held}
		mustJoin(t, d, refs[i].Ticket, driver.Held)
	}
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
	if s > 10 {
		t.Errorf("1,000 renewals take %d statements", s)
	}
}

// The time from a release to the next holder's Lock returning, beside that of
// one UPDATE in the same run.
func TestHandOffTime(t *testing.T) {
	s := backends.SharedPostgres(t)
	url := s.URL("postgres", own())
	c := admin(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.Exec(ctx, "CREATE TABLE updated AS SELECT 1 AS k, 0 AS n"); err != nil {
		t.Fatal(err)
	}
	defer s.Exec(t, "DROP TABLE updated")
	const rounds = 200
	var updates, handOffs []time.Duration
	clients := make([]*holdfast.Mutex, 2)
	for i := range clients {
		cl, err := holdfast.New(openOn(t, url))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		clients[i] = cl.Mutex("n")
	}
	h, err := clients[0].Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		start := time.Now()
		if _, err := c.Exec(ctx, "UPDATE updated SET n = n + 1 WHERE k = 1"); err != nil {
			t.Fatal(err)
		}
		updates = append(updates, time.Since(start))
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
		for tickets := 0; tickets < 2; {
			if err := c.QueryRow(ctx, "SELECT waiting + 1 FROM "+prefixOf(url)+"line WHERE name = 'n'").Scan(&tickets); err != nil {
				t.Fatal(err)
			}
		}
		start = time.Now()
		if err := h.Unlock(); err != nil {
			t.Fatal(err)
		}
		g := <-next
		if g.err != nil {
			t.Fatal(g.err)
		}
		h = g.h
		handOffs = append(handOffs, g.at.Sub(start))
	}
	if err := h.Unlock(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(updates)
	slices.Sort(handOffs)
	t.Logf("hand-off p50 %v, UPDATE p50 %v: %.1f times as long", handOffs[rounds/2], updates[rounds/2],
		float64(handOffs[rounds/2])/float64(updates[rounds/2]))
}
