package zklock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
)

// lineOf returns the path at which the driver of these tests keeps a queue.
func lineOf(name string) string { return "/holdfast/" + strings.ReplaceAll(name, "/", "%2F") }

// joinUntil repeats Join with the same ticket, as the core does, until it is
// answered.
func joinUntil(t *testing.T, d driver.Driver, tk *driver.Ticket) driver.Status {
	t.Helper()
	var p driver.Status
	until(t, "Join is answered", func() bool {
		var err error
		p, err = d.Join(t.Context(), tk, true)
		if driver.ClassOf(err) == driver.Refused && err != nil {
			t.Fatal(err)
		}
		return err == nil
	})
	return p
}

func leaveUntil(t *testing.T, d driver.Driver, tk *driver.Ticket) driver.Status {
	t.Helper()
	var p driver.Status
	until(t, "Leave is answered", func() bool {
		ps, err := d.Leave(t.Context(), []driver.Ref{{Ticket: tk, JoinPending: true}})
		if err != nil || ps[0].Err != nil {
			return false
		}
		p = ps[0]
		return true
	})
	return p
}

// TestF82_F88_CutRequests breaks the connection at each request of an
// acquisition, once before the request is sent and once when it has been
// carried out. It checks that the same ticket finds its place, that no other
// ticket holds beside it, and that nothing stays behind.
//
// Covers: F1, F2.
func TestF82_F88_CutRequests(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	look := raw(t, s.Addrs()...)
	for _, do := range []cut{cutBefore, cutAfter} {
		for _, step := range []struct {
			what string
			op   int32
			n    int
		}{
			{"own-node", opCreate, 1}, {"create", opMulti, 1}, {"list", opChildren, 1}, {"watch", opGet, 2}, {"delete", opDelete, 1},
		} {
			t.Run(fmt.Sprintf("%s/%d", step.what, do), func(t *testing.T) {
				t.Parallel()
				name := unique(fmt.Sprintf("cut/%s/%d", step.what, do))
				other := open(t, s.URL("", ""))
				defer other.Close()
				d, w := openWire(t, s.Addrs(), s.Tick)
				ps := watch(t, d)
				first, tk := ticket2(name, 1), ticket2(name, 2)
				join(t, other, first, driver.Held)
				hit := w.once(step.op, step.n, do)
				p := joinUntil(t, d, tk)
				if p.State != driver.Waiting {
					t.Fatalf("joined as %v beside a holder", p.State)
				}
				if n := len(children(t, look, lineOf(name))); n != 2 {
					t.Errorf("the line has %d nodes, want 2", n)
				}
				leave(t, other, first, driver.Held)
				until(t, "it is its turn", func() bool {
					if ps.state(tk.ID) == driver.Held {
						return true
					}
					got, err := d.Renew(t.Context(), []driver.Ref{{Ticket: tk}})
					return err == nil && got[0].State == driver.Held
				})
				leaveUntil(t, d, tk)
				if !hit() {
					t.Error("the fault did not happen")
				}
				until(t, "the line is empty", func() bool { return len(children(t, look, lineOf(name))) == 0 })
			})
		}
	}
}

// unique returns a name for one run of a test alone.
func unique(name string) string { return name + "-" + rand.Text()[:8] }

// ticket2 is ticket for parallel tests.
func ticket2(name string, n int) *driver.Ticket {
	return &driver.Ticket{
		ID: fmt.Sprintf("%s:%d", uuidOf(len(name)*1000+n), n), Name: name, Units: 1, Limit: 1,
		TTL: 10 * time.Second, Meta: fmt.Sprintf("ticket %d of %s", n, name),
	}
}

