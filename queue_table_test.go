package holdfast

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/memlock"
)

// leaves is a driver that notes the tickets that leave.
type leaves struct {
	*memlock.Driver
	mu   sync.Mutex
	refs []driver.Ref
}

func (d *leaves) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.mu.Lock()
	d.refs = append(d.refs, refs...)
	d.mu.Unlock()
	return d.Driver.Leave(ctx, refs)
}

// left says how a ticket left: not, or with a Join that may be pending, or without.
func (d *leaves) left(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ref := range d.refs {
		switch {
		case ref.ID == id && ref.JoinPending:
			return "left pending"
		case ref.ID == id:
			return "left"
		}
	}
	return ""
}

// renewals is a driver that counts the requests that renew.
type renewals struct {
	*memlock.Driver
	sent atomic.Int64
}

func (d *renewals) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	d.sent.Add(1)
	return d.Driver.Renew(ctx, refs)
}

// tableTTL is the TTL of the locks of TestQueueTable.
const tableTTL = 9 * time.Second

// cell is one queue on which TestQueueTable lets an event happen: the ticket t of
// goroutine h, which is the head, and perhaps a second goroutine that waits.
type cell struct {
	c    *Client
	d    *leaves
	q    *queue
	h    *Hold
	next *Hold // nil: h is alone
	t    *ticket
}

// newCell returns a queue whose ticket is joining, with a Join in flight.
func newCell(t *testing.T, try, second bool) *cell {
	d := &leaves{Driver: memlock.New(memlock.NewStore())}
	c, err := New(d, WithTTL(tableTTL))
	if err != nil {
		t.Fatal(err)
	}
	x := &cell{c: c, d: d}
	c.subscription.ensure(context.Background())
	s := c.spec("n", kindMutex, 1, nil)
	s.key.units = 1
	enter := func() *Hold {
		q, h := c.queues.get(s.key)
		x.q = q
		h.wait.spec, h.wait.try, h.ctx = s, try, context.Background()
		h.wait.askedAt, h.wait.begunAt = c.clock.read()
		q.waiters.pushBack(h)
		return h
	}
	x.h = enter()
	if second {
		x.next = enter()
	}
	x.q.ensureJoiner()
	x.t = x.q.pending
	x.t.joinsSent, x.t.joinSentAt = 1, c.clock.now()
	return x
}

// waits gives the ticket a place.
func (x *cell) waits() {
	x.reply(driver.Status{State: driver.Waiting, Lease: tableTTL}, x.c.clock.now())
}

// holds grants the ticket, and h takes the grant.
func (x *cell) holds() {
	x.reply(driver.Status{State: driver.Held, Lease: tableTTL, Token: 7}, x.c.clock.now())
	x.q.mu.Lock()
	x.h.wait.takeGrantLocked()
	x.q.mu.Unlock()
}

// reply is the reply to a Join that was sent at an instant.
func (x *cell) reply(st driver.Status, sent instant) {
	x.q.mu.Lock()
	defer x.q.mu.Unlock()
	x.q.onJoinReply(x.h, x.t, st, sent)
}

// fail is an error of the Join.
func (x *cell) fail(class driver.Class) {
	x.q.mu.Lock()
	defer x.q.mu.Unlock()
	x.q.onJoinError(x.h, x.t, driver.Errorf(class, "no"))
}

// renewed is a reply to a renewal that is sent now.
func (x *cell) renewed(st driver.Status) { x.q.onRenewReply(x.t, st, x.c.clock.now()) }

// unlock ends the hold of h.
func (x *cell) unlock() {
	x.q.mu.Lock()
	t := x.q.dropHold(x.h)
	x.q.mu.Unlock()
	if t != nil {
		_, _ = t.leave()
	}
	x.h.root.end(ErrReleased)
	x.c.shutdown.holdEnded(x.h.root)
}

