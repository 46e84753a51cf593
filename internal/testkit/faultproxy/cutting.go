package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Step is a request, and the queue that it must leave once it was answered.
type Step struct {
	Name string
	// FastPath says that the step is for drivers that take another path by their
	// belief about a queue: that somebody waits, or that the ticket holds.
	FastPath bool

	needsHolder bool // there is a holder before the step
	needsWaiter bool // there is a waiter before the step
	do          func(ctx context.Context, d driver.Driver, h, w, n *driver.Ticket) error
	remaining   []int // the queue afterwards, the holder first: 0 is h, 1 is w, 2 is n
}

func joinExpecting(ctx context.Context, d driver.Driver, t *driver.Ticket, wait bool, want ...driver.State) error {
	p, err := d.Join(ctx, t, wait)
	if err == nil && !slices.Contains(want, p.State) {
		err = fmt.Errorf("joined: %v, want %v", p.State, want)
	}
	return err
}

// leaveOnce sends a Leave. A ticket that is gone is no error: an earlier try may
// have taken effect.
func leaveOnce(ctx context.Context, d driver.Driver, t *driver.Ticket, state driver.State) error {
	p, err := d.Leave(ctx, []driver.Ref{{Ticket: t, State: state}})
	if err == nil {
		err = p[0].Err
	}
	return err
}

// All returns every step.
func All() []Step {
	return []Step{
		{Name: "join of a free line", remaining: []int{2}, do: func(ctx context.Context, d driver.Driver, _, _, n *driver.Ticket) error {
			return joinExpecting(ctx, d, n, true, driver.Held)
		}},
		{Name: "join behind a holder", needsHolder: true, remaining: []int{0, 2}, do: func(ctx context.Context, d driver.Driver, _, _, n *driver.Ticket) error {
			return joinExpecting(ctx, d, n, true, driver.Waiting)
		}},
		{Name: "try at a held line", needsHolder: true, remaining: []int{0}, do: func(ctx context.Context, d driver.Driver, _, _, n *driver.Ticket) error {
			return joinExpecting(ctx, d, n, false, driver.Gone)
		}},
		{Name: "leave of the last", needsHolder: true, do: func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
			return leaveOnce(ctx, d, h, driver.Held)
		}},
		{Name: "leave that hands on", needsHolder: true, needsWaiter: true, remaining: []int{1}, do: func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
			return leaveOnce(ctx, d, h, driver.Held)
		}},
		{Name: "leave that hands on at once", FastPath: true, needsHolder: true, needsWaiter: true, remaining: []int{1}, do: func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
			if _, err := d.Inspect(ctx, h.Name); err != nil {
				return err
			}
			return leaveOnce(ctx, d, h, driver.Held)
		}},
		{Name: "leave of one who waits", needsHolder: true, needsWaiter: true, remaining: []int{0}, do: func(ctx context.Context, d driver.Driver, _, w, _ *driver.Ticket) error {
			return leaveOnce(ctx, d, w, driver.Waiting)
		}},
		{Name: "leave of one who is thought to hold", FastPath: true, needsHolder: true, needsWaiter: true, remaining: []int{0}, do: func(ctx context.Context, d driver.Driver, _, w, _ *driver.Ticket) error {
			return leaveOnce(ctx, d, w, driver.Held)
		}},
		{Name: "join in place of a holder", needsHolder: true, needsWaiter: true, remaining: []int{1, 2}, do: func(ctx context.Context, d driver.Driver, h, _, n *driver.Ticket) error {
			n.Replaces = h
			states := []driver.State{driver.Waiting}
			if !d.Traits().Fair { // it may come before who waits
				states = append(states, driver.Held)
			}
			return joinExpecting(ctx, d, n, true, states...)
		}},
		{Name: "renewal of both", needsHolder: true, needsWaiter: true, remaining: []int{0, 1}, do: func(ctx context.Context, d driver.Driver, h, w, _ *driver.Ticket) error {
			p, err := d.Renew(ctx, []driver.Ref{{Ticket: h, State: driver.Held}, {Ticket: w, State: driver.Waiting}})
			if err != nil {
				return err
			}
			if p[0].Err == nil && p[1].Err == nil && (p[0].State != driver.Held || p[1].State != driver.Waiting) {
				return fmt.Errorf("renewed: %v", p)
			}
			return errors.Join(p[0].Err, p[1].Err)
		}},
		{Name: "break of a holder", needsHolder: true, needsWaiter: true, remaining: []int{1}, do: func(ctx context.Context, d driver.Driver, h, _, _ *driver.Ticket) error {
			if err := d.Break(ctx, h.Name, h.ID); !errors.Is(err, driver.ErrNoTicket) {
				return err
			}
			return nil
		}},
	}
}

