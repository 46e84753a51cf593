package memlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

func ticket1(id, name string) *driver.Ticket {
	return &driver.Ticket{ID: id, Name: name, Units: 1, Limit: 1, TTL: 30 * time.Second, Meta: "meta of " + id}
}

func join(t testing.TB, d *Driver, tk *driver.Ticket, wait bool) driver.Place {
	t.Helper()
	p, err := d.Join(bg, tk, wait)
	if err != nil {
		t.Fatalf("Join %s: %v", tk.ID, err)
	}
	return p
}

func leave(t testing.TB, d *Driver, tk *driver.Ticket) driver.Place {
	t.Helper()
	ps, err := d.Leave(bg, []driver.Ref{{Ticket: tk}})
	if err != nil {
		t.Fatalf("Leave %s: %v", tk.ID, err)
	}
	return ps[0]
}

func renew(t testing.TB, d *Driver, tk *driver.Ticket) driver.Place {
	t.Helper()
	ps, err := d.Renew(bg, []driver.Ref{{Ticket: tk}})
	if err != nil {
		t.Fatalf("Renew %s: %v", tk.ID, err)
	}
	return ps[0]
}

func want(t testing.TB, what string, p driver.Place, s driver.State) {
	t.Helper()
	if p.State != s {
		t.Fatalf("%s is %v, want %v", what, p.State, s)
	}
}

// The time of a ticket ends exactly with its grace, for itself and for those
// who wait.
func TestExactTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		d := New(s)
		a, b := ticket1("c:1", "n"), ticket1("c:2", "n")
		want(t, "a", join(t, d, a, true), driver.Held)
		p := join(t, d, b, true)
		want(t, "b", p, driver.Waiting)
		keep := driver.Keep(a.TTL)
		if p.Recheck != keep {
			t.Errorf("Recheck is %v, want %v", p.Recheck, keep)
		}
		if p.Holder != a.Meta {
			t.Errorf("Holder is %q", p.Holder)
		}
		time.Sleep(keep - 1)
		want(t, "b before the end", renew(t, d, b), driver.Waiting)
		time.Sleep(time.Nanosecond)
		want(t, "a at the end", renew(t, d, a), driver.Gone)
		want(t, "b at the end", renew(t, d, b), driver.Held)
		want(t, "a's late join", join(t, d, a, true), driver.Gone)
	})
}

// A request drops at most MaxSteps dead tickets, and says when to go on.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		const dead = 3*driver.MaxSteps + 1
		for i := range dead {
			join(t, d, ticket1(fmt.Sprintf("c:%d", i), "n"), true)
		}
		time.Sleep(20 * time.Second)
		last := ticket1("last:1", "n")
		join(t, d, last, true)
		time.Sleep(20 * time.Second)
		for i := range 3 {
			p := renew(t, d, last)
			want(t, "last", p, driver.Waiting)
			if n := dead - (i+1)*driver.MaxSteps; p.Ahead != n || p.Recheck != time.Millisecond {
				t.Errorf("round %d: %d ahead, Recheck %v; want %d and 1ms", i, p.Ahead, p.Recheck, n)
			}
		}
		want(t, "last", renew(t, d, last), driver.Held)
	})
}

// The first living waiter behind dead ones is told to ask in time, and the
// dead between it and a living one go on its way.
func TestRecheckBehindTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		var ts []*driver.Ticket
		for i := range 5 {
			ts = append(ts, ticket1(fmt.Sprintf("c:%d", i), "n"))
			join(t, d, ts[i], true)
		}
		time.Sleep(20 * time.Second)
		for _, i := range []int{0, 1, 4} { // 2 and 3 are dead
			renew(t, d, ts[i])
		}
		time.Sleep(15 * time.Second)
		p := renew(t, d, ts[4])
		if p.Ahead != 2 || p.Recheck != driver.Keep(ts[0].TTL)-15*time.Second {
			t.Errorf("%d ahead, Recheck %v", p.Ahead, p.Recheck)
		}
		if l, _ := d.Inspect(bg, "n"); len(l.Tickets) != 3 {
			t.Errorf("line has %d tickets, want 3", len(l.Tickets))
		}
	})
}

