package redislock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// TestF32_ForgottenScriptsAreSentAgain makes the server forget its scripts
// before every request.
func TestF32_ForgottenScriptsAreSentAgain(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	a, b := enter(t, s, ""), enter(t, s, "")
	forget := func() { s.Do(t, "SCRIPT", "FLUSH") }
	one, two, three := a.ticket("n"), b.ticket("n"), b.ticket("n")
	other := a.ticket("other")
	for _, step := range []func(){
		func() { a.take(one, driver.Held) },
		func() { b.take(two, driver.Waiting) },
		func() { b.take(three, driver.Waiting) },
		func() { a.take(other, driver.Held) },
		func() { a.keeps(one, driver.Held) },
		func() { b.keeps(two, driver.Waiting) },
		func() {
			if line, err := a.Inspect(a.ctx(), "n"); err != nil || len(line.Tickets) != 3 {
				t.Errorf("Inspect: %+v, %v", line, err)
			}
		},
		func() {
			n := 0
			for _, err := range a.Names(a.ctx(), "") {
				if n++; err != nil {
					t.Error(err)
				}
			}
			if n != 2 {
				t.Errorf("%d names, want 2", n)
			}
		},
		func() { a.leaves(one, driver.Held) },
		func() {
			if err := a.Break(a.ctx(), "n", two.ID); err != nil {
				t.Error(err)
			}
		},
		func() { b.granted(three) },
		func() { // a pipeline
			ps, err := a.Leave(a.ctx(), []driver.Ref{ref(other), ref(three)})
			if err != nil || ps[0].Err != nil || ps[1].Err != nil || ps[0].State != driver.Held || ps[1].State != driver.Held {
				t.Errorf("Leave: %v, %v", ps, err)
			}
		},
	} {
		forget()
		step()
	}
}

// TestF37_FlushAll deletes all data: no hold comes back, and tokens keep
// growing.
//
// Covers: F20.
func TestF37_FlushAll(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "")
	held, waits := m.ticket("n"), m.ticket("n")
	last := m.take(held, driver.Held).Token
	m.take(waits, driver.Waiting)
	s.Do(t, "FLUSHALL")
	m.keeps(held, driver.Gone)
	m.keeps(waits, driver.Gone)
	m.leaves(held, driver.Gone)
	if n := s.Do(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%v keys were made anew", n)
	}
	if p := m.take(m.ticket("n"), driver.Held); p.Token <= last {
		t.Errorf("token %d after %d", p.Token, last)
	}
}

// TestF26_RestartWithAndWithoutData crashes a server. If the server persists
// every write, nothing is lost; if it lost its data, holders learn of the loss,
// and tokens keep growing.
func TestF26_RestartWithAndWithoutData(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{Durable: true})
	m := enter(t, s, "")
	held, waits, many := m.ticket("n"), m.ticket("n"), m.ticket("many")
	many.Limit = 3
	token := m.take(held, driver.Held).Token
	m.take(waits, driver.Waiting)
	m.take(many, driver.Held)
	// settle renews until the server answers.
	settle := func(k *driver.Ticket) (p driver.Status) {
		t.Helper()
		eventually(t, "the server answers", func() bool {
			ps, err := m.Renew(m.ctx(), []driver.Ref{ref(k)})
			if err != nil {
				t.Fatal(err)
			}
			if cl := driver.ClassOf(ps[0].Err); ps[0].Err != nil && cl != driver.Unknown && cl != driver.Unavailable {
				t.Fatalf("class %v: %v", cl, ps[0].Err)
			}
			p = ps[0]
			return p.Err == nil
		})
		return p
	}
	gaps := len(m.heard(""))
	s.Restart(t)
	if p := settle(held); p.State != driver.Held || p.Token != token {
		t.Errorf("after a crash the hold is %v with token %d, was %d", p.State, p.Token, token)
	}
	m.keeps(waits, driver.Waiting)
	m.keeps(many, driver.Held)
	eventually(t, "the gap in the pushes is told", func() bool { return len(m.heard("")) > gaps })
	m.leaves(held, driver.Held)
	last := m.granted(waits).Token

	s.RestartEmpty(t)
	if p := settle(waits); p.State != driver.Gone {
		t.Errorf("after a crash without data the hold is %v", p.State)
	}
	m.keeps(many, driver.Gone)
	if p := m.take(m.ticket("n"), driver.Held); p.Token <= last {
		t.Errorf("token %d after %d", p.Token, last)
	}
}

