package holdfast_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// TestInspectShowsTheQueue checks each field of a LockInfo and its tickets: of a
// semaphore with two holders and two waiters, and of names that are free or of another
// kind.
func TestInspectShowsTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		begun := time.Now()
		var holds []*holdfast.Hold
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(bg)
		for i, n := range []int{3, 1, 2, 1} {
			c := client(t, memlock.New(s), holdfast.WithNote(fmt.Sprint("client ", i)))
			if i < 2 {
				holds = append(holds, must(t)(c.Semaphore("s", 5).Acquire(bg, n)))
			} else {
				go func() { _, _ = c.Semaphore("s", 5).Acquire(ctx, n) }()
			}
			settle()
		}
		c := client(t, memlock.New(s))
		l := mustLookAt(t, c, "s")
		if l.Name != "s" || l.Size != 5 || l.Kind() != "semaphore of 5" || len(l.Holders) != 2 || len(l.Waiters) != 1+1 {
			t.Fatalf("%+v", l)
		}
		if l.Token != holds[1].Token() || l.Token <= holds[0].Token() {
			t.Errorf("the last token is %d, want %d", l.Token, holds[1].Token())
		}
		for i, ticket := range append(l.Holders, l.Waiters...) {
			if ticket.Holder.Note != fmt.Sprint("client ", i) || ticket.Holder.Host != host || ticket.Holder.PID != os.Getpid() || ticket.Holder.Since.Before(begun.Truncate(time.Second)) {
				t.Errorf("ticket %d: %+v", i, ticket.Holder)
			}
			if want := []int64{3, 1, 2, 1}[i]; ticket.Units != want || ticket.ID == "" {
				t.Errorf("ticket %d: %+v, want %d units", i, ticket, want)
			}
			if ticket.Left <= c.TTL()/2 || ticket.Left > c.TTL()*105/100 {
				t.Errorf("ticket %d has %v left", i, ticket.Left)
			}
			if i < 2 && (ticket.ID != holds[i].Ticket() || ticket.Token != holds[i].Token()) {
				t.Errorf("ticket %d: %+v, want %s and token %d", i, ticket, holds[i].Ticket(), holds[i].Token())
			}
		}
		cancel()
		for _, h := range holds {
			unlock(t, h)
		}
		settle()
		for name, kind := range map[string]string{"free": "free", "s": "free", "m": "mutex", "rw": "read/write lock"} {
			switch name {
			case "m":
				must(t)(c.Mutex(name).Lock(bg))
			case "rw":
				must(t)(c.RWMutex(name).RLock(bg))
			}
			l := mustLookAt(t, c, name)
			if l.Kind() != kind || (l.Size == 0) != (kind == "free") || (len(l.Holders) == 0) != (kind == "free") || len(l.Waiters) != 0 {
				t.Errorf("%s: %s, %+v", name, l.Kind(), l)
			}
		}
	})
}

func mustLookAt(t *testing.T, c *holdfast.Client, name string) holdfast.LockInfo {
	t.Helper()
	l, err := c.Inspect(bg, name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBreakOfEachTicket checks that Break removes a holder and a waiter of other
// clients, which learn of it at once by a push, and within a third of the TTL without,
// and that a ticket that is gone is ErrNoTicket.
func TestBreakOfEachTicket(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := memlock.NewStore()
			d := hook(s)
			c, operator := client(t, d), client(t, memlock.New(s))
			if deaf {
				d.push = func(string, driver.Status, func(string, driver.Status)) {}
			}
			h := must(t)(c.Mutex("a").Lock(bg))
			waiter := client(t, memlock.New(s))
			granted := make(chan *holdfast.Hold, 1)
			go func() { granted <- must(t)(waiter.Mutex("a").Lock(bg)) }()
			settle()
			l := mustLookAt(t, operator, "a")
			id := l.Waiters[0].ID
			if err := operator.Break(bg, "a", id); err != nil {
				t.Fatal(err)
			}
			wantErr(t, operator.Break(bg, "a", id), holdfast.ErrNoTicket)
			wantErr(t, operator.Break(bg, "other", id), holdfast.ErrNoTicket)
			settle()
			if l := mustLookAt(t, operator, "a"); len(l.Waiters) != 1 || l.Waiters[0].ID == id {
				t.Errorf("the waiter has no new place: %+v", l.Waiters)
			}
			begun := time.Now()
			if err := operator.Break(bg, "a", h.Ticket()); err != nil {
				t.Fatal(err)
			}
			<-h.Context().Done()
			if took := time.Since(begun); !deaf && took > time.Second || deaf && (took == 0 || took > c.TTL()/3+time.Second) {
				t.Errorf("deaf=%v: the holder learnt of it after %v", deaf, took)
			}
			wantErr(t, h.Unlock(), holdfast.ErrLost)
			unlock(t, <-granted)
		})
	}
}

// TestReleaseWakesOneWaiter counts the pushes of a release among six clients that wait.
func TestReleaseWakesOneWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		h := must(t)(client(t, memlock.New(s)).Mutex("a").Lock(bg))
		var pushes script
		ctx, cancel := context.WithCancel(bg)
		granted := make(chan *holdfast.Hold, 6)
		for range 6 {
			d := hook(s)
			d.push = func(id string, p driver.Status, next func(string, driver.Status)) {
				pushes.say(fmt.Sprint(p.State == driver.Held))
				next(id, p)
			}
			c := client(t, d)
			go func() {
				if h, err := c.Mutex("a").Lock(ctx); err == nil {
					granted <- h
				}
			}()
			settle()
		}
		unlock(t, h)
		settle()
		if got := strings.Count(pushes.String(), "true"); got != 1 || len(granted) != 1 {
			t.Errorf("pushes %s, %d hold", pushes.String(), len(granted))
		}
		cancel()
		synctest.Wait()
		unlock(t, <-granted)
	})
}