// Cutting is a way to cut a driver's requests to its store. TB, Way, Cut, First,
// Sure, TTL, Arm and Disarm are needed.
type Cutting struct {
	testing.TB
	Way string        // in words
	TTL time.Duration // of the tickets; no step may take as long

	// Arm has the k-th message of Cut from now cut. Disarm says whether that was
	// still to come; after it, none is.
	Arm    func(k int)
	Disarm func() bool

	Cut   driver.Driver // is cut off
	First driver.Driver // asks for what comes before a step: Cut, or another
	Sure  driver.Driver // is never cut off

	// Give is how long a request is waited for that is cut, 0 for as long as it
	// takes. It becomes longer when it turns out to be too short for one that is
	// not cut.
	Give time.Duration
	// Ready sends a request of First about a queue, and fails as long as First
	// still suffers from the last cut. Nil means Inspect.
	Ready func(ctx context.Context, d driver.Driver, line string) error
	// Named makes the name of a queue out of a unique one; nil leaves
	// it as it is.
	Named func(name string) string
	// Settles says that a queue may need a while after an answer, and renewals,
	// until it is as it should be.
	Settles bool
}

// patience ends a step that hangs.
const patience = time.Minute

// settle bounds the time that a queue may need to become correct.
const settle = patience / 4

// ids numbers the tickets of all clients that meet in a store.
var ids atomic.Int64

