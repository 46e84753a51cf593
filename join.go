package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// join sends one Join for the ticket on its way; h is the joiner. What came of
// it is in the line afterwards: a grant, a place, a failure, or a reason to
// try again, in which case h is still the joiner. It is called without the
// line's mutex and returns with it: in between, the next joiner could begin, and
// be taken for the one that has ended.
func (l *line) join(ctx context.Context, h *Hold) {
	t := l.next // only the joiner changes it
	if t.tries > 0 && !l.pause(ctx, int(t.tries)) {
		l.mu.Lock()
		return
	}
	if !h.wait.try {
		if err := l.c.watch(ctx, callLimit(l.key.ttl)); err != nil {
			l.mu.Lock()
			if t.tries == 0 {
				t.asked = l.c.clock.now()
			}
			t.tries++
			l.unanswered(h, t, err)
			return
		}
		l.c.keeper.track(t)
	}
	call := new(callCtx)
	call.begin(ctx, callLimit(l.key.ttl))
	l.mu.Lock()
	l.call = call
	closed := l.c.closed()
	sent := l.c.clock.now()
	if t.tries == 0 {
		t.asked = sent
	}
	t.tries++
	l.mu.Unlock()
	if closed {
		call.stop()
	}
	p, err := l.c.drv.Join(call, &t.Ticket, !h.wait.try)
	call.end()

	l.mu.Lock()
	l.call = nil
	if err != nil {
		l.unanswered(h, t, err)
		return
	}
	l.answered(h, t, p, sent)
}

// pause waits before a Join is repeated; false when the wait is over anyway.
func (l *line) pause(ctx context.Context, tries int) bool {
	d := min(time.Millisecond<<min(tries*2, 10), l.key.ttl/20)
	timer := time.NewTimer(max(d, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-l.c.done:
	}
	return false
}

// answered: Join answered p to a request sent at that time.
func (l *line) answered(h *Hold, t *ticket, p driver.Place, sent instant) {
	t.hear(p.Holder)
	if p.State == driver.Gone && h.wait.try {
		l.settled()
		l.forget(t)
		l.failTries(p.Holder) // h is one of them
		l.more()
		return
	}
	if t.heard != nil && t.heard.push.State > p.State { // the push overtook the answer
		p.State, p.Token = t.heard.push.State, t.heard.push.Token
	}
	t.extend(sent, p.Lease)
	switch {
	case p.State == driver.Gone || p.State == 0:
		// An id that was tombstoned or broken: a new one may succeed.
		l.forget(t)
		l.renewTicket(h, t)
	case !t.valid(l.c.clock.now()):
		// The answer is older than its lease (F15): not to be trusted.
		l.c.cleaner.add(t)
		t.state = driver.Gone
		l.c.keeper.remove(t)
		l.renewTicket(h, t)
	case p.State == driver.Held:
		l.c.keeper.add(t, sent, p.Recheck)
		l.granted(t, p.Token)
	default:
		t.state = driver.Waiting
		l.joiner = nil
		l.c.keeper.add(t, sent, p.Recheck)
		l.failTries(p.Holder)
		if l.queue.first == nil {
			l.abandon()
		}
	}
}

// renewTicket replaces a ticket that came to nothing by a fresh one, unless
// that has gone on for too long.
func (l *line) renewTicket(h *Hold, t *ticket) {
	fresh := l.newTicket(h)
	fresh.asked, fresh.tries = t.asked, t.tries
	l.next = fresh
	if l.c.clock.now().sub(t.asked) < h.patience() {
		return
	}
	l.settled()
	l.fail(h, &StoreError{Op: "acquire", Name: l.name(),
		Err: driver.Errorf(driver.Unknown, "the store's answers were older than their leases")})
	l.more()
}

// unanswered: Join failed. As long as that may pass, h tries again with the
// same ticket, so that a request which did take effect is found and not
// repeated.
func (l *line) unanswered(h *Hold, t *ticket, err error) {
	class := driver.ClassOf(err)
	if class == driver.Unknown {
		t.unsure = true
	}
	if class != driver.Refused && (l.c.clock.now().sub(t.asked) < h.patience() || !h.impatient()) {
		return
	}
	var le *driver.LimitError
	if errors.As(err, &le) {
		h.wait.have = le.Have
	}
	if class == driver.Refused && !t.unsure {
		l.c.keeper.remove(t)
		t.state = driver.Gone
		l.settled()
		if old := t.Replaces; old != nil {
			l.c.cleaner.addRef(driver.Ref{Ticket: old, State: driver.Held})
		}
	} else {
		l.abandon()
	}
	if class != driver.Refused {
		// Those who queued as long need not find out one by one.
		for q := l.queue.first; q != nil; {
			next := q.next
			if q.impatient() {
				l.fail(q, storeError("acquire", l.name(), err))
			}
			q = next
		}
	}
	l.fail(h, storeError("acquire", l.name(), err))
	l.more()
}

// pushed: the store says by push what became of t.
func (l *line) pushed(t *ticket, p driver.Place) {
	l.mu.Lock()
	switch {
	case t.state == driver.Gone || p.State <= t.state:
	case t.state == 0:
		if t.heard == nil {
			t.heard = new(heard)
		}
		if p.State > t.heard.push.State {
			t.heard.push = p
		}
	case p.State == driver.Held:
		if t.valid(l.c.clock.now()) {
			l.granted(t, p.Token)
		} else {
			l.c.keeper.ask(t) // only a fresh lease lets it hold
		}
	case t.state == driver.Waiting:
		l.misplaced(t)
	default:
		l.mu.Unlock()
		l.lose(t, LossGone)
		return
	}
	l.mu.Unlock()
}

// renewed: Renew answered p for t, to a request sent at that time.
func (l *line) renewed(t *ticket, p driver.Place, sent instant) {
	l.mu.Lock()
	if t.state == driver.Gone {
		l.mu.Unlock()
		return
	}
	switch p.State {
	case driver.Held, driver.Waiting:
		if t.state == driver.Held && sent > t.granted &&
			(p.State == driver.Waiting || p.Token != 0 && p.Token != t.token) {
			// The store went back to an older state, which does not know the
			// grant (F27). The place it has is given up too.
			l.mu.Unlock()
			l.lose(t, LossGone)
			l.c.cleaner.add(t)
			return
		}
		t.extend(sent, p.Lease)
		if p.Holder != "" {
			t.hear(p.Holder)
		}
		if !t.valid(l.c.clock.now()) { // too late to rely on; ask again
			l.c.keeper.retry(t)
			break
		}
		l.c.keeper.add(t, sent, p.Recheck)
		if p.State == driver.Held && t.state == driver.Waiting {
			l.granted(t, p.Token)
		}
	case driver.Gone:
		if t.state == driver.Held {
			l.mu.Unlock()
			l.lose(t, LossGone)
			return
		}
		l.misplaced(t)
	default:
		l.c.keeper.retry(t)
	}
	l.mu.Unlock()
}

// misplaced: the store has dropped a waiting ticket; the head of the queue
// asks for a new place.
func (l *line) misplaced(t *ticket) {
	l.forget(t)
	if l.next == t {
		l.settled()
		l.more()
	}
}

// forget: the store has no place of t any more. A Join of it that is still on
// its way must not take one.
func (l *line) forget(t *ticket) {
	if t.unsure {
		l.c.cleaner.addRef(t.ref())
	}
	t.state = driver.Gone
	l.c.keeper.remove(t)
}
