package memlock

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // the tests wait more than they work
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

var bg = context.Background()

func ticket1(id, name string) *driver.Ticket {
	return &driver.Ticket{ID: id, Name: name, Units: 1, Limit: 1, TTL: 30 * time.Second, Meta: "meta of " + id}
}

func join(t testing.TB, d *Driver, tk *driver.Ticket, wait bool) driver.Status {
	t.Helper()
	st, err := d.Join(bg, tk, wait)
	if err != nil {
		t.Fatalf("Join %s: %v", tk.ID, err)
	}
	return st
}

func leave(t testing.TB, d *Driver, tk *driver.Ticket) driver.Status {
	t.Helper()
	ps, err := d.Leave(bg, []driver.Ref{{Ticket: tk}})
	if err != nil {
		t.Fatalf("Leave %s: %v", tk.ID, err)
	}
	return ps[0]
}

func renew(t testing.TB, d *Driver, tk *driver.Ticket) driver.Status {
	t.Helper()
	ps, err := d.Renew(bg, []driver.Ref{{Ticket: tk}})
	if err != nil {
		t.Fatalf("Renew %s: %v", tk.ID, err)
	}
	return ps[0]
}

func want(t testing.TB, what string, st driver.Status, s driver.State) {
	t.Helper()
	if st.State != s {
		t.Fatalf("%s is %v, want %v", what, st.State, s)
	}
}

// TestExactTimes checks that a ticket expires exactly at the end of its grace,
// for itself and for the waiters.
func TestExactTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		d := New(s)
		a, b := ticket1("c:1", "n"), ticket1("c:2", "n")
		want(t, "a", join(t, d, a, true), driver.Held)
		st := join(t, d, b, true)
		want(t, "b", st, driver.Waiting)
		keep := driver.Keep(a.TTL)
		if st.Recheck != keep {
			t.Errorf("Recheck is %v, want %v", st.Recheck, keep)
		}
		if st.Holder != a.Meta {
			t.Errorf("Holder is %q", st.Holder)
		}
		time.Sleep(keep - 1)
		want(t, "b before the end", renew(t, d, b), driver.Waiting)
		time.Sleep(time.Nanosecond)
		want(t, "a at the end", renew(t, d, a), driver.Gone)
		want(t, "b at the end", renew(t, d, b), driver.Held)
		want(t, "a's late join", join(t, d, a, true), driver.Gone)
	})
}

// TestDropsAreBounded checks that a request drops at most MaxDrops expired
// waiters, and that its Recheck says when to go on.
func TestDropsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		const dead = 3*driver.MaxDrops + 2 // the first one holds
		for i := range dead {
			join(t, d, ticket1(fmt.Sprintf("c:%d", i), "n"), true)
		}
		time.Sleep(20 * time.Second)
		last := ticket1("last:1", "n")
		join(t, d, last, true)
		time.Sleep(20 * time.Second)
		for i := range 3 {
			st := renew(t, d, last)
			want(t, "last", st, driver.Waiting)
			if n := dead - 1 - (i+1)*driver.MaxDrops; st.Ahead != n || st.Recheck != time.Millisecond {
				t.Errorf("round %d: %d ahead, Recheck %v; want %d and 1ms", i, st.Ahead, st.Recheck, n)
			}
		}
		want(t, "last", renew(t, d, last), driver.Held)
	})
}

// TestRecheckBehindTheDead checks that the first living waiter behind expired
// ones gets a Recheck in time, and that the expired tickets between this waiter
// and a living one are dropped on the way.
func TestRecheckBehindTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		var ts []*driver.Ticket
		for i := range 5 {
			ts = append(ts, ticket1(fmt.Sprintf("c:%d", i), "n"))
			join(t, d, ts[i], true)
		}
		time.Sleep(20 * time.Second)
		for _, i := range []int{0, 1, 4} { // 2 and 3 expire
			renew(t, d, ts[i])
		}
		time.Sleep(15 * time.Second)
		st := renew(t, d, ts[4])
		if st.Ahead != 2 || st.Recheck != driver.Keep(ts[0].TTL)-15*time.Second {
			t.Errorf("%d ahead, Recheck %v", st.Ahead, st.Recheck)
		}
		if l, _ := d.Inspect(bg, "n"); len(l.Tickets) != 3 {
			t.Errorf("line has %d tickets, want 3", len(l.Tickets))
		}
	})
}

// TestIdleQueuesGo checks that idle queues are removed, except those whose
// token counter is ahead of the clock.
func TestIdleQueuesGo(t *testing.T) {
	s := NewStore()
	d := New(s)
	ahead := ticket1("a:1", "ahead")
	ahead.MinToken = 1 << 62
	join(t, d, ahead, true)
	leave(t, d, ahead)
	const n = 10 * minSweep
	for i := range n {
		tk := ticket1(fmt.Sprintf("c:%d", i), fmt.Sprint("line ", i))
		join(t, d, tk, true)
		leave(t, d, tk)
	}
	if len(s.queues) > 2*minSweep {
		t.Errorf("%d lines are left of %d", len(s.queues), n)
	}
	again := ticket1("a:2", "ahead")
	if st := join(t, d, again, true); st.Token <= 1<<62 {
		t.Errorf("token %d after %d", st.Token, uint64(1<<62))
	}
	for i := range n {
		name := fmt.Sprint("line ", i)
		join(t, d, ticket1(fmt.Sprintf("d:%d", i), name), true)
	}
	if len(s.queues) <= n {
		t.Errorf("%d lines are left, %d are in use", len(s.queues), n+1)
	}
}

