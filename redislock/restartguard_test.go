package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// unguarded joins again while the guard refuses, or while a connection is
// found broken, and returns the time at which the ticket was granted.
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

func TestRestartGuardWithoutData(t *testing.T) {
	t.Parallel()
	for how, restart := range map[string]func(s *servers.RedisServer){
		"empty":         func(s *servers.RedisServer) { s.RestartEmpty(t) },
		"from snapshot": func(s *servers.RedisServer) { s.Restart(t) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := servers.Redis(t, servers.RedisOptions{})
			a, other := enter(t, s, "restart_guard=on"), enter(t, s, "restart_guard=on")
			long := enter(t, s, "restart_guard=1h")
			first := a.short("n", 6*time.Second)
			unguarded(t, a, first)
			s.Do(t, "SAVE")
			held := a.short("held", first.TTL)
			unguarded(t, other, other.short("m", first.TTL))
			unguarded(t, a, held)
			last := time.Now() // the holder's claim may last up to a TTL from here
			a.keeps(held, driver.Held)
			restart(s)

			// A driver without the guard makes the server know the scripts.
			// Drivers with the guard must not rely on that: neither one that
			// knew the server before nor one that is opened now.
			enter(t, s, "").take(a.ticket("other"), driver.Held)
			next := other.short("held", held.TTL)
			if p, err := enter(t, s, "restart_guard=on").Join(a.ctx(), next, true); !errors.Is(err, ErrRestarted) {
				t.Errorf("a new client: %v, %v", p.State, err)
			} else if after, ok := driver.IsNotReady(err); !ok || after <= 0 || after > next.TTL {
				t.Errorf("not ready: %v, for %v of %v", ok, after, next.TTL)
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

// TestRestartGuardWithData checks that a server which kept its data grants at
// once, and that a loss before that restart still counts.
func TestRestartGuardWithData(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{Durable: true})
	a := enter(t, s, "restart_guard=on")
	held := a.short("held", time.Minute)
	short := a.short("short", MinTTL)
	unguarded(t, a, short)
	if _, err := a.Join(a.ctx(), held, false); !errors.Is(err, ErrRestarted) {
		t.Fatalf("a new server may have lost what was held for a minute, and says %v", err)
	}
	enter(t, s, "").take(held, driver.Held)
	// The server knows the time of its start only to the second.
	eventually(t, "the start is surely longer ago than the short TTL", func() bool {
		_, at, _ := strings.Cut(s.Do(t, "GET", wire.GuardKey).(string), " ")
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

// TestRestartGuardExaminesOnce checks that the guard examines each process of
// the server once.
func TestRestartGuardExaminesOnce(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	m := enter(t, s, "restart_guard=on")
	const ttl = 6 * time.Second // long enough that no lease expires before its release on a busy machine
	unguarded(t, m, m.short("first", ttl))
	s.Do(t, "CONFIG", "RESETSTAT")
	const n = 20
	for range n {
		ticket := m.short("n", ttl)
		m.take(ticket, driver.Held)
		m.leaves(ticket, driver.Held)
	}
	if got := s.Calls(t, "evalsha"); got != 2*n {
		t.Errorf("%d scripts for %d locks", got, n)
	}
	if eval, info := s.Calls(t, "eval"), s.Calls(t, "info"); eval > 2 || info != 2 { // the first EVAL of leave; the test's own INFO
		t.Errorf("%d EVAL, %d INFO", eval, info)
	}
	// Forgotten scripts are no restart.
	s.Do(t, "SCRIPT", "FLUSH")
	ticket := m.short("n", ttl)
	m.take(ticket, driver.Held)
	if f := findings(t, m)["restart guard"]; f.Level != driver.OK || !strings.HasPrefix(f.Detail, "on: ") {
		t.Errorf("the check says %+v", f)
	}
}

// TestRestartGuardNeedsRights checks that opening fails for a user without the
// rights.
func TestRestartGuardNeedsRights(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
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

// TestF107_LockWaitsForRestartGuard checks that a Lock with enough time waits
// until the guard of a restarted server grants it, and that a Try reports how
// long the guard will refuse.
//
// Covers: F107 on redis.
func TestF107_LockWaitsForRestartGuard(t *testing.T) {
	t.Parallel()
	s := servers.Redis(t, servers.RedisOptions{})
	const ttl = 8 * time.Second // longer than a silent store is given
	c, err := holdfast.New(openOn(t, s, "restart_guard=8s"), holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Mutex("n").TryLock(t.Context())
	se, ok := errors.AsType[*holdfast.StoreError](err)
	if !ok || !errors.Is(err, ErrRestarted) || se.RetryAfter() < ttl/2 || se.RetryAfter() > ttl {
		t.Errorf("TryLock: %v, to be repeated after %v", err, se.RetryAfter())
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := c.Mutex("n").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
}