// TestF82_AbandonedCreate checks that a node whose create had no answer, and
// whose caller gave up, goes by itself as soon as there is a connection again.
func TestF82_AbandonedCreate(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("abandoned")
	look := raw(t, s.Addrs()...)
	d, w := openWire(t, s.Addrs(), s.Tick)
	warm := ticket2(name, 1)
	join(t, d, warm, driver.Held)
	leave(t, d, warm, driver.Held)
	hit := w.once(opMulti, 1, cutAfter)
	tk := ticket2(name, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	given := make(chan struct{})
	go func() {
		defer close(given)
		for end := time.Now().Add(time.Minute); !hit() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
		cancel()
	}()
	if p, err := d.Join(ctx, tk, true); err == nil {
		t.Fatalf("Join answers %v", p.State)
	}
	<-given
	if !hit() {
		t.Fatal("the fault did not happen")
	}
	// The driver gets one Leave, which cannot be answered yet, and no other
	// call.
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _ = d.Leave(ctx, []driver.Ref{{Ticket: tk, JoinPending: true}})
	until(t, "the line is empty", func() bool { return len(children(t, look, lineOf(name))) == 0 })
	if p := joinUntil(t, d, tk); p.State != driver.Gone {
		t.Errorf("the ticket that left joins as %v", p.State)
	}
}

// TestF85_OwnNodeGone checks that a waiting ticket whose own node was deleted
// by a stranger does not hold when its turn comes.
//
// Covers: F37.
func TestF85_OwnNodeGone(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("own-gone")
	look := raw(t, s.Addrs()...)
	a, b := open(t, s.URL("", "")), open(t, s.URL("", ""))
	defer a.Close()
	defer b.Close()
	ps := watch(t, b)
	first, tk := ticket2(name, 1), ticket2(name, 2)
	join(t, a, first, driver.Held)
	join(t, b, tk, driver.Waiting)
	time.Sleep(300 * time.Millisecond) // it becomes older than watchAfter
	queue := lineOf(name)
	for _, c := range children(t, look, queue) {
		if data, _, err := look.Get(queue + "/" + c); err == nil && strings.Contains(string(data), tk.ID) {
			if err := look.Delete(queue+"/"+c, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "it is told", func() bool { return ps.state(tk.ID) == driver.Gone })
	leave(t, a, first, driver.Held)
	if p, err := b.Renew(t.Context(), []driver.Ref{{Ticket: tk}}); err != nil || p[0].State != driver.Gone {
		t.Errorf("without a node it is %v, %v", p, err)
	}
}

// TestF84_TwoNodes checks a ticket with two nodes, one of a create that was
// carried out although it seemed to have failed. Both nodes go, and so does the
// stray of an unknown ticket once it is listed.
func TestF84_TwoNodes(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("twice")
	look := raw(t, s.Addrs()...)
	d, w := openWire(t, s.Addrs(), s.Tick)
	tk := ticket2(name, 1)
	join(t, d, tk, driver.Held)
	queue := lineOf(name)
	mine := children(t, look, queue)[0]
	uuid := mine[3:39]
	leave(t, d, tk, driver.Held)
	// A node that d made unknowingly: a stray of its own client.
	stray, err := look.Create(queue+"/_c_"+uuid+"-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	next := ticket2(name, 1)
	next.ID = tk.ID[:len(tk.ID)-1] + "7"
	if p := joinUntil(t, d, next); p.State == driver.Gone {
		t.Fatal("the next ticket is gone")
	}
	until(t, "the stray is deleted", func() bool {
		there, _, err := look.Exists(stray)
		return err == nil && !there
	})
	until(t, "the next one holds", func() bool {
		ps, err := d.Renew(t.Context(), []driver.Ref{{Ticket: next}})
		return err == nil && ps[0].State == driver.Held
	})
	leave(t, d, next, driver.Held)
	_ = w
}

// TestF86_ClientCutOffReportsLoss cuts a holder off for longer than its session. It checks
// that the holder, without any message, knows that its claim has ended before
// another ticket holds, and that it works again when the servers are back.
//
// Covers: F14.
func TestF86_ClientCutOffReportsLoss(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("partition")
	d, w := openWire(t, s.Addrs(), s.Tick)
	a, err := holdfast.New(d, holdfast.WithTTL(4*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := holdfast.New(open(t, s.URL("", "")), holdfast.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	held, err := a.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := make(chan time.Time, 1)
	go func() {
		<-held.Context().Done()
		lost <- time.Now()
	}()
	w.setDark(true)
	next, err := b.Mutex(name).Lock(t.Context())
	granted := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	if held.Err() == nil {
		t.Error("two hold")
	}
	// Which of two goroutines goes on first is up to the machine.
	if at := <-lost; at.Sub(granted) > 10*time.Second {
		t.Errorf("the loss was told %v after the next grant", at.Sub(granted))
	}
	if next.Token() <= held.Token() {
		t.Errorf("token %d after %d", next.Token(), held.Token())
	}
	w.setDark(false)
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
	var again *holdfast.Hold
	until(t, "the client locks again", func() bool {
		again, err = a.Mutex(name).Lock(t.Context())
		return err == nil
	})
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestShortCut checks that a connection that breaks for a moment costs no hold.
func TestShortCut(t *testing.T) {
	t.Parallel()
	s := servers.SharedZooKeeper(t)
	name := unique("short-cut")
	d, w := openWire(t, s.Addrs(), s.Tick)
	const ttl = 9 * time.Second
	c, err := holdfast.New(d, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h, err := c.Mutex(name).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		w.breakAll()
		time.Sleep(300 * time.Millisecond)
	}
	time.Sleep(ttl)
	if err := h.Unlock(); err != nil {
		t.Errorf("after four short breaks: %v", err)
	}
}
