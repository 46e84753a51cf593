package memlock

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The tests of this file check the rules of the package comment, which go
// beyond the text of the seam.

func ids(t *testing.T, d *Driver, name string) []string {
	t.Helper()
	l, err := d.Inspect(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range l.Tickets {
		ids = append(ids, e.ID)
	}
	return ids
}

func names(t *testing.T, d *Driver) (names []string) {
	t.Helper()
	for name, err := range d.Names(bg, "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestExpiryIsExact checks that a holder is dropped at the instant of its
// expiry, not a tick later.
func TestExpiryIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		a, b := ticket1("c:1", "n"), ticket1("c:2", "n")
		join(t, d, a, true)
		join(t, d, b, true)
		b.TTL *= 2
		time.Sleep(20 * time.Second)
		renew(t, d, b)
		time.Sleep(driver.Keep(a.TTL) - 20*time.Second)
		want(t, "b at the end of a", renew(t, d, b), driver.Held)
	})
}

// TestDropsBeforeAGrant checks that a request that has dropped as many waiters
// as it may grants nothing: the next request makes the grant.
func TestDropsBeforeAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		for i := range driver.MaxDrops + 1 { // the first one holds
			join(t, d, ticket1(fmt.Sprintf("c:%d", i), "n"), true)
		}
		time.Sleep(20 * time.Second)
		last := ticket1("last:1", "n")
		join(t, d, last, true)
		time.Sleep(20 * time.Second)
		st := renew(t, d, last)
		want(t, "last", st, driver.Waiting)
		if st.Ahead != 0 || st.Recheck != time.Millisecond {
			t.Errorf("%d ahead, Recheck %v; want 0 and 1ms", st.Ahead, st.Recheck)
		}
		want(t, "last", renew(t, d, last), driver.Held)
	})
}

// TestDropsOfABatch checks that MaxDrops counts for each ticket of a batch.
func TestDropsOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		var refs []driver.Ref
		for _, name := range []string{"n", "m", "o"} {
			for i := range driver.MaxDrops {
				join(t, d, ticket1(fmt.Sprintf("%s:%d", name, i), name), true)
			}
		}
		time.Sleep(20 * time.Second)
		for _, name := range []string{"n", "m", "o"} {
			tk := ticket1("last "+name+":1", name)
			join(t, d, tk, true)
			refs = append(refs, driver.Ref{Ticket: tk})
		}
		time.Sleep(20 * time.Second)
		ps, err := d.Renew(bg, refs)
		if err != nil {
			t.Fatal(err)
		}
		for i, st := range ps {
			want(t, refs[i].ID, st, driver.Held)
		}
	})
}

// TestNoPushToTheAsker checks that a ticket that its own request granted gets
// no push: the reply reports the grant.
func TestNoPushToTheAsker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		var told []string
		if err := d.Watch(bg, func(id string, st driver.Status) { told = append(told, id) }); err != nil {
			t.Fatal(err)
		}
		a, b, c := ticket1("c:1", "n"), ticket1("c:2", "n"), ticket1("c:3", "n")
		a.TTL /= 2
		join(t, d, a, true)
		join(t, d, b, true)
		time.Sleep(20 * time.Second)
		want(t, "b", renew(t, d, b), driver.Held)
		join(t, d, c, true)
		leave(t, d, b)
		if !slices.Equal(told, []string{c.ID}) {
			t.Errorf("told %q, want %q", told, c.ID)
		}
	})
}

// TestTryOfAWaitingTicket checks that a waiting ticket that joins again with
// wait=false gives its place up.
func TestTryOfAWaitingTicket(t *testing.T) {
	d := New(NewStore())
	a, b := ticket1("c:1", "n"), ticket1("c:2", "n")
	join(t, d, a, true)
	join(t, d, b, true)
	want(t, "b", join(t, d, b, false), driver.Gone)
	if got := ids(t, d, "n"); !slices.Equal(got, []string{a.ID}) {
		t.Errorf("the line is %q", got)
	}
}

// TestDeadOwnersPlace checks that an owner whose tickets have expired does not
// get their place back, not even in the middle of a queue.
func TestDeadOwnersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		a, dead, c, again := ticket1("c:1", "n"), ticket1("c:2", "n"), ticket1("c:3", "n"), ticket1("c:4", "n")
		a.Owner, dead.Owner, again.Owner = "a", "job", "job"
		join(t, d, a, true)
		b := ticket1("c:5", "n")
		join(t, d, b, true)
		join(t, d, dead, true)
		join(t, d, c, true)
		time.Sleep(20 * time.Second)
		for _, tk := range []*driver.Ticket{a, b, c} {
			renew(t, d, tk)
		}
		time.Sleep(20 * time.Second)
		join(t, d, again, true)
		if got := ids(t, d, "n"); !slices.Equal(got, []string{a.ID, b.ID, c.ID, again.ID}) {
			t.Errorf("the line is %q", got)
		}
	})
}