func (c *Cutting) ticket(line string) *driver.Ticket {
	// A client has an id of its own.
	return &driver.Ticket{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d:1", ids.Add(1)), Name: line, Units: 1, Limit: 1, TTL: c.TTL}
}

// CutAll cuts one message of a step after the other, until it has no more, and
// returns their number. Repeated until it is answered, the request must leave
// the queue as if it had been sent once, with a token above the last.
func (c *Cutting) CutAll(s Step) (cuts int64) {
	for k := 1; !c.Failed() && c.cutMessage(s, k); k++ {
		cuts++
	}
	return cuts
}

// cutMessage cuts message k. It returns false if there is none.
func (c *Cutting) cutMessage(s Step, k int) bool {
	what := fmt.Sprintf("%s, message %d cut %s", s.Name, k, c.Way)
	line := fmt.Sprintf("%s %d", what, ids.Load())
	if c.Named != nil {
		line = c.Named(line)
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	who := []*driver.Ticket{c.ticket(line), c.ticket(line), c.ticket(line)}
	token := c.prepare(ctx, s, what, who)
	before := c.states(ctx, what, line)
	c.Arm(k)
	limit, end := ctx, context.CancelFunc(func() {})
	if c.Give > 0 {
		limit, end = context.WithTimeout(ctx, c.Give)
	}
	err := s.do(limit, c.Cut, who[0], who[1], who[2])
	// A driver may see the end of its time an instant before limit does.
	hasty := c.Give > 0 && ctx.Err() == nil && (limit.Err() != nil || errors.Is(err, context.DeadlineExceeded))
	end()
	if c.Disarm() {
		if err != nil && hasty { // the machine is busy
			c.Give *= 2
			return c.cutMessage(s, k)
		}
		if err != nil {
			c.Errorf("%s, not cut: %v", what, err)
		}
		return false
	}
	// A lone read that is never answered, or the end of a transaction that wrote
	// nothing, may pass unseen; a lost write may not.
	classes := []driver.Class{driver.NotDone, driver.Unknown, driver.Unavailable}
	if class := driver.ClassOf(err); err != nil && !slices.Contains(classes, class) {
		c.Errorf("%s: %v is of class %v", what, err, class)
	} else if err != nil && class != driver.Unknown {
		if after := c.states(ctx, what, line); !slices.Equal(before, after) {
			c.Errorf("%s: %v, of class %v, and the queue went from %v to %v", what, err, class, before, after)
		}
	}
	for err != nil && ctx.Err() == nil {
		limit, end := context.WithTimeout(ctx, patience/10)
		err = s.do(limit, c.Cut, who[0], who[1], who[2])
		end()
	}
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
	c.checkSettled(ctx, s, what, who, token)
	return true
}

// states returns the tickets of a queue with their states.
func (c *Cutting) states(ctx context.Context, what, line string) (states []string) {
	q, err := c.Sure.Inspect(ctx, line)
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
	for _, t := range q.Tickets {
		states = append(states, fmt.Sprintf("%s %v", t.ID, t.State))
	}
	return states
}

// checkSettled checks that the queue is correct, or becomes so in time.
// Meanwhile it renews the tickets in it, as the core would.
func (c *Cutting) checkSettled(ctx context.Context, s Step, what string, who []*driver.Ticket, token uint64) {
	var refs []driver.Ref
	for _, i := range s.remaining {
		refs = append(refs, driver.Ref{Ticket: who[i], State: driver.Waiting})
	}
	for limit := time.Now().Add(settle); ; time.Sleep(5 * time.Millisecond) {
		wrong := c.checkQueue(ctx, s, who, token)
		if wrong == nil {
			return
		}
		if !c.Settles || time.Now().After(limit) {
			c.Fatalf("%s: %v", what, wrong)
		}
		_, _ = c.Cut.Renew(ctx, refs)
	}
}

// prepare puts the tickets that a step needs into the queue, and returns the
// last token.
func (c *Cutting) prepare(ctx context.Context, s Step, what string, who []*driver.Ticket) (token uint64) {
	line := who[0].Name
	must := func(t *driver.Ticket, want driver.State) {
		p, err := c.First.Join(ctx, t, true)
		for ctx.Err() == nil && (err != nil || p.State == driver.Gone && !c.First.Traits().Fair) {
			// It has not noticed the last cut; where lines are not kept, a ticket
			// may not outlast that.
			if err == nil {
				t.ID = c.ticket(line).ID
			}
			p, err = c.First.Join(ctx, t, true)
		}
		if err != nil || p.State != want {
			c.Fatalf("%s: a join before it: %v, %v", what, p.State, err)
		}
		token = max(token, p.Token)
	}
	if s.needsHolder {
		must(who[0], driver.Held)
	}
	if s.needsWaiter {
		must(who[1], driver.Waiting)
	}
	// The end of the connection that was cut last may still be unknown to the
	// driver, and would pass for a failure without a cut.
	ready := c.Ready
	if ready == nil {
		ready = func(ctx context.Context, d driver.Driver, line string) error {
			_, err := d.Inspect(ctx, line)
			return err
		}
	}
	for err := ready(ctx, c.First, line); err != nil; err = ready(ctx, c.First, line) {
		if ctx.Err() != nil {
			c.Fatalf("%s: a question before it: %v", what, err)
		}
	}
	return token
}

// checkQueue returns the error of the queue after a step, or nil.
func (c *Cutting) checkQueue(ctx context.Context, s Step, who []*driver.Ticket, token uint64) error {
	line, err := c.Sure.Inspect(ctx, who[0].Name)
	if err != nil {
		return err
	}
	if len(line.Tickets) != len(s.remaining) {
		return fmt.Errorf("the line is %+v", line.Tickets)
	}
	after := slices.Clone(s.remaining)
	if len(after) > 1 && after[0] != 0 && !c.Sure.Traits().Fair && line.Tickets[0].ID != who[after[0]].ID {
		slices.Reverse(after)
	}
	for i, e := range line.Tickets {
		held := i == 0
		if e.ID != who[after[i]].ID || (e.State == driver.Held) != held || held && after[0] != 0 && e.Token <= token {
			return fmt.Errorf("ticket %d of the line is %+v", i, e)
		}
	}
	return nil
}
