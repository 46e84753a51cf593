package tracker_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tracker"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	none    = driver.State(0)
	waiting = driver.Waiting
	held    = driver.Held
	gone    = driver.Gone
)

var (
	start = time.Now()
	never time.Time
)

// at returns the time after that many seconds.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func status(s driver.State, token uint64, lease int) driver.Status {
	return driver.Status{State: s, Token: token, Lease: time.Duration(lease) * time.Second}
}

// TestEventsMoveATicketForward has a case for each event in each state, and checks
// the ticket after it and the event's answer.
func TestEventsMoveATicketForward(t *testing.T) {
	type ticket = tracker.Ticket
	reply := func(p driver.Status) func(*ticket) bool {
		return func(k *ticket) bool {
			now := k.Reply(p, at(1))
			return now.State == k.State && now.Token == k.Token && now.Lease == p.Lease
		}
	}
	push := func(p driver.Status) func(*ticket) bool { return func(k *ticket) bool { return k.Push(p) } }
	renewed := func(p driver.Status) func(*ticket) bool {
		return func(k *ticket) bool { return k.Renewed(p, at(1)) }
	}
	extend := func(from int) func(*ticket) bool {
		return func(k *ticket) bool { return k.Extend(at(from), 5*time.Second) }
	}
	due := func(now int) func(*ticket) bool { return func(k *ticket) bool { return k.Due(at(now)) } }
	left := func(k *ticket) bool { k.Left(); return true }
	for _, tt := range []struct {
		name   string
		from   ticket
		event  func(*ticket) bool
		to     ticket
		answer bool
	}{
		{"a reply grants", ticket{}, reply(status(held, 7, 5)), ticket{held, 7, at(6), false}, true},
		{"a reply queues", ticket{}, reply(status(waiting, 0, 5)), ticket{waiting, 0, at(6), false}, true},
		{"a reply refuses", ticket{}, reply(status(gone, 0, 0)), ticket{gone, 0, at(1), false}, true},
		{"a grant that came first is kept", ticket{held, 7, never, false}, reply(status(waiting, 0, 5)), ticket{held, 7, at(6), false}, true},
		{"an end that came first is kept", ticket{gone, 0, never, false}, reply(status(held, 7, 5)), ticket{gone, 0, at(6), false}, true},
		{"the end after a grant counts", ticket{held, 7, never, false}, reply(status(gone, 0, 0)), ticket{gone, 0, at(1), false}, true},

		{"a push grants before the reply", ticket{}, push(status(held, 7, 0)), ticket{held, 7, never, false}, true},
		{"a push grants", ticket{waiting, 0, at(5), false}, push(status(held, 7, 0)), ticket{held, 7, at(5), false}, true},
		{"a second grant is no news", ticket{held, 7, at(5), false}, push(status(held, 8, 0)), ticket{held, 7, at(5), false}, false},
		{"a push ends", ticket{held, 7, at(5), false}, push(status(gone, 0, 0)), ticket{gone, 7, at(5), false}, true},
		{"the dead are granted nothing", ticket{gone, 7, at(5), false}, push(status(held, 8, 0)), ticket{gone, 7, at(5), false}, false},

		{"a renewal extends", ticket{held, 7, at(5), false}, renewed(status(held, 0, 9)), ticket{held, 7, at(10), false}, true},
		{"a renewal grants", ticket{waiting, 0, at(5), false}, renewed(status(held, 7, 9)), ticket{held, 7, at(10), false}, true},
		{"a renewal that a grant has overtaken", ticket{held, 7, at(5), false}, renewed(status(waiting, 0, 9)), ticket{held, 7, at(5), false}, false},
		{"a renewal finds the end", ticket{held, 7, at(5), false}, renewed(status(gone, 0, 0)), ticket{gone, 7, at(5), false}, true},
		{"no renewal after the end", ticket{gone, 7, at(5), false}, renewed(status(held, 8, 9)), ticket{gone, 7, at(5), false}, false},
		{"nor a second end", ticket{gone, 7, at(5), false}, renewed(status(gone, 0, 0)), ticket{gone, 7, at(5), false}, false},

		{"an extension in time", ticket{held, 7, at(5), false}, extend(5), ticket{held, 7, at(10), false}, true},
		{"an extension that is late", ticket{held, 7, at(5), false}, extend(6), ticket{held, 7, at(5), true}, false},
		{"an extension of one that must leave", ticket{held, 7, at(5), true}, extend(1), ticket{held, 7, at(5), true}, false},
		{"not due yet", ticket{held, 7, at(5), false}, due(5), ticket{held, 7, at(5), false}, false},
		{"due", ticket{waiting, 0, at(5), false}, due(6), ticket{waiting, 0, at(5), true}, true},
		{"one that must leave is not due before its time", ticket{held, 7, at(5), true}, due(5), ticket{held, 7, at(5), true}, false},

		{"it left", ticket{held, 7, at(5), false}, left, ticket{gone, 7, at(5), true}, true},
		{"it left before it was known", ticket{}, left, ticket{gone, 0, never, true}, true},
	} {
		k := tt.from
		if got := tt.event(&k); got != tt.answer || k != tt.to {
			t.Errorf("%s: %+v became %+v, %v; want %+v, %v", tt.name, tt.from, k, got, tt.to, tt.answer)
		}
	}
}

// TestForgottenIDsStayGone enters, forgets and enters ids again.
func TestForgottenIDsStayGone(t *testing.T) {
	s := tracker.Set[string, *int]{}
	s.Tombstones.Keep = time.Minute
	made := 0
	enter := func() *int { made++; return &made }
	if s.Find("a") != nil {
		t.Error("an empty set has a")
	}
	if e, ok := s.Enter("a", enter); e != &made || !ok || made != 1 {
		t.Errorf("the first Enter of a: %v, %v; made %d", e, ok, made)
	}
	if e, ok := s.Enter("a", enter); e != &made || !ok || made != 1 || s.Find("a") != e {
		t.Errorf("the second Enter of a: %v, %v; made %d", e, ok, made)
	}
	s.Tombstones.Add("a")
	if s.Gone("a") {
		t.Error("a is gone although it has an entry")
	}
	if _, ok := s.Enter("a", enter); !ok {
		t.Error("a tombstone hides the entry that is there")
	}
	s.Forget("a", false)
	if !s.Gone("a") || s.Gone("b") {
		t.Errorf("gone: a %v, b %v", s.Gone("a"), s.Gone("b"))
	}
	if e, ok := s.Enter("a", enter); e != nil || ok || made != 1 {
		t.Errorf("Enter of a beside its tombstone: %v, %v; made %d", e, ok, made)
	}
	s.Enter("b", enter)
	s.Forget("b", false)
	if _, ok := s.Enter("b", enter); !ok || made != 3 {
		t.Errorf("b does not come back, made %d", made)
	}
	s.Forget("b", true)
	if _, ok := s.Enter("b", enter); ok || s.Find("b") != nil {
		t.Error("b came back from its tombstone")
	}
}
