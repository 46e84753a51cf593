package redislock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestSilentClientIsPassedOver checks that a ticket whose client does not
// listen for pushes is passed over, and keeps its place in case the client
// comes back.
func TestSilentClientIsPassedOver(t *testing.T) {
	s := servers.SharedRedis(t)
	a, away, b := enter(t, s, ""), enter(t, s, ""), enter(t, s, "")
	name := "passed-over/" + a.uuid
	held, first, second := a.ticket(name), away.ticket(name), b.ticket(name)
	a.take(held, driver.Held)
	away.take(first, driver.Waiting)
	b.take(second, driver.Waiting)
	away.Close()
	eventually(t, "the server has seen the client go", func() bool {
		return s.Do(t, "PUBSUB", "NUMSUB", away.channel).([]any)[1] == int64(0)
	})
	a.leaves(held, driver.Held)
	b.granted(second)
	line, err := a.Inspect(a.ctx(), name)
	if err != nil || len(line.Tickets) != 2 || line.Tickets[1].ID != first.ID || line.Tickets[1].State != driver.Waiting {
		t.Fatalf("Inspect: %+v, %v", line, err)
	}
	// The ticket is renewed by way of another client, and has its turn.
	b.leaves(second, driver.Held)
	a.keeps(first, driver.Held)
}

// TestOrphansAreDropped deletes the records of a queue and leaves its list:
// the place without a record is dropped, and the next waiter is granted.
func TestOrphansAreDropped(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	name := "orphans/" + m.uuid
	k := keysOf(name)
	held, waits := m.ticket(name), m.ticket(name)
	m.take(held, driver.Held)
	m.take(waits, driver.Waiting)
	s.Do(t, "DEL", k[wire.KeyTickets], k[wire.KeyDue])
	m.keeps(waits, driver.Gone)
	next := m.ticket(name)
	m.take(next, driver.Waiting)
	m.leaves(held, driver.Held)
	m.granted(next)
	m.leaves(next, driver.Held)
	if n := s.Do(t, "EXISTS", k[wire.KeyHolders], k[wire.KeyWaiters], k[wire.KeyDue], k[wire.KeyTickets]); n != int64(0) {
		t.Errorf("%v keys are left", n)
	}
}

// TestRequestTakesBoundedSteps checks that one request takes a bounded number
// of steps, and that the next requests go on.
//
// Covers: F48.
func TestRequestTakesBoundedSteps(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	for _, limit := range []int64{1, 3} {
		name := fmt.Sprint("many/", limit, m.uuid)
		ticket := func(ttl time.Duration) *driver.Ticket {
			k := m.short(name, ttl)
			k.Limit, k.Units = limit, limit
			return k
		}
		held, live := ticket(2*time.Minute), ticket(2*time.Minute)
		m.take(held, driver.Held)
		const dead, most = 400, driver.MinDrops
		const ttl = 6 * time.Second // longer than all joins take, of which each drops dead ones
		for range dead {
			m.take(ticket(ttl), driver.Waiting)
		}
		m.take(live, driver.Waiting)
		time.Sleep(driver.Keep(ttl) + 5*time.Millisecond)
		m.leaves(held, driver.Held)
		if n := s.Do(t, "LLEN", keysOf(name)[wire.KeyWaiters]); n != int64(dead-most+1) {
			t.Errorf("limit %d: after one request %v wait, want %d", limit, n, dead-most+1)
		}
		m.keeps(live, driver.Held)
		m.leaves(live, driver.Held)
	}
}

// TestErrorOfOneTicketSparesOthers checks that an error of one ticket does not
// affect the others.
func TestErrorOfOneTicketSparesOthers(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	var refs []driver.Ref
	var tickets []*driver.Ticket
	for i := range 6 {
		name := fmt.Sprint("apart/", i, m.uuid)
		k := m.ticket(name)
		state := driver.Held
		if i%2 == 1 {
			m.take(m.ticket(name), driver.Held)
			state = driver.Waiting
		}
		m.take(k, state)
		refs = append(refs, driver.Ref{Ticket: k, State: state})
		tickets = append(tickets, k)
	}
	for i := 2; i < 4; i++ {
		s.Do(t, "SET", keysOf(tickets[i].Name)[wire.KeyHolders], "a string")
	}
	ps, err := m.Renew(m.ctx(), refs)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range ps {
		switch {
		case i == 2 || i == 3:
			if p.Err == nil || driver.ClassOf(p.Err) != driver.Refused {
				t.Errorf("ticket %d: %v, %v", i, p.State, p.Err)
			}
		case p.Err != nil || p.State != refs[i].State:
			t.Errorf("ticket %d: %v, %v", i, p.State, p.Err)
		}
	}
}