// TestF34_OutOfMemory checks that a server which is out of memory lets locks
// be renewed, released, handed on, broken and inspected. It refuses only new
// ones, and only while the memory is short.
func TestF34_OutOfMemory(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	a, b := enter(t, s, ""), enter(t, s, "")
	kinds := map[string]func(m *member, k *driver.Ticket){
		"mutex": func(*member, *driver.Ticket) {},
		"units": func(_ *member, k *driver.Ticket) { k.Limit, k.Units = 5, 5 },
		"owner": func(m *member, k *driver.Ticket) { k.Owner = "owner " + m.uuid },
	}
	make := func(m *member, kind string) *driver.Ticket {
		k := m.ticket(kind)
		kinds[kind](m, k)
		return k
	}
	held, waits, last := map[string]*driver.Ticket{}, map[string]*driver.Ticket{}, map[string]*driver.Ticket{}
	for kind := range kinds {
		held[kind], waits[kind], last[kind] = make(a, kind), make(b, kind), make(a, kind)
		last[kind].Owner = ""
		a.take(held[kind], driver.Held)
		b.take(waits[kind], driver.Waiting)
		a.take(last[kind], driver.Waiting)
	}
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	for kind := range kinds {
		for _, name := range []string{kind, "new"} {
			k := make(b, kind)
			k.Name = name
			if name == kind {
				k.Owner = ""
			}
			if _, err := b.Join(b.ctx(), k, true); driver.ClassOf(err) != driver.Unavailable || !strings.Contains(fmt.Sprint(err), "OOM") {
				t.Errorf("%s: Join: %v", kind, err)
			}
		}
		a.keeps(held[kind], driver.Held)
		b.keeps(waits[kind], driver.Waiting)
		a.leaves(held[kind], driver.Held)
		b.granted(waits[kind])
		b.keeps(waits[kind], driver.Held)
		if line, err := a.Inspect(a.ctx(), kind); err != nil || len(line.Tickets) != 2 || line.Tickets[0].ID != waits[kind].ID {
			t.Errorf("%s: Inspect: %+v, %v", kind, line, err)
		}
		if err := a.Break(a.ctx(), kind, waits[kind].ID); err != nil {
			t.Errorf("%s: Break: %v", kind, err)
		}
		a.granted(last[kind])
		unsure := driver.Ref{Ticket: last[kind], State: driver.Held, JoinPending: true}
		if ps, err := a.Leave(a.ctx(), []driver.Ref{unsure}); err != nil || ps[0].Err != nil || ps[0].State != driver.Held {
			t.Errorf("%s: Leave: %v, %v", kind, ps, err)
		}
	}
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	for kind := range kinds {
		line, err := a.Inspect(a.ctx(), kind)
		if err != nil || len(line.Tickets) != 0 {
			t.Errorf("%s: what was refused left %+v, %v", kind, line.Tickets, err)
		}
		a.take(make(a, kind), driver.Held)
	}
}

// TestF36_ClientKill kills connections of each kind: waiters learn of their
// grants all the same.
func TestF36_ClientKill(t *testing.T) {
	s := servers.Redis(t, servers.RedisOptions{})
	a, b := enter(t, s, ""), enter(t, s, "")
	for _, kind := range []string{"pubsub", "normal", "pubsub", "normal"} {
		held, waits := a.ticket("n"), b.ticket("n")
		eventually(t, "a lock is taken after a kill", func() bool {
			p, err := a.Join(a.ctx(), held, true)
			if err != nil && driver.ClassOf(err) != driver.Unknown {
				t.Fatalf("Join: %v", err)
			}
			return p.State == driver.Held
		})
		eventually(t, "a lock is waited for after a kill", func() bool {
			p, err := b.Join(b.ctx(), waits, true)
			return err == nil && p.State == driver.Waiting
		})
		gapsA, gapsB := len(a.heard("")), len(b.heard(""))
		s.Do(t, "CLIENT", "KILL", "TYPE", kind)
		if kind == "pubsub" {
			eventually(t, "both hear of the gap", func() bool {
				return len(a.heard("")) > gapsA && len(b.heard("")) > gapsB
			})
		}
		// This request may be the one that finds its connection killed; then
		// it was not carried out.
		released := func(m *member, k *driver.Ticket) {
			eventually(t, "the lock is released", func() bool {
				ps, err := m.Leave(m.ctx(), []driver.Ref{ref(k)})
				if err != nil || ps[0].Err != nil {
					return false
				}
				if ps[0].State != driver.Held {
					t.Errorf("released by nobody: %v", ps[0].State)
				}
				return true
			})
		}
		released(a, held)
		b.granted(waits)
		released(b, waits)
	}
}