// TestDeadTicketOfALivingPlace checks that a place lasts as long as its last
// ticket, as the Recheck of the next waiter says, and that a ticket of the
// place that expires earlier is dropped alone.
func TestDeadTicketOfALivingPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		long, short, next := ticket1("c:1", "n"), ticket1("c:2", "n"), ticket1("c:3", "n")
		long.Owner, short.Owner = "job", "job"
		short.TTL /= 2
		join(t, d, long, true)
		join(t, d, short, true)
		if st := join(t, d, next, true); st.Recheck != driver.Keep(long.TTL) {
			t.Errorf("Recheck is %v, want %v", st.Recheck, driver.Keep(long.TTL))
		}
		time.Sleep(driver.Keep(short.TTL))
		if got := ids(t, d, "n"); !slices.Equal(got, []string{long.ID, next.ID}) {
			t.Errorf("the line is %q", got)
		}
		want(t, "short", renew(t, d, short), driver.Gone)
	})
}

// TestRecheckBehindSeveral checks that the first waiter's Recheck is the time
// at which the first of the holders may be dropped.
func TestRecheckBehindSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		for i, ttl := range []time.Duration{9, 3, 7} {
			r := &driver.Ticket{ID: fmt.Sprintf("r:%d", i), Name: "n", Units: 1, Limit: driver.RWLimit, TTL: ttl * time.Second}
			join(t, d, r, true)
		}
		w := &driver.Ticket{ID: "w:1", Name: "n", Units: driver.RWLimit, Limit: driver.RWLimit, TTL: time.Minute}
		for _, ttl := range []time.Duration{3, 7, 9} {
			st := join(t, d, w, true)
			if at := driver.Keep(ttl * time.Second); st.Recheck <= 0 || st.Recheck > at {
				t.Errorf("Recheck is %v, want at most %v", st.Recheck, at)
			}
			time.Sleep(st.Recheck)
		}
		want(t, "w", renew(t, d, w), driver.Held)
	})
}

// TestLongQueueLosesAnyTicket checks that tickets leave a long queue from its
// head, its end and its middle.
func TestLongQueueLosesAnyTicket(t *testing.T) {
	d := New(NewStore())
	var line []*driver.Ticket
	for i := range 100 {
		tk := ticket1(fmt.Sprintf("c:%d", i), "n")
		join(t, d, tk, true)
		line = append(line, tk)
	}
	for n := 0; len(line) > 0; n++ {
		i := []int{1, 0, len(line) / 2, len(line) - 1}[n%4] % len(line)
		leave(t, d, line[i])
		line = slices.Delete(line, i, i+1)
		got := ids(t, d, "n")
		if len(got) != len(line) {
			t.Fatalf("%d tickets, want %d", len(got), len(line))
		}
		for j := range line {
			if got[j] != line[j].ID {
				t.Fatalf("ticket %d is %s, want %s", j, got[j], line[j].ID)
			}
		}
	}
	if cap(d.store.queues["n"].places) > 32 {
		t.Errorf("an empty line keeps room for %d places", cap(d.store.queues["n"].places))
	}
}

// TestNamesOfTheDead checks that a queue of expired tickets is not listed.
func TestNamesOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		join(t, d, ticket1("c:1", "n"), true)
		if got := names(t, d); !slices.Equal(got, []string{"n"}) {
			t.Errorf("names are %q", got)
		}
		time.Sleep(time.Hour)
		if got := names(t, d); len(got) > 0 {
			t.Errorf("names are %q", got)
		}
	})
}

// TestManyDeadOfOneOwner checks that a place with more expired tickets than one
// request drops is not granted meanwhile.
func TestManyDeadOfOneOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(NewStore())
		var told []string
		if err := d.Watch(bg, func(id string, st driver.Status) { told = append(told, id) }); err != nil {
			t.Fatal(err)
		}
		a, b := ticket1("c:1", "n"), ticket1("c:2", "n")
		join(t, d, a, true)
		for i := range driver.MaxDrops + 10 {
			tk := ticket1(fmt.Sprintf("job:%d", i), "n")
			tk.Owner = "job"
			join(t, d, tk, true)
		}
		time.Sleep(20 * time.Second)
		join(t, d, b, true)
		time.Sleep(20 * time.Second)
		want(t, "b", renew(t, d, b), driver.Waiting)
		if len(told) > 0 {
			t.Errorf("told %q", told)
		}
		want(t, "b", renew(t, d, b), driver.Held)
	})
}