// TestDeadQueuesGo checks that queues of expired tickets are removed though no
// request names them any more.
func TestDeadQueuesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		d := New(s)
		for i := range 10 * minSweep {
			join(t, d, ticket1(fmt.Sprintf("c:%d", i), fmt.Sprint("line ", i)), true)
			time.Sleep(time.Second)
		}
		if len(s.queues) > 2*minSweep {
			t.Errorf("%d lines are left", len(s.queues))
		}
	})
}

// TestTombstonesAreForgotten checks that a tombstone lasts for TombstoneTTL,
// and not for ever.
func TestTombstonesAreForgotten(t *testing.T) {
	var g tombstones
	g.add("x:1", 10)
	g.add("y:1", TombstoneTTL-1)
	for _, at := range []time.Duration{10, TombstoneTTL, TombstoneTTL + 9, 2*TombstoneTTL - 2} {
		if !g.has("y:1", at) {
			t.Errorf("forgotten after %v", at)
		}
	}
	if g.has("y:1", 5*TombstoneTTL) || len(g.current)+len(g.previous) > 0 {
		t.Errorf("still there")
	}
	g.add("z:1", 6*TombstoneTTL)
	if !g.has("z:1", 2*TombstoneTTL) {
		t.Errorf("forgotten when the clock was set back")
	}
	if g.has("z:1", 5*TombstoneTTL) {
		t.Errorf("still there")
	}
}

func TestSnapshotBringsBackTickets(t *testing.T) {
	s := NewStore()
	d := New(s)
	a, b := ticket1("c:1", "n"), ticket1("c:2", "n")
	a.Owner = "job"
	a2 := *a
	a2.ID = "c:3"
	first := join(t, d, a, true)
	join(t, d, b, true)
	join(t, d, &a2, true)
	restore := s.Snapshot()
	for range 2 {
		time.Sleep(time.Millisecond) // some ticks of the token clock
		want(t, "a", leave(t, d, a), driver.Held)
		want(t, "a2", leave(t, d, &a2), driver.Held)
		st := leave(t, d, b)
		want(t, "b", st, driver.Held)
		if st.Token <= first.Token {
			t.Errorf("token %d after %d", st.Token, first.Token)
		}
		first = st
		restore()
		want(t, "a", renew(t, d, a), driver.Held)
		want(t, "a2", renew(t, d, &a2), driver.Held)
		want(t, "b", renew(t, d, b), driver.Waiting)
	}
	s.LoseData()
	want(t, "a", renew(t, d, a), driver.Gone)
}

// TestF67_TokensEnd checks that the end of the token counter is an error, never
// a wrap.
func TestF67_TokensEnd(t *testing.T) {
	d := New(NewStore())
	tk := ticket1("c:1", "n")
	tk.MinToken = maxToken
	if _, err := d.Join(bg, tk, true); driver.ClassOf(err) != driver.Refused {
		t.Errorf("floor at the end: %v", err)
	}
	tk.MinToken--
	if st := join(t, d, tk, true); st.Token != maxToken-1 {
		t.Errorf("token %d", st.Token)
	}
	leave(t, d, tk)
	tk = ticket1("c:2", "n")
	if st := join(t, d, tk, true); st.Token != maxToken {
		t.Errorf("token %d", st.Token)
	}
	leave(t, d, tk)
	if _, err := d.Join(bg, ticket1("c:3", "n"), true); driver.ClassOf(err) != driver.Refused {
		t.Errorf("after the end: %v", err)
	}
}

// TestTokensGrowBeforeTheEpoch checks with a clock that is before the zero of tokens,
// as in every bubble: tokens are above 0 and grow in each queue, whether its holder
// left, died or was broken, and after the store could have removed idle queues.
func TestTokensGrowBeforeTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		d := New(s)
		if !s.Clock().Before(driver.Epoch) {
			t.Fatalf("the clock is at %v", s.Clock())
		}
		last := map[string]uint64{}
		for i := range 4 * minSweep {
			for _, name := range []string{"used often", fmt.Sprint("name ", i%(2*minSweep))} {
				tk := ticket1(fmt.Sprintf("%s:%d", name, i), name)
				st := join(t, d, tk, true)
				want(t, "a grant", st, driver.Held)
				if st.Token <= last[name] {
					t.Fatalf("%s: token %d after %d", name, st.Token, last[name])
				}
				last[name] = st.Token
				switch i % 3 {
				case 0:
					leave(t, d, tk)
				case 1:
					time.Sleep(2 * tk.TTL)
				case 2:
					if err := d.Break(t.Context(), name, tk.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