// TestOverdueWaiterIsGone checks that a waiter which was renewed too late is
// gone for its own client at once, though no request has dropped it and its
// turn has not come.
func TestOverdueWaiterIsGone(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	for _, limit := range []int64{1, 3} {
		name := fmt.Sprint("overdue/", limit, m.uuid)
		held := m.ticket(name)
		held.Limit, held.Units = limit, limit
		m.take(held, driver.Held)
		for _, last := range []func(*driver.Ticket){
			func(k *driver.Ticket) { m.keeps(k, driver.Gone) },
			func(k *driver.Ticket) { m.leaves(k, driver.Gone) },
			func(k *driver.Ticket) {
				if err := m.Break(m.ctx(), name, k.ID); !errors.Is(err, driver.ErrNoTicket) {
					t.Errorf("Break: %v", err)
				}
			},
		} {
			k := m.short(name, MinTTL)
			k.Limit = limit
			m.take(k, driver.Waiting)
			time.Sleep(driver.Keep(MinTTL) + 5*time.Millisecond)
			last(k)
			line, err := m.Inspect(m.ctx(), name)
			if err != nil || len(line.Tickets) != 1 || line.Tickets[0].ID != held.ID {
				t.Errorf("limit %d: Inspect: %+v, %v", limit, line.Tickets, err)
			}
			if n := s.Do(t, "LLEN", keysOf(name)[wire.KeyWaiters]); n != int64(0) {
				t.Errorf("limit %d: %v places are left in the queue", limit, n)
			}
		}
		// A ticket that leaves in good time leaves nothing either.
		one, two := m.ticket(name), m.ticket(name)
		one.Limit, two.Limit = limit, limit
		m.take(one, driver.Waiting)
		m.take(two, driver.Waiting)
		m.leaves(one, driver.Waiting)
		if p := m.keeps(two, driver.Waiting); p.Ahead != 1 {
			t.Errorf("limit %d: %d are ahead, want 1", limit, p.Ahead)
		}
		if n := s.Do(t, "LLEN", keysOf(name)[wire.KeyWaiters]); n != int64(1) {
			t.Errorf("limit %d: %v places in the queue, want 1", limit, n)
		}
	}
}

// TestF48_ExpiredWaiterIsNotGranted checks that an expired ticket is not
// granted when its turn comes, even if its client still listens; the next
// living ticket is granted, and its client notified.
func TestF48_ExpiredWaiterIsNotGranted(t *testing.T) {
	t.Parallel()
	s := servers.SharedRedis(t)
	a, b := enter(t, s, ""), enter(t, s, "")
	for _, kind := range []struct {
		name         string
		limit, units int64
		owner        string
	}{{"mutex", 1, 1, ""}, {"units", 3, 2, ""}, {"owner", 1, 1, "dead"}} {
		name := "dead/" + kind.name + a.uuid
		ticket := func(m *member, ttl time.Duration) *driver.Ticket {
			k := m.short(name, ttl)
			k.Limit, k.Units = kind.limit, kind.units
			return k
		}
		held := ticket(a, 30*time.Second)
		a.take(held, driver.Held)
		var dead []*driver.Ticket
		for range 3 {
			k := ticket(b, MinTTL)
			k.Owner = kind.owner
			b.take(k, driver.Waiting)
			dead = append(dead, k)
		}
		time.Sleep(driver.Keep(MinTTL) + 5*time.Millisecond)
		// A ticket that joins behind them gets past them.
		live := ticket(b, 30*time.Second)
		if p := b.take(live, driver.Waiting); p.Ahead != 1 || p.Recheck < 20*time.Second {
			t.Errorf("%s: behind the dead, %d are ahead, to be looked at in %v", kind.name, p.Ahead, p.Recheck)
		}
		a.leaves(held, driver.Held)
		b.granted(live)
		if ttl := s.Do(t, "PTTL", keysOf(name)[wire.KeyHolders]).(int64); ttl <= 0 || ttl > 31_200 {
			t.Errorf("%s: granted for %d ms with a TTL of %v", kind.name, ttl, live.TTL)
		}
		for _, k := range dead {
			if ps := b.heard(k.ID); len(ps) > 0 {
				t.Errorf("%s: a ticket whose time was over was told %v", kind.name, ps)
			}
			b.keeps(k, driver.Gone)
		}
		// The same if no request comes before the turn does.
		held = live
		k := ticket(b, MinTTL)
		b.take(k, driver.Waiting)
		live = ticket(a, 30*time.Second)
		a.take(live, driver.Waiting)
		time.Sleep(driver.Keep(MinTTL) + 5*time.Millisecond)
		b.leaves(held, driver.Held)
		a.granted(live)
		if ps := b.heard(k.ID); len(ps) > 0 {
			t.Errorf("%s: a ticket whose time was over was told %v", kind.name, ps)
		}
		a.leaves(live, driver.Held)
	}
}
