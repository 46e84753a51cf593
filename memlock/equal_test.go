package memlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/broken"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestEqualToTheNaiveStore runs the same random program on memlock and on the
// naive store of package broken, which was written independently and examines
// every ticket every time. It checks that both have the same replies, pushes
// and queues.
func TestEqualToTheNaiveStore(t *testing.T) {
	programs := 300
	if testing.Short() {
		programs = 50
	}
	for seed := range uint64(programs) {
		synctest.Test(t, func(t *testing.T) {
			fast, naive := memlock.NewStore(), broken.NewStore(broken.None)
			a := run(seed, func() driver.Driver { return memlock.New(fast) })
			b := run(seed, func() driver.Driver { return broken.New(naive) })
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("seed %d, step %d:\nmemlock: %s\nnaive:   %s\nbefore:  %s", seed, i, a[i], b[i], a[max(i-3, 0):i])
				}
			}
		})
	}
}

// run runs the program of a seed on three clients and returns a record of it.
//
// The case program of package drivertest has a generator of its own, and the
// two have little in common. That program is for real stores: it does not let
// time pass, makes only requests that every store answers alike, takes back
// what the replies rule out, and describes in words what may differ, as tokens
// do. This program compares each token, lease and push of two stores in one
// bubble, lets time pass, makes requests about expired tickets, and spares the
// stores nothing.
func run(seed uint64, open func() driver.Driver) (happened []string) {
	ctx := context.Background()
	rnd := rand.New(rand.NewPCG(seed, 1))
	say := func(format string, args ...any) { happened = append(happened, fmt.Sprintf(format, args...)) }
	type client struct {
		d  driver.Driver
		ts []*driver.Ticket
	}
	clients := make([]*client, 3)
	var pushes []string
	for i := range clients {
		clients[i] = &client{d: open()}
		if err := clients[i].d.Watch(ctx, func(id string, p driver.Status) {
			pushes = append(pushes, fmt.Sprintf("%d:%s %v %d", i, id, p.State, p.Token))
		}); err != nil {
			say("Watch: %v", err)
		}
	}
	limits := []int64{1, 1, 3, driver.RWLimit}
	limit := limits[rnd.IntN(len(limits))]
	start := time.Now()
	for n := range 120 {
		c := clients[rnd.IntN(len(clients))]
		some := func() *driver.Ticket {
			if len(c.ts) == 0 {
				return &driver.Ticket{ID: fmt.Sprint("never:", n), Name: "n", Units: 1, Limit: 1, TTL: time.Second}
			}
			return c.ts[rnd.IntN(len(c.ts))]
		}
		what, p, err := "", driver.Status{}, error(nil)
		var gone *driver.Ticket // it left for certain: its id does not come back
		switch rnd.IntN(12) {
		case 0, 1, 2, 3: // a new ticket
			t := &driver.Ticket{
				ID: fmt.Sprintf("c:%d", n), Name: "n", Units: 1, Limit: limit, TTL: time.Duration(1+rnd.IntN(5)) * time.Second,
				Owner: []string{"", "", "", "job", "work"}[rnd.IntN(5)], MinToken: uint64(rnd.IntN(20)),
			}
			if rnd.IntN(3) == 0 {
				t.Units = 1 + rnd.Int64N(min(limit, 3))
			}
			if limit == driver.RWLimit && rnd.IntN(2) == 0 {
				t.Units = limit
			}
			if rnd.IntN(25) == 0 {
				t.Limit++
			}
			if rnd.IntN(4) == 0 {
				t.Replaces = some()
				gone = t.Replaces
			}
			c.ts = append(c.ts, t)
			wait := rnd.IntN(3) > 0
			p, err = c.d.Join(ctx, t, wait)
			what = fmt.Sprintf("Join %s of %q wait=%v", t.ID, t.Owner, wait)
		case 4: // an old one again
			t := some()
			p, err = c.d.Join(ctx, t, true)
			what = "Join again " + t.ID
		case 5, 6, 7:
			t := some()
			var ps []driver.Status
			if ps, err = c.d.Renew(ctx, []driver.Ref{{Ticket: t}}); err == nil {
				p = ps[0]
			}
			what = "Renew " + t.ID
		case 8, 9:
			t := some()
			unsure := rnd.IntN(2) == 0
			var ps []driver.Status
			if ps, err = c.d.Leave(ctx, []driver.Ref{{Ticket: t, JoinPending: unsure}}); err == nil {
				p = ps[0]
			}
			if !unsure {
				gone = t
			}
			what = fmt.Sprintf("Leave %s unsure=%v", t.ID, unsure)
		case 10:
			t := some()
			err = c.d.Break(ctx, t.Name, t.ID)
			what = "Break " + t.ID
		case 11:
			time.Sleep(time.Duration(rnd.IntN(2500)) * time.Millisecond)
			what = "Sleep"
		}
		c.ts = slices.DeleteFunc(c.ts, func(u *driver.Ticket) bool { return u == gone })
		say("%s: %v token %d lease %v, %v", what, p.State, p.Token, p.Lease, err)
		slices.Sort(pushes)
		say("%s pushes %v", what, pushes)
		pushes = nil
		l, err := c.d.Inspect(ctx, "n")
		// One store keeps expired tickets in the middle of a queue until the
		// queue reaches them, the other does not.
		l.Tickets = slices.DeleteFunc(l.Tickets, func(e driver.Entry) bool { return e.Left <= 0 })
		say("after %v: %+v, %v", time.Since(start), l, err)
	}
	for _, c := range clients {
		if err := c.d.Close(); err != nil {
			say("Close: %v", err)
		}
	}
	return happened
}
