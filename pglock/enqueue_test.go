package pglock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/sqlqueue"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF91_WaiterSeesEarlierCommits checks that requests that meet at a queue's
// row decide from the result of the requests before them, not from the state in
// which they began to wait. The test locks the row by hand, so that requests
// meet there in the order in which they came.
//
// Covers: F91.
func TestF91_WaiterSeesEarlierCommits(t *testing.T) {
	t.Parallel()
	url := servers.SharedPostgres(t).URL("postgres", own())
	d, other := openOn(t, url), openOn(t, url)
	keeps, looks := admin(t, url), admin(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := 0
	const name = "n"
	next := func() *driver.Ticket { id++; return ticket(id, name) }
	join := func(d *Driver, tk *driver.Ticket, wait bool) func() driver.Status {
		return func() driver.Status {
			p, err := d.Join(ctx, tk, wait)
			if err != nil {
				t.Errorf("Join: %v", err)
			}
			return p
		}
	}
	leave := func(d *Driver, tk *driver.Ticket) func() driver.Status {
		return func() driver.Status {
			p, err := d.Leave(ctx, []driver.Ref{{Ticket: tk, State: driver.Held}})
			if err != nil || p[0].Err != nil {
				t.Errorf("Leave: %v, %v", p, err)
			}
			return p[0]
		}
	}
	// meet makes the first request wait for the row before the second does, and
	// returns their answers.
	meet := func(first, second func() driver.Status) (a, b driver.Status) {
		t.Helper()
		tx, err := keeps.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "SELECT 1 FROM "+prefixOf(url)+"line WHERE name = $1 FOR UPDATE", []byte(name)); err != nil {
			t.Fatal(err)
		}
		waiting := func(n int) {
			for got := 0; got < n; {
				if err := looks.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1",
					"%"+prefixOf(url)+"line%").Scan(&got); err != nil {
					t.Fatal(err)
				}
			}
		}
		answers := [2]chan driver.Status{make(chan driver.Status, 1), make(chan driver.Status, 1)}
		for i, f := range []func() driver.Status{first, second} {
			go func() { answers[i] <- f() }()
			waiting(i + 1)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		return <-answers[0], <-answers[1]
	}

	// Both clients have met contention, so their joins read the waiters, too.
	holder := next()
	mustJoin(t, d, holder, driver.Held)
	for _, d := range []*Driver{d, other} {
		w := next()
		mustJoin(t, d, w, driver.Waiting)
		if p, err := d.Leave(ctx, []driver.Ref{{Ticket: w, State: driver.Waiting}}); err != nil || p[0].State != driver.Waiting {
			t.Fatalf("%v, %v", p, err)
		}
	}

	// It is released before another ticket joins, which then holds.
	second := next()
	p, q := meet(leave(other, holder), join(d, second, true))
	if p.State != driver.Held || q.State != driver.Held || q.Token <= p.Token {
		t.Errorf("left %+v, joined %+v", p, q)
	}
	// Two tickets join behind it, in this order.
	third, fourth := next(), next()
	p, q = meet(join(other, third, true), join(d, fourth, true))
	if p.State != driver.Waiting || p.Ahead != 1 || q.State != driver.Waiting || q.Ahead != 2 {
		t.Errorf("behind one %+v, behind two %+v", p, q)
	}
	// It is handed off while another ticket joins.
	fifth := next()
	p, q = meet(leave(other, second), join(d, fifth, true))
	if p.State != driver.Held || q.State != driver.Waiting || q.Ahead != 2 {
		t.Errorf("handed on %+v, behind two %+v", p, q)
	}
	// The same, the other way round.
	sixth := next()
	p, q = meet(join(d, sixth, true), leave(other, third))
	if p.State != driver.Waiting || p.Ahead != 3 || q.State != driver.Held {
		t.Errorf("behind three %+v, handed on %+v", p, q)
	}
	last := uint64(0)
	for _, tk := range []*driver.Ticket{fourth, fifth, sixth} {
		p := mustRenew(t, d, tk)
		if p.State != driver.Held || p.Token <= last {
			t.Errorf("%+v after %d", p, last)
		}
		last = p.Token
		mustLeave(t, d, tk)
	}
	// A ticket takes a free lock before a ticket with wait=false joins, and
	// then before a ticket that waits.
	seventh, eighth, ninth := next(), next(), next()
	seventh.Meta = "the seventh"
	p, q = meet(join(other, seventh, true), join(d, eighth, false))
	if p.State != driver.Held || q.State != driver.Gone || q.Holder != seventh.Meta {
		t.Errorf("took it %+v, did not %+v", p, q)
	}
	mustLeave(t, d, seventh)
	p, q = meet(join(other, eighth, true), join(d, ninth, true))
	if p.State != driver.Held || q.State != driver.Waiting || q.Ahead != 1 {
		t.Errorf("took it %+v, waits %+v", p, q)
	}
	mustLeave(t, d, eighth)
	mustLeave(t, d, ninth)
	// A ticket leaves before its Join arrives at a queue without tickets, which
	// other tickets have left in the same way.
	unsure := func(tk *driver.Ticket) func() driver.Status {
		return func() driver.Status {
			p, err := other.Leave(ctx, []driver.Ref{{Ticket: tk, State: driver.Waiting, JoinPending: true}})
			if err != nil || p[0].Err != nil {
				t.Errorf("Leave: %v, %v", p, err)
			}
			return p[0]
		}
	}
	unsure(next())()
	tenth := next()
	p, q = meet(unsure(tenth), join(d, tenth, true))
	if p.State != driver.Gone || q.State != driver.Gone {
		t.Errorf("left %+v, and joined then %+v", p, q)
	}
}