// outcome describes the queue after an event: the head; the ticket; the ticket that
// is pending instead; whether the ticket was left at the store; when it is renewed.
func (x *cell) outcome() string {
	x.q.mu.Lock()
	say := []string{"head " + x.goroutine(x.h)}
	if x.next != nil {
		say = append(say, "next "+x.goroutine(x.next))
	}
	say = append(say, [...]string{0: "joining", driver.Waiting: "waiting", driver.Held: "held", driver.Gone: "gone"}[x.t.state])
	switch p := x.q.pending; {
	case p == x.t && x.q.waiters.joiner != nil:
		say = append(say, "joins again")
	case p != nil && p != x.t && p.Replaces != nil && p.Replaces.ID == x.t.ID:
		say = append(say, "replaced")
	case p != nil && p != x.t:
		say = append(say, "fresh")
	}
	x.q.mu.Unlock()
	x.c.renewer.mu.Lock()
	if r := &x.t.renewal; r.dueIndex > 0 {
		switch in := r.due.sub(x.c.clock.now()); {
		case in <= 0:
			say = append(say, "renews now")
		case in <= tableTTL/20:
			say = append(say, "renews soon")
		}
	}
	x.c.renewer.mu.Unlock()
	synctest.Wait() // for the cleaner
	if left := x.d.left(x.t.ID); left != "" {
		say = append(say, left)
	}
	return strings.Join(say, ", ")
}

// goroutine says what became of a goroutine of the queue.
func (x *cell) goroutine(h *Hold) string {
	switch {
	case h.taken && errors.Is(h.endErr, ErrLost):
		return "lost"
	case h.taken && h.endErr != nil:
		return "released"
	case h.ticket != nil && h.ticket.state == driver.Held:
		return "holds"
	case h.wait.err != nil:
		return "fails"
	case x.q.waiters.joiner == h:
		return "joins"
	}
	return "waits"
}

// TestTryLockIsRenewedNoEarlier checks that a hold is renewed after a third of its
// TTL although its client has never waited, so that it does not listen for pushes.
func TestTryLockIsRenewedNoEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &renewals{Driver: memlock.New(memlock.NewStore())}
		c, err := New(d, WithTTL(tableTTL))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		h, err := c.Mutex("n").TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{0, 1, 2} {
			time.Sleep(tableTTL/3 - time.Millisecond)
			if got := d.sent.Load(); got != want {
				t.Errorf("%d renewals after %v, want %d", got, time.Duration(i+1)*tableTTL/3, want)
			}
			time.Sleep(time.Millisecond)
		}
		if err := h.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// TestQueueTable checks each cell of the table at the head of queue.go: from the