// TestF37_DeletedHolds deletes the keys of holders, as an operator might. The
// holders learn of the loss, and their Leaves take nothing from the next
// holders.
func TestF37_DeletedHolds(t *testing.T) {
	s := servers.SharedRedis(t)
	m := enter(t, s, "")
	name := "deleted/" + m.uuid
	k := keysOf(name)
	old, next := m.ticket(name), m.ticket(name)
	old.Limit, next.Limit = 3, 3
	m.take(old, driver.Held)
	s.Do(t, "DEL", k[wire.KeyHolders])
	m.take(next, driver.Held)
	m.keeps(old, driver.Gone)
	m.leaves(old, driver.Gone)
	m.keeps(next, driver.Held)
	full := m.ticket(name)
	full.Limit, full.Units = 3, 3
	m.take(full, driver.Waiting)
	m.leaves(next, driver.Held)
	m.granted(full)
}

func TestF7_SilentServer(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	a := enter(t, s, "")
	held := a.ticket("n")
	a.take(held, driver.Held)
	s.Pause(t)
	const patience = 200 * time.Millisecond
	for name, call := range map[string]func(context.Context) error{
		"Join": func(ctx context.Context) error { _, err := a.Join(ctx, a.ticket("other"), true); return err },
		"Leave": func(ctx context.Context) error {
			ps, err := a.Leave(ctx, []driver.Ref{ref(a.ticket("other"))})
			if err == nil {
				err = ps[0].Err
			}
			return err
		},
		"Renew": func(ctx context.Context) error {
			ps, err := a.Renew(ctx, []driver.Ref{ref(held)})
			if err == nil {
				err = ps[0].Err
			}
			return err
		},
		"Inspect":  func(ctx context.Context) error { _, err := a.Inspect(ctx, "n"); return err },
		"Break":    func(ctx context.Context) error { return a.Break(ctx, "n", "x:1") },
		"Identity": func(ctx context.Context) error { _, err := a.Identity(ctx); return err },
	} {
		for _, how := range []string{"deadline", "cancel"} {
			var took time.Duration
			// A call may end early with the connection that the call before it has
			// given up as silent: the driver's own, and then the client library's.
			for range 3 {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				if how == "cancel" {
					ctx, cancel = context.WithCancel(context.Background())
					time.AfterFunc(patience, cancel)
				}
				begun := time.Now()
				err := call(ctx)
				took = time.Since(begun)
				cancel()
				if driver.ClassOf(err) != driver.Unknown || err == nil {
					t.Errorf("%s, %s: %v", name, how, err)
				}
				if took >= patience {
					break
				}
			}
			if took < patience || took > 50*patience {
				t.Errorf("%s, %s: took %v with a context of %v", name, how, took, patience)
			}
		}
	}
	s.Resume(t)
	eventually(t, "the holder is confirmed", func() bool {
		ps, _ := a.Renew(a.ctx(), []driver.Ref{ref(held)})
		return ps[0].State == driver.Held
	})
	// By now the requests that were given up have had their effect. A renewal
	// finds the places that they took, and a Leave removes these.
	eventually(t, "all is settled", func() bool {
		line, err := a.Inspect(a.ctx(), "other")
		if err != nil {
			return false
		}
		for _, e := range line.Tickets {
			a.Break(a.ctx(), "other", e.ID)
		}
		return len(line.Tickets) == 0
	})
}

func serverTime(t *testing.T, s *servers.RedisServer) time.Time {
	t.Helper()
	list := texts(s.Do(t, "TIME"))
	sec, err := strconv.ParseInt(list[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(sec, 0)
}