// Idle lines go, except those whose counter is ahead of the clock.
func TestIdleLinesGo(t *testing.T) {
	s := NewStore()
	d := New(s)
	ahead := ticket1("a:1", "ahead")
	ahead.Floor = 1 << 62
	join(t, d, ahead, true)
	leave(t, d, ahead)
	const n = 10 * fewLines
	for i := range n {
		tk := ticket1(fmt.Sprintf("c:%d", i), fmt.Sprint("line ", i))
		join(t, d, tk, true)
		leave(t, d, tk)
	}
	if len(s.lines) > 2*fewLines {
		t.Errorf("%d lines are left of %d", len(s.lines), n)
	}
	again := ticket1("a:2", "ahead")
	if p := join(t, d, again, true); p.Token <= 1<<62 {
		t.Errorf("token %d after %d", p.Token, uint64(1<<62))
	}
	for i := range n {
		name := fmt.Sprint("line ", i)
		join(t, d, ticket1(fmt.Sprintf("d:%d", i), name), true)
	}
	if len(s.lines) <= n {
		t.Errorf("%d lines are left, %d are in use", len(s.lines), n+1)
	}
}

// Lines nobody asks about any more do not stay for ever.
func TestDeadLinesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		d := New(s)
		for i := range 10 * fewLines {
			join(t, d, ticket1(fmt.Sprintf("c:%d", i), fmt.Sprint("line ", i)), true)
			time.Sleep(time.Second)
		}
		if len(s.lines) > 2*fewLines {
			t.Errorf("%d lines are left", len(s.lines))
		}
	})
}

// Who is gone is remembered for RequestAge, and not for ever.
func TestGraves(t *testing.T) {
	var g graves
	g.add("x:1", 10)
	g.add("y:1", RequestAge-1)
	for _, at := range []time.Duration{10, RequestAge, RequestAge + 9, 2*RequestAge - 2} {
		if !g.has("y:1", at) {
			t.Errorf("forgotten after %v", at)
		}
	}
	if g.has("y:1", 5*RequestAge) || len(g.young)+len(g.old) > 0 {
		t.Errorf("still there")
	}
	g.add("z:1", 6*RequestAge)
	if !g.has("z:1", 2*RequestAge) {
		t.Errorf("forgotten when the clock was set back")
	}
	if g.has("z:1", 5*RequestAge) {
		t.Errorf("still there")
	}
}

func TestSnapshot(t *testing.T) {
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
		p := leave(t, d, b)
		want(t, "b", p, driver.Held)
		if p.Token <= first.Token {
			t.Errorf("token %d after %d", p.Token, first.Token)
		}
		first = p
		restore()
		want(t, "a", renew(t, d, a), driver.Held)
		want(t, "a2", renew(t, d, &a2), driver.Held)
		want(t, "b", renew(t, d, b), driver.Waiting)
	}
	s.LoseData()
	want(t, "a", renew(t, d, a), driver.Gone)
}

// The counter's end is an error, never a wrap.
func TestF67_TokensEnd(t *testing.T) {
	d := New(NewStore())
	tk := ticket1("c:1", "n")
	tk.Floor = lastToken
	if _, err := d.Join(bg, tk, true); driver.ClassOf(err) != driver.Refused {
		t.Errorf("floor at the end: %v", err)
	}
	tk.Floor--
	if p := join(t, d, tk, true); p.Token != lastToken-1 {
		t.Errorf("token %d", p.Token)
	}
	leave(t, d, tk)
	tk = ticket1("c:2", "n")
	if p := join(t, d, tk, true); p.Token != lastToken {
		t.Errorf("token %d", p.Token)
	}
	leave(t, d, tk)
	if _, err := d.Join(bg, ticket1("c:3", "n"), true); driver.ClassOf(err) != driver.Refused {
		t.Errorf("after the end: %v", err)
	}
}