// state of a ticket, one event, and what has become of the goroutines, of the
// ticket, and of its place at the store.
func TestQueueTable(t *testing.T) {
	held := driver.Status{State: driver.Held, Lease: tableTTL, Token: 7}
	waiting := driver.Status{State: driver.Waiting, Lease: tableTTL}
	gone := driver.Status{State: driver.Gone}
	trouble := driver.Status{Err: driver.Errorf(driver.Unknown, "no")}
	type state struct {
		name string
		set  func(*cell)
	}
	unsent := state{"unsent", func(x *cell) { x.t.joinsSent = 0 }}
	joining, waits, holds := state{"joining", func(*cell) {}}, state{"waiting", (*cell).waits}, state{"held", (*cell).holds}
	joined := func(st driver.Status) func(*cell) {
		return func(x *cell) { x.reply(st, x.c.clock.now()) }
	}
	pushed := func(st driver.Status) func(*cell) {
		return func(x *cell) { x.q.onPush(x.t, st) }
	}
	renewed := func(st driver.Status) func(*cell) {
		return func(x *cell) {
			time.Sleep(time.Millisecond) // the grant is older than the renewal
			x.renewed(st)
		}
	}
	failed := func(class driver.Class) func(*cell) {
		return func(x *cell) { x.fail(class) }
	}
	// After ends the claim first, unseen by the renewer's timers.
	after := func(event func(*cell)) func(*cell) {
		return func(x *cell) {
			x.t.claim.Store(int64(x.c.clock.now()))
			event(x)
		}
	}
	stale := func(x *cell) {
		x.t.joinPending = true
		x.reply(waiting, x.c.clock.now().add(-tableTTL))
	}
	late := func(st driver.Status) func(*cell) {
		return func(x *cell) { x.reply(st, x.c.clock.now().add(-tableTTL)) }
	}
	overBudget := func(x *cell) {
		x.h.wait.askedAt = x.h.wait.askedAt.Add(-time.Minute)
		x.q.laneHealth.mu.Lock()
		x.q.laneHealth.silentSince, x.q.laneHealth.firstProbe = x.c.clock.now().add(-time.Minute), x.c.clock.now().add(-time.Minute)
		x.q.laneHealth.mu.Unlock()
		x.fail(driver.Unknown)
	}
	// Pending loses the answer of an earlier Join first.
	pending := func(event func(*cell)) func(*cell) {
		return func(x *cell) {
			x.t.joinPending = true
			event(x)
		}
	}
	giveUp := func(x *cell) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = x.h.wait.giveUp(ctx)
	}

	for _, tt := range []struct {
		event       string
		try, second bool
		state       state
		happens     func(*cell)
		want        string
	}{
		{event: "join reply Held", state: joining, happens: joined(held), want: "head holds, held"},
		{event: "join reply Held, a second waits", second: true, state: joining, happens: joined(held), want: "head holds, next waits, held"},
		{event: "join reply Waiting", state: joining, happens: joined(waiting), want: "head waits, waiting"},
		{event: "join reply Waiting to a Try beside another", try: true, second: true, state: joining, happens: joined(waiting), want: "head fails, next fails, gone, left"},
		{event: "join reply Gone", state: joining, happens: joined(gone), want: "head joins, gone, fresh"},
		{event: "join reply Gone to a Try", try: true, second: true, state: joining, happens: joined(gone), want: "head fails, next fails, gone"},
		{event: "join reply Held, too old", state: joining, happens: late(held), want: "head joins, gone, fresh, left"},
		{event: "join reply Waiting, too old", state: joining, happens: late(waiting), want: "head joins, gone, fresh, left"},
		{event: "join reply Waiting, after a Join whose lease is over", state: joining, happens: func(x *cell) {
			x.t.joinSentAt = x.t.joinSentAt.add(-tableTTL)
			x.t.joinPending = true
			x.reply(waiting, x.c.clock.now())
		}, want: "head joins, gone, fresh, left pending"},
		{event: "join reply Waiting, too old and unsure", state: joining, happens: stale, want: "head joins, gone, fresh, left pending"},
		{event: "join reply Gone, a Join pending", state: joining, happens: pending(joined(gone)), want: "head joins, gone, fresh, left pending"},
		{event: "join reply Held, too old, a Join pending", state: joining, happens: pending(late(held)), want: "head joins, gone, fresh, left pending"},
		{event: "join error", state: joining, happens: failed(driver.Unavailable), want: "head joins, joining, joins again"},
		{event: "join error Unknown", state: joining, happens: failed(driver.Unknown), want: "head joins, joining, joins again"},
		{event: "join error Unknown for a lease", state: joining, happens: func(x *cell) {
			x.t.joinSentAt = x.t.joinSentAt.add(-tableTTL)
			x.fail(driver.Unknown)
		}, want: "head joins, gone, fresh, left pending"},
		{event: "join error Refused", second: true, state: joining, happens: failed(driver.Refused), want: "head fails, next joins, gone, fresh"},
		{event: "join error Refused after Unknown", state: joining, happens: func(x *cell) {
			x.fail(driver.Unknown)
			x.fail(driver.Refused)
		}, want: "head fails, gone, left pending"},
		{event: "join error, budget spent", state: joining, happens: overBudget, want: "head fails, gone, left pending"},

		{event: "push Held", state: joining, happens: func(x *cell) { pushed(held)(x); joined(waiting)(x) }, want: "head holds, held"},
		{event: "push Gone", state: joining, happens: func(x *cell) { pushed(gone)(x); joined(held)(x) }, want: "head joins, gone, fresh"},
		{event: "push Gone, and a late push Held", state: joining, happens: func(x *cell) { pushed(gone)(x); pushed(held)(x); joined(held)(x) }, want: "head joins, gone, fresh"},
		{event: "push Held, not yet replied", state: joining, happens: pushed(held), want: "head joins, joining, joins again"},
		{event: "push Held", state: waits, happens: pushed(held), want: "head holds, held"},
		{event: "push Held, claim over", state: waits, happens: after(pushed(held)), want: "head waits, waiting, renews now"},
		{event: "push Gone", state: waits, happens: pushed(gone), want: "head joins, gone, fresh"},
		{event: "push Held", state: holds, happens: pushed(held), want: "head holds, held"},
		{event: "push Gone", second: true, state: holds, happens: pushed(gone), want: "head lost, next joins, gone, fresh"},

		{event: "renew Held", state: waits, happens: renewed(held), want: "head holds, held"},
		{event: "renew Waiting", state: waits, happens: renewed(waiting), want: "head waits, waiting"},
		{event: "renew Gone", state: waits, happens: renewed(gone), want: "head joins, gone, fresh"},
		{event: "push Gone, a Join pending", state: waits, happens: pending(pushed(gone)), want: "head joins, gone, fresh, left pending"},
		{event: "renew Gone, a Join pending", state: waits, happens: pending(renewed(gone)), want: "head joins, gone, fresh, left pending"},
		{event: "renew Gone, a Join pending", state: holds, happens: pending(renewed(gone)), want: "head lost, gone, left pending"},
		{event: "renew Waiting, a Join pending", state: holds, happens: pending(renewed(waiting)), want: "head lost, gone, left pending"},
		{event: "push Gone, a Join pending", state: holds, happens: pending(pushed(gone)), want: "head lost, gone, left pending"},
		{event: "claim over, a Join pending", state: holds, happens: pending(func(x *cell) { x.t.lose(LossExpired) }), want: "head lost, gone, left pending"},
		{event: "renew Waiting, claim over, and push Held", state: waits, happens: after(func(x *cell) { renewed(waiting)(x); pushed(held)(x) }), want: "head holds, held"},
		{event: "renew Waiting, claim over, and push Held, a Join pending", state: waits, happens: pending(after(func(x *cell) { renewed(waiting)(x); pushed(held)(x) })), want: "head waits, waiting, renews now, left pending"},
		{event: "renew Waiting, claim over, and renew Held, a Join pending", state: waits, happens: pending(after(func(x *cell) { renewed(waiting)(x); renewed(held)(x) })), want: "head holds, held"},
		{event: "renew error", state: waits, happens: renewed(trouble), want: "head waits, waiting, renews soon"},
		{event: "renew error, claim over", state: waits, happens: after(renewed(trouble)), want: "head joins, gone, fresh, left"},
		{event: "renew Held", state: holds, happens: renewed(held), want: "head holds, held"},
		{event: "renew Held by another grant", state: holds, happens: renewed(driver.Status{State: driver.Held, Lease: tableTTL, Token: 8}), want: "head lost, gone, left"},
		{event: "renew Waiting", state: holds, happens: renewed(waiting), want: "head lost, gone, left"},
		{event: "renew Gone", second: true, state: holds, happens: renewed(gone), want: "head lost, next joins, gone, fresh"},
		{event: "renew error", state: holds, happens: renewed(trouble), want: "head holds, held, renews soon"},
		{event: "claim over", second: true, state: holds, happens: func(x *cell) { x.t.lose(LossExpired) }, want: "head lost, next joins, gone, fresh, left"},

		{event: "the last one gives up, Join unsent", state: unsent, happens: giveUp, want: "head fails, joining"},
		{event: "the last one gives up", state: joining, happens: giveUp, want: "head fails, gone, left"},
		{event: "the head gives up", second: true, state: joining, happens: giveUp, want: "head fails, next joins, joining, joins again"},
		{event: "the last one gives up", state: waits, happens: giveUp, want: "head fails, gone, left"},
		{event: "the head gives up", second: true, state: waits, happens: giveUp, want: "head fails, next waits, waiting"},
		{event: "the last one gives up its grant", state: joining, happens: func(x *cell) {
			joined(held)(x)
			giveUp(x)
		}, want: "head waits, gone, left"},
		{event: "unlock", state: holds, happens: (*cell).unlock, want: "head released, gone, left"},
		{event: "unlock, a second waits", second: true, state: holds, happens: (*cell).unlock, want: "head released, next holds, held"},
		{event: "unlock, a second waits, of a named owner", second: true, state: holds, happens: func(x *cell) {
			x.q.key.owner = "o"
			x.unlock()
		}, want: "head released, next joins, gone, fresh, left"},
		{event: "unlock, a second waits, long since the grant", second: true, state: holds, happens: func(x *cell) {
			time.Sleep(2 * maxHandOffTime)
			x.unlock()
		}, want: "head released, next joins, gone, replaced"},
		{event: "unlock, a second waits, long since the grant, and gives up", second: true, state: holds, happens: func(x *cell) {
			time.Sleep(2 * maxHandOffTime)
			x.unlock()
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = x.next.wait.giveUp(ctx)
		}, want: "head released, next fails, gone, left"},
		{event: "unlock, a Join pending", state: holds, happens: pending((*cell).unlock), want: "head released, gone, left pending"},
		{event: "unlock, a second waits, long since the grant, a Join pending", second: true, state: holds, happens: pending(func(x *cell) {
			time.Sleep(2 * maxHandOffTime)
			x.unlock()
		}), want: "head released, next joins, gone, fresh, left pending"},
	} {
		t.Run(tt.state.name+"/"+tt.event, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newCell(t, tt.try, tt.second)
				tt.state.set(x)
				tt.happens(x)
				if got := x.outcome(); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				x.c.calls.Done()
				if x.next != nil {
					x.c.calls.Done()
				}
				if err := x.c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
