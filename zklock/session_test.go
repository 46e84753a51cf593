package zklock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// TestF87_ExpiredSessionLosesHolds checks the expiry of a session in which one ticket holds, one
// waits and one leaves. The tickets are gone and their clients are notified;
// new tickets work at once.
//
// Covers: F83.
func TestF87_ExpiredSessionLosesHolds(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	heldName, waitsName := unique("expired/held"), unique("expired/waits")
	look := raw(t, s.Addrs()...)
	other := open(t, s.URL("", ""))
	defer other.Close()
	d, w := openWire(t, s.Addrs(), s.Tick)
	ps := watch(t, d)
	held, waits := ticket2(heldName, 1), ticket2(waitsName, 2)
	first := ticket2(waitsName, 1)
	join(t, other, first, driver.Held)
	before := join(t, d, held, driver.Held)
	join(t, d, waits, driver.Waiting)
	time.Sleep(500 * time.Millisecond) // both become older than watchAfter
	w.expire(t, s.Addrs()[0])
	for _, tk := range []*driver.Ticket{held, waits} {
		until(t, tk.Meta+" is told", func() bool { return ps.state(tk.ID) == driver.Gone })
	}
	if p := leaveUntil(t, d, held); p.State != driver.Gone {
		t.Errorf("a ticket of an expired session leaves as %v", p.State)
	}
	again := ticket2(heldName, 3)
	if p := joinUntil(t, d, again); p.State != driver.Held || p.Token <= before.Token {
		t.Errorf("afterwards: %v with token %d after %d", p.State, p.Token, before.Token)
	}
	if p := joinUntil(t, d, ticket2(waitsName, 4)); p.State != driver.Waiting {
		t.Errorf("afterwards the waiting one is %v", p.State)
	}
	if n := len(children(t, look, lineOf(waitsName))); n != 2 {
		t.Errorf("the line has %d nodes, want 2", n)
	}
	leave(t, other, first, driver.Held)
}

// TestF83_ExpiredDuringCreate checks a Join whose create had no answer, and
// whose session expires before the Join is repeated. The node that the
// repetition finds belongs to the old session and does not count.
func TestF83_ExpiredDuringCreate(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("dying")
	look := raw(t, s.Addrs()...)
	d, w := openWire(t, s.Addrs(), s.Tick)
	warm := ticket2(name, 1)
	join(t, d, warm, driver.Held)
	leave(t, d, warm, driver.Held)
	hit := w.once(opMulti, 1, cutAfter)
	tk := ticket2(name, 2)
	if _, err := d.Join(t.Context(), tk, true); err == nil || !hit() {
		t.Fatalf("Join: %v", err)
	}
	w.expire(t, s.Addrs()[0])
	p := joinUntil(t, d, tk)
	if p.State != driver.Held {
		t.Fatalf("joined as %v", p.State)
	}
	time.Sleep(200 * time.Millisecond)
	names := children(t, look, lineOf(name))
	if len(names) != 1 {
		t.Fatalf("the line has %q", names)
	}
	if got, err := d.Renew(t.Context(), []driver.Ref{{Ticket: tk}}); err != nil || got[0].State != driver.Held {
		t.Errorf("a moment later it is %v, %v", got, err)
	}
}

// TestF83_DyingSession checks a create that was lost on its way, while a node
// with the ticket's UUID belongs to another session. That node is not taken for
// the ticket's own.
func TestF83_DyingSession(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("another-session")
	look := raw(t, s.Addrs()...)
	d, w := openWire(t, s.Addrs(), s.Tick)
	warm := ticket2(name, 1)
	join(t, d, warm, driver.Held)
	uuid := children(t, look, lineOf(name))[0][3:39]
	leave(t, d, warm, driver.Held)
	hit := w.once(opMulti, 1, cutBefore)
	tk := ticket2(name, 1)
	tk.ID = strings.TrimSuffix(warm.ID, ":1") + ":3"
	if _, err := d.Join(t.Context(), tk, true); err == nil || !hit() {
		t.Fatalf("Join: %v", err)
	}
	// The UUIDs of numbers 1 and 3 differ in one bit of the last digit.
	last := "0123456789abcdef"[strings.Index("0123456789abcdef", uuid[35:])^2]
	other, err := look.Create(lineOf(name)+"/_c_"+uuid[:35]+string(last)+"-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	if p := joinUntil(t, d, tk); p.State != driver.Held {
		t.Fatalf("joined as %v", p.State)
	}
	left := children(t, look, lineOf(name))
	if len(left) != 1 || strings.HasSuffix(other, left[0]) {
		t.Errorf("the line has %q, among them the other session's", left)
	}
	leave(t, d, tk, driver.Held)
}

// TestGap checks that a driver that had to connect again reports a gap, so that
// the core renews all waiting tickets.
func TestGap(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	d, w := openWire(t, s.Addrs(), s.Tick)
	ps := watch(t, d)
	tk := ticket2(unique("gap"), 1)
	join(t, d, tk, driver.Held)
	w.breakAll()
	until(t, "the gap is told", func() bool { return ps.state("") == gap })
	leaveUntil(t, d, tk)
}

// TestOwnerVanishes checks a ticket of an owner that joins the owner's place
// while the place's only ticket ends. The place is not kept: the next ticket in
// the queue holds, alone.
func TestOwnerVanishes(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("owner")
	look := raw(t, s.Addrs()...)
	a, c := open(t, s.URL("", "")), open(t, s.URL("", ""))
	defer a.Close()
	defer c.Close()
	b, w := openWire(t, s.Addrs(), 2*s.Tick)
	warm := ticket2(name+"-warm", 9)
	join(t, b, warm, driver.Held)
	leave(t, b, warm, driver.Held)
	first, next, second := ticket2(name, 1), ticket2(name, 2), ticket2(name, 3)
	first.Owner, second.Owner = "job", "job"
	join(t, a, first, driver.Held)
	place := lineOf(name) + "/" + children(t, look, lineOf(name))[0]
	join(t, c, next, driver.Waiting)
	once := true
	w.on(func(op int32) cut {
		if op == opMulti && once {
			once = false
			if err := look.Delete(place, -1); err != nil {
				t.Error(err)
			}
		}
		return pass
	})
	if p := joinUntil(t, b, second); p.State != driver.Waiting {
		t.Errorf("the owner's second ticket is %v", p.State)
	}
	until(t, "the next one holds", func() bool {
		ps, err := c.Renew(t.Context(), []driver.Ref{{Ticket: next}})
		return err == nil && ps[0].State == driver.Held
	})
	leave(t, c, next, driver.Held)
	leaveUntil(t, b, second)
}