// TestStatementsDecideAsTransactionsDo checks that single statements decide as
// a transaction that reads the queue does: two clients with equal queues get
// equal answers, although one of them has no such statements. The first seed is
// one whose program a Try beside a named owner failed: the statement told the
// time of one of the owner's tickets for that of the owner.
func TestStatementsDecideAsTransactionsDo(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{14876586422336739164, rand.Uint64()} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { decideAlike(t, seed) })
	}
}

// decideAlike carries out the program of a seed.
func decideAlike(t *testing.T, seed uint64) {
	s := servers.SharedPostgres(t)
	step := "steps_" + prefixOf(own())
	s.Exec(t, "CREATE TABLE "+step+" AS SELECT 0::bigint AS us")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clients := make([]*Driver, 2)
	for i := range clients {
		config, o, err := parseURL(s.URL("postgres", own()))
		if err != nil {
			t.Fatal(err)
		}
		// The clock stands still between the steps.
		o.clock = "(1900000000000000 + (SELECT us FROM " + step + "))"
		if clients[i], err = open(ctx, config, o); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
		clients[i].db.tables.SweepLock.Lock() // one client would sweep before the other
		clients[i].db.tables.PushesArrive.Store(true)
		if i == 1 {
			d := dialect(o, clients[i].db.tables.Name, clients[i].db.notifyStmts)
			d.NotifyGrant = ""
			clients[i].db.tables.Queues = sqlqueue.New(d)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	metas := []string{"", "a", "b"}
	var all []*driver.Ticket
	both := func(what string, ask func(d *Driver) driver.Status) driver.Status {
		t.Helper()
		a, b := ask(clients[0]), ask(clients[1])
		if (a.Err == nil) != (b.Err == nil) || driver.ClassOf(a.Err) != driver.ClassOf(b.Err) {
			t.Fatalf("%s: %v and %v", what, a.Err, b.Err)
		}
		// A transaction drops more expired tickets than it needs to.
		if a.Ahead < b.Ahead {
			t.Errorf("%s: %d and %d ahead", what, a.Ahead, b.Ahead)
		}
		a.Err, b.Err, a.Ahead, b.Ahead = nil, nil, 0, 0
		if a != b {
			t.Fatalf("%s: %+v and %+v", what, a, b)
		}
		return a
	}
	seen := make(map[string]int)
	for i := range 500 {
		name := fmt.Sprint("line ", r.IntN(3))
		limit := int64(1 + 2*r.IntN(2))
		if r.IntN(8) > 0 {
			limit = map[string]int64{"line 0": 1, "line 1": 1, "line 2": 3}[name]
		}
		switch n := r.IntN(16); {
		case n < 7 || len(all) == 0:
			tk := ticket(i, name)
			tk.Limit, tk.Units = limit, 1+r.Int64N(limit)
			tk.TTL = time.Duration(1+r.IntN(20)) * time.Second
			tk.Meta = metas[r.IntN(len(metas))]
			if r.IntN(6) == 0 {
				tk.Owner = "o" + metas[r.IntN(len(metas))]
			}
			if len(all) > 0 && r.IntN(10) == 0 {
				tk = all[r.IntN(len(all))] // again, in any state
			}
			wait := r.IntN(4) > 0
			p := both("join", func(d *Driver) driver.Status {
				p, err := d.Join(ctx, tk, wait)
				p.Err = err
				return p
			})
			seen["join "+p.State.String()]++
			all = append(all, tk)
		case n < 13:
			at := len(all) - 1 - r.IntN(min(len(all), 8))
			state := []driver.State{driver.Held, driver.Waiting}[r.IntN(2)]
			ref := []driver.Ref{{Ticket: all[at], State: state, JoinPending: r.IntN(20) == 0}}
			leaves := r.IntN(4) > 0
			p := both("leave or renew", func(d *Driver) driver.Status {
				ask := d.Renew
				if leaves {
					ask = d.Leave
				}
				p, err := ask(ctx, ref)
				if err != nil {
					t.Fatal(err)
				}
				return p[0]
			})
			seen[fmt.Sprint("leaves ", leaves, " ", p.State)]++
		default:
			s.Exec(t, fmt.Sprintf("UPDATE %s SET us = us + %d", step, r.Int64N(3_000_000)))
		}
	}
	t.Log(seen)
	for _, what := range []string{"join held", "join waiting", "join gone", "leaves true held", "leaves true waiting"} {
		if seen[what] < 5 {
			t.Errorf("%s: only %d", what, seen[what])
		}
	}
}