// TestHolderText checks that the text of a Holder is one line, without characters that
// control a terminal, that cannot be seen, or that change the direction of writing.
func TestHolderText(t *testing.T) {
	for _, bad := range []string{"\n", "\r", "\x1b[2J", "\x00", "\x7f", "\u0085", "\u200b", "\u202e", "\u2066", "\u2028", "\ufeff"} {
		h := holdfast.Holder{Owner: "o" + bad, Host: "h" + bad, PID: 1, Via: "v" + bad, Note: "n" + bad}
		if got := h.String(); strings.Contains(got, bad) || strings.ContainsRune(got, []rune(bad)[0]) {
			t.Errorf("%q shows %q", got, bad)
		}
	}
	want := "owner o, pid 1 on h via v since 2026-01-02T03:04:05Z (n)"
	if got := (holdfast.Holder{Owner: "o", Host: "h", PID: 1, Via: "v", Note: "n", Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}).String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOptionsOfALockOverrideTheClients checks that an option that is given to a lock has
// its effect there in place of the client's, and that other locks keep the client's.
func TestOptionsOfALockOverrideTheClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithTTL(20*time.Second), holdfast.WithNote("client's"),
			holdfast.WithOwner("client"), holdfast.WithMaxHold(time.Hour), holdfast.WithHolder(holdfast.Holder{Host: "client", PID: 1}))
		for name, want := range map[string]struct {
			opts              []holdfast.Option
			ttl               time.Duration
			note, host, owner string
			ends              time.Duration
		}{
			"a": {nil, 20 * time.Second, "client's", "client", "client", time.Hour},
			"b": {[]holdfast.Option{holdfast.WithTTL(40 * time.Second), holdfast.WithNote("lock's"), holdfast.WithOwner("lock"),
				holdfast.WithMaxHold(time.Minute), holdfast.WithHolder(holdfast.Holder{Host: "lock", PID: 2})}, 40 * time.Second, "lock's", "lock", "lock", time.Minute},
			"c": {[]holdfast.Option{holdfast.WithMaxHold(0)}, 20 * time.Second, "client's", "client", "client", 0},
		} {
			begun := time.Now()
			h := must(t)(c.Mutex(name, want.opts...).Lock(bg))
			l := mustLookAt(t, c, name).Holders[0]
			if left := time.Until(h.Deadline()); left > want.ttl || left < want.ttl*95/100 || l.Holder.Note != want.note || l.Holder.Host != want.host || l.Holder.Owner != want.owner {
				t.Errorf("%s: %v left, %+v", name, left, l.Holder)
			}
			select {
			case <-h.Context().Done():
				if took := time.Since(begun); took != want.ends {
					t.Errorf("%s: ended after %v", name, took)
				}
			case <-time.After(2 * time.Hour):
				if want.ends != 0 {
					t.Errorf("%s did not end", name)
				}
			}
			_ = h.Unlock()
		}
	})
}

// TestNestedLockKeepsTheOuterTexts checks that the note and the holder of a nested lock
// are not stored.
func TestNestedLockKeepsTheOuterTexts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := client(t, memlock.New(memlock.NewStore()))
		h := must(t)(c.Mutex("a", holdfast.WithNote("outer"), holdfast.WithHolder(holdfast.Holder{Host: "outer", PID: 1})).Lock(bg))
		inner := must(t)(c.Mutex("a", holdfast.WithNote("inner"), holdfast.WithHolder(holdfast.Holder{Host: "inner", PID: 2})).Lock(h.Context()))
		time.Sleep(c.TTL())
		if l := mustLookAt(t, c, "a"); len(l.Holders) != 1 || l.Holders[0].Holder.Note != "outer" || l.Holders[0].Holder.Host != "outer" {
			t.Errorf("%+v", l.Holders)
		}
		unlock(t, inner)
		unlock(t, h)
	})
}

// TestWaitingThatPanics checks that a panic of WithWaiting's function is dropped, that a
// nil function is none, and that the function may lock.
func TestWaitingThatPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := memlock.NewStore()
		c, other := client(t, memlock.New(s)), client(t, memlock.New(s))
		calls := 0
		for _, f := range []func(holdfast.Waiting){nil,
			func(holdfast.Waiting) { calls++; panic("of the user's") },
			func(holdfast.Waiting) { calls++; unlock(t, must(t)(c.Mutex("b").Lock(bg))) },
		} {
			h := must(t)(other.Mutex("a").Lock(bg))
			time.AfterFunc(time.Minute, func() { unlock(t, h) })
			unlock(t, must(t)(c.Mutex("a", holdfast.WithWaiting(f)).Lock(bg)))
		}
		if calls < 2 {
			t.Errorf("%d calls", calls)
		}
	})
}

// TestObserverIsCopied checks that a client goes on with the functions that its Observer
// had when New was called, and that a function that blocks delays its caller.
func TestObserverIsCopied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		starts := 0
		o := &holdfast.Observer{LockStart: func(context.Context, holdfast.LockStartInfo) context.Context {
			starts++
			time.Sleep(time.Second)
			return nil
		}}
		c := client(t, memlock.New(memlock.NewStore()), holdfast.WithObserver(o))
		o.LockStart = nil
		o.LockDone = func(context.Context, holdfast.LockDoneInfo) context.Context {
			t.Error("a function that was set later")
			return nil
		}
		begun := time.Now()
		unlock(t, must(t)(c.Mutex("a").Lock(bg)))
		if starts != 1 || time.Since(begun) != time.Second {
			t.Errorf("%d starts, %v", starts, time.Since(begun))
		}
	})
}
