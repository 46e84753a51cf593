package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backends"
)

// unguarded joins again and again while the guard refuses, or a connection is
// found broken, and returns when the ticket was granted.
func unguarded(t *testing.T, m *member, ticket *driver.Ticket) time.Time {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		p, err := m.Join(m.ctx(), ticket, false)
		switch {
		case err == nil && p.State == driver.Held:
			return time.Now()
		case err == nil || driver.ClassOf(err) == driver.Refused:
			t.Fatalf("under the guard: %v, %v", p.State, err)
		case time.Now().After(end):
			t.Fatal("the guard does not end")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestGuardWithoutData(t *testing.T) {
	t.Parallel()
	for how, restart := range map[string]func(s *backends.RedisServer){
		"empty":         func(s *backends.RedisServer) { s.RestartEmpty(t) },
		"from snapshot": func(s *backends.RedisServer) { s.Restart(t) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := backends.Redis(t, backends.RedisOptions{})
			a, other := enter(t, s, "restart_guard=on"), enter(t, s, "restart_guard=on")
			long := enter(t, s, "restart_guard=1h")
			first := a.short("n", 1500*time.Millisecond)
			unguarded(t, a, first)
			s.Do(t, "SAVE")
			held := a.short("held", first.TTL)
			unguarded(t, other, other.short("m", first.TTL))
			unguarded(t, a, held)
			last := time.Now() // the holder may claim up to a TTL from here
			a.keeps(held, driver.Held)
			restart(s)

			// One without the guard makes the server know the scripts, and those
			// with it are not fooled: neither one that knew the server before nor
			// one that comes now.
			enter(t, s, "").take(a.ticket("other"), driver.Held)
			next := other.short("held", held.TTL)
			if p, err := enter(t, s, "restart_guard=on").Join(a.ctx(), next, true); !errors.Is(err, ErrRestarted) {
				t.Errorf("a new client: %v, %v", p.State, err)
			}
			eventually(t, "the loss is told", func() bool {
				ps, err := a.Renew(a.ctx(), []driver.Ref{{Ticket: held, State: driver.Held}})
				return err == nil && ps[0].Err == nil && ps[0].State == driver.Gone
			})
			if at := unguarded(t, other, next); at.Sub(last) < held.TTL {
				t.Errorf("granted %v after a hold of %v was renewed", at.Sub(last), held.TTL)
			}
			if p, err := long.Join(a.ctx(), long.short("long", MinTTL), false); !errors.Is(err, ErrRestarted) {
				t.Errorf("with a longest TTL of an hour: %v, %v", p.State, err)
			}
		})
	}
}

// A server that kept its data grants at once, and the loss before that restart
// counts on.
func TestGuardWithData(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{Durable: true})
	a := enter(t, s, "restart_guard=on")
	held := a.short("held", time.Minute)
	short := a.short("short", MinTTL)
	unguarded(t, a, short)
	if _, err := a.Join(a.ctx(), held, false); !errors.Is(err, ErrRestarted) {
		t.Fatalf("a new server may have lost what was held for a minute, and says %v", err)
	}
	enter(t, s, "").take(held, driver.Held)
	// The server knows its start to the second only.
	eventually(t, "the start is surely longer ago than the short TTL", func() bool {
		_, at, _ := strings.Cut(s.Do(t, "GET", guardKey).(string), " ")
		start, err := strconv.ParseInt(at, 10, 64)
		return err == nil && time.Since(time.Unix(start+1, 0)) > 2*MinTTL
	})
	s.Restart(t)
	for _, m := range []*member{a, enter(t, s, "restart_guard=on")} {
		eventually(t, "the server is reached", func() bool {
			_, err := m.Join(m.ctx(), m.short("n"+m.channel, MinTTL), false)
			if errors.Is(err, ErrRestarted) {
				t.Fatalf("data that were kept are taken for lost: %v", err)
			}
			return err == nil
		})
		if _, err := m.Join(m.ctx(), m.short("minute", time.Minute), false); !errors.Is(err, ErrRestarted) {
			t.Errorf("the loss before the restart is forgotten: %v", err)
		}
	}
	eventually(t, "the hold is confirmed", func() bool {
		ps, err := a.Renew(a.ctx(), []driver.Ref{{Ticket: held, State: driver.Held}})
		return err == nil && ps[0].State == driver.Held
	})
}

// The guard asks when it meets a process of the server, and not again.
func TestGuardCosts(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{})
	m := enter(t, s, "restart_guard=on")
	unguarded(t, m, m.short("first", MinTTL))
	s.Do(t, "CONFIG", "RESETSTAT")
	const n = 20
	for range n {
		ticket := m.short("n", MinTTL)
		m.take(ticket, driver.Held)
		m.leaves(ticket, driver.Held)
	}
	if got := s.Calls(t, "evalsha"); got != 2*n {
		t.Errorf("%d scripts for %d locks", got, n)
	}
	if eval, info := s.Calls(t, "eval"), s.Calls(t, "info"); eval > 2 || info != 2 { // the first EVAL of leave; our own INFO
		t.Errorf("%d EVAL, %d INFO", eval, info)
	}
	// Scripts that were forgotten are no restart.
	s.Do(t, "SCRIPT", "FLUSH")
	ticket := m.short("n", MinTTL)
	m.take(ticket, driver.Held)
	if f := findings(t, m)["restart guard"]; f.Level != driver.OK || !strings.HasPrefix(f.Detail, "on: ") {
		t.Errorf("the check says %+v", f)
	}
}

// A user without the rights is told on opening.
func TestGuardRights(t *testing.T) {
	t.Parallel()
	s := backends.Redis(t, backends.RedisOptions{})
	s.Do(t, "ACL", "SETUSER", "default", "-info")
	if _, err := Open(t.Context(), s.URL("restart_guard=on")); driver.ClassOf(err) != driver.Refused {
		t.Errorf("without INFO: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, s.URL("restart_guard=on")); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
