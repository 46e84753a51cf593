package holdfast

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// drop takes h, which holds, off its ticket. When it was the last to hold by
// it, the ticket is handed on to the next goroutine, replaced by a new one at
// the end of the line, or returned for the caller to leave.
func (l *line) drop(h *Hold) *ticket {
	t := h.t
	if t.state != driver.Held {
		return nil // lost meanwhile
	}
	t.users.remove(h)
	if t.users.first != nil {
		return nil
	}
	next := l.queue.first
	if next != nil && next.wait.try {
		next = nil // it asks for itself
	}
	now := l.c.clock.now()
	if next != nil && l.key.owner == "" && !l.key.readers() && t.valid(now) {
		if t.passes < handOverTimes && now.sub(t.granted) < handOverTime {
			t.passes++
			l.give(t, next)
			return nil
		}
		if l.key.exclusive() && !t.unsure && l.next == nil {
			// The others get their turn: one request leaves and joins anew.
			l.retire(t)
			old := t.Ticket
			old.Replaces = nil // or each would keep all before it in memory
			l.next = l.newTicket(next)
			l.next.Replaces = &old
			l.appoint(next)
			return nil
		}
	}
	l.retire(t)
	l.more()
	return t
}

// leaving is what the first request to leave needs, which mostly is the only
// one.
type leaving struct {
	call callCtx
	refs [1]driver.Ref
}

// leave releases a ticket at the store, which retire has taken out of the
// line. It blocks for at most releaseLimit, whatever the store does; what it
// could not settle goes on in the background.
func (l *line) leave(t *ticket) error {
	limit := releaseLimit(l.key.ttl)
	start := time.Now()
	first := leaving{refs: [1]driver.Ref{{Ticket: &t.Ticket, State: driver.Held, Unsure: t.unsure}}}
	call, refs := &first.call, first.refs[:]
	call.begin(l.c.life, limit/2) // so that there is time for a second try
	perhaps := false              // an earlier try may have done it
	for try := 0; ; try++ {
		p, err := l.leaveOnce(call, refs)
		call.end()
		perhaps = perhaps || err != nil && driver.ClassOf(err) == driver.Unknown
		switch {
		case err == nil && p == driver.Gone && !perhaps:
			return l.lostError(t, LossGone)
		case err == nil:
			// Held; or Gone at a later try, which an earlier one must have
			// done, since the claim was good when it was sent.
			return nil
		case driver.ClassOf(err) == driver.Refused:
			return storeError("release", l.name(), err)
		}
		left := limit - time.Since(start)
		pause := min(time.Millisecond<<min(try, 6), limit/10)
		if left > pause {
			select {
			case <-time.After(pause):
				call = new(callCtx)
				call.begin(l.c.life, left-pause)
				continue
			case <-l.c.life.Done():
			}
		}
		l.c.cleaner.addRef(refs[0])
		return storeError("release", l.name(), err)
	}
}

func (l *line) leaveOnce(ctx context.Context, refs []driver.Ref) (driver.State, error) {
	ps, err := l.c.leaveAll(ctx, refs)
	if err != nil {
		return 0, err
	}
	return ps[0].State, ps[0].Err
}

// lose ends a held ticket that the store has dropped or may drop: first the
// contexts of those who hold by it end, then the queue moves on.
func (l *line) lose(t *ticket, why LossReason) {
	l.mu.Lock()
	if t.state != driver.Held {
		l.mu.Unlock()
		return
	}
	l.retire(t)
	users := t.users.empty()
	ref := driver.Ref{Ticket: &t.Ticket, State: driver.Held, Unsure: t.unsure}
	lost := make([]*LostError, 0, len(users))
	for _, h := range users {
		if !h.taken { // granted, but its goroutine has not seen it yet
			h.rouse()
			continue
		}
		// Whoever ends a hold first accounts for it.
		if err := h.lostError(why); h.end(err) {
			lost = append(lost, err)
		}
	}
	l.mu.Unlock()
	if why != LossGone || ref.Unsure {
		l.c.cleaner.addRef(ref)
	}
	l.c.tellLost(lost)
	for range lost {
		l.c.releaseLine(l)
	}
	l.mu.Lock()
	l.more()
	l.mu.Unlock()
}

func (l *line) lostError(t *ticket, why LossReason) *LostError {
	return &LostError{Name: l.name(), Reason: why,
		Token: t.tokenNow(), Since: l.c.clock.wall(t.granted)}
}
