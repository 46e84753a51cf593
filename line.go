package holdfast

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// lineKey tells local lines apart: goroutines with equal keys can take over
// from each other. Different keys of one name meet at the store only.
type lineKey struct {
	name  string // with the client's prefix
	limit int64
	units int64
	owner string
	ttl   time.Duration
}

// name is that given by the user.
func (l *line) name() string { return l.c.userName(l.key.name) }

// exclusive lines have at most one held ticket, which is handed on.
func (k *lineKey) exclusive() bool { return k.units == k.limit && k.owner == "" }

// readers share one ticket while it is fresh.
func (k *lineKey) readers() bool {
	return k.limit == driver.RWLimit && k.units == 1 && k.owner == ""
}

// line is where the goroutines of one client queue for one key. It has at most
// one ticket on its way (joining or waiting) however many goroutines wait, and
// that ticket belongs to the line: when the goroutine that asked for it gives
// up, the next one inherits the place.
//
// One goroutine at a time is the joiner: the only one that sends Join, and the
// only one that may replace next. The role passes on with the head of the
// queue.
type line struct {
	c    *Client
	key  lineKey
	same *line // guarded by Client.mu: the next one in its place of Client.lines

	mu     sync.Mutex
	queue  holdList // goroutines that wait, first come first
	next   *ticket  // the ticket on its way, nil for none
	joiner *Hold    // the joiner, nil when next needs none
	open   *ticket  // a held ticket that admits more readers
	last   *ticket  // the one granted last, of those held
	call   *callCtx // of the Join under way
	held   int32    // tickets held
	tries  int32    // of those that wait, those that do not wait for a turn
	refs   int32    // guarded by Client.mu: callers and holds that use the line
	sends  bool     // the joiner is in join, and finds a successor itself
}

// solo is what a Lock needs that meets nobody, in one piece.
type solo struct {
	line   line
	hold   Hold
	ticket ticket
}

// acquire waits for a hold in this line. h is new. With try it does not wait,
// and does not overtake waiters.
func (l *line) acquire(ctx context.Context, h *Hold, try bool) error {
	h.wait.try = try
	l.mu.Lock()
	if l.admit(h) {
		l.mu.Unlock()
		return nil
	}
	if h.wait.try {
		if err := l.inTheWay(); err != nil {
			l.mu.Unlock()
			return err
		}
		l.tries++
	}
	l.queue.pushBack(h)
	l.more()
	for {
		switch {
		case h.wait.err != nil:
			l.mu.Unlock()
			return h.wait.err
		case h.t != nil && l.c.closed(): // perhaps too late for Close to see it
			l.mu.Unlock()
			return l.giveUp(h, nil)
		case h.t != nil:
			if h.take() {
				l.mu.Unlock()
				return nil
			}
			// Lost between grant and waking: back to the front, with a place
			// to be asked for anew. A Try does not pass who is there by now.
			h.t = nil
			if h.wait.try {
				if h.wait.err = l.inTheWay(); h.wait.err != nil {
					continue
				}
				l.tries++
			}
			l.queue.pushFront(h)
			l.more()
			continue
		case l.joiner == h:
			l.sends = true
			l.mu.Unlock()
			l.join(ctx, h)
			l.sends = false
			if l.joiner == h && !h.queued() {
				l.passOn() // a hand-over overtook its Join
			}
			if !h.queued() || ctx.Err() == nil && !l.c.closed() {
				continue
			}
		}
		if l.c.closed() { // Close rouses only those that it finds asleep
			l.mu.Unlock()
			return l.giveUp(h, nil)
		}
		wake := h.wait.wake
		if wake == nil {
			wake = make(chan struct{}, 1)
			h.wait.wake = wake
		}
		tell := l.waitingFor(h)
		l.mu.Unlock()
		tell()
		over := ctx.Done()
		if over == nil { // one channel costs less than a choice of two
			<-wake
			l.mu.Lock()
			continue
		}
		select {
		case <-wake:
			l.mu.Lock()
		case <-over:
			return l.giveUp(h, ctx)
		}
	}
}

// waitingFor returns the report to the Observer, once for each wait.
func (l *line) waitingFor(h *Hold) func() {
	o := l.c.observer()
	if h.wait.told || o.Waiting == nil || l.joiner == h {
		return func() {}
	}
	h.wait.told = true
	who := parseHolder(l.holder())
	return func() { guard(func() { o.Waiting(l.name(), who) }) }
}

// holder is the metadata of who is in the way, as far as known here.
func (l *line) holder() string {
	if t := l.next; t != nil && t.heard != nil && t.heard.holder != "" {
		return t.heard.holder
	}
	if l.last != nil {
		return l.last.Meta
	}
	return ""
}

// admit lets a reader in through a ticket that is open, if nobody queues.
func (l *line) admit(h *Hold) bool {
	t := l.open
	if t == nil || l.queue.first != nil {
		return false
	}
	now := l.c.clock.now()
	if t.passes >= handOverTimes || now.sub(t.granted) > handOverTime || !t.valid(now) {
		l.open = nil
		return false
	}
	t.passes++
	h.t = t
	t.users.pushBack(h)
	return h.take()
}

// inTheWay is the answer to a Try when somebody of this client is ahead.
func (l *line) inTheWay() error {
	waiting := l.queue.first != nil && !l.queue.first.wait.try
	if !waiting && !(l.key.exclusive() && l.held > 0) {
		return nil
	}
	return &HeldError{Name: l.name(), Holder: parseHolder(l.holder())}
}

// more makes the head of the queue the joiner, if a ticket should be on its
// way and is not. A line whose one hold is local waits for the hand-over.
func (l *line) more() {
	h := l.queue.first
	if h == nil || l.next != nil || l.key.exclusive() && l.held > 0 {
		return
	}
	l.next = l.newTicket(h)
	l.appoint(h)
}

func (l *line) appoint(h *Hold) {
	l.joiner = h
	h.rouse()
}

// settled: there is no ticket on its way any more, and so no joiner.
func (l *line) settled() { l.next, l.joiner = nil, nil }

func (l *line) newTicket(h *Hold) *ticket {
	t := h.wait.spare
	if h.wait.spare = nil; t == nil {
		t = new(ticket)
	}
	t.line = l
	id, meta := l.c.newID(h.wait.spec.meta, time.Now())
	t.Ticket = driver.Ticket{
		ID: id, Owner: l.key.owner, Name: l.key.name,
		Units: l.key.units, Limit: l.key.limit, TTL: l.key.ttl,
		Meta: meta,
	}
	return t
}

// granted: the store says that t holds. Its claim is valid.
func (l *line) granted(t *ticket, token uint64) {
	if l.next == t {
		l.settled()
	}
	t.state, t.token, t.granted = driver.Held, token, l.c.clock.now()
	l.held++
	l.last = t
	l.c.keeper.hold(t)
	h := l.queue.first
	if h == nil {
		l.discard(t)
		return
	}
	if token > driver.MaxToken {
		l.discard(t)
		l.fail(h, &StoreError{Op: "acquire", Name: l.name(),
			Err: driver.Errorf(driver.Refused, "the store's tokens are at their end: %d of its own is more than %d", token, uint64(driver.MaxToken))})
		l.more()
		return
	}
	l.give(t, h)
	if l.key.readers() {
		l.open = t
		for h := l.queue.first; h != nil && t.passes < handOverTimes; h = l.queue.first {
			t.passes++
			l.give(t, h)
		}
	}
	if l.key.exclusive() {
		l.failTries(t.Meta)
	}
	l.more()
}

// unqueue takes h, which waits, out of the queue.
func (l *line) unqueue(h *Hold) {
	l.queue.remove(h)
	if h.wait.try {
		l.tries--
	}
}

// give grants t to h, which is in the queue.
func (l *line) give(t *ticket, h *Hold) {
	l.unqueue(h)
	h.t = t
	t.users.pushBack(h)
	h.rouse()
	if l.joiner == h || l.queue.first == nil {
		l.passOn() // of a semaphore: handed over while a ticket was on its way
	}
}

// fail ends the wait of h, unless it has got what it waited for.
func (l *line) fail(h *Hold, err error) {
	if !h.queued() {
		return
	}
	l.unqueue(h)
	h.wait.err = err
	h.rouse()
}

// failTries ends those who do not wait: somebody holds.
func (l *line) failTries(holder string) {
	for h := l.queue.first; h != nil && l.tries > 0; {
		next := h.next
		if h.wait.try {
			l.fail(h, &HeldError{Name: l.name(), Holder: parseHolder(holder)})
		}
		h = next
	}
}

// giveUp ends a wait whose context ended, or that Close ended (ctx nil). What
// the wait had is passed on, or left.
func (l *line) giveUp(h *Hold, ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := error(&nameError{name: l.name(), err: ErrClosed})
	if ctx != nil {
		err = waitError(ctx, l.name(), h.wait.asked, parseHolder(l.holder()))
	}
	if h.t != nil { // the grant and the end of the wait crossed
		if t := l.drop(h); t != nil {
			l.c.cleaner.add(t)
		}
		return err
	}
	if h.wait.err != nil {
		return h.wait.err
	}
	l.unqueue(h)
	h.wait.err = err
	if l.joiner == h || l.queue.first == nil {
		l.passOn()
	}
	return err
}

// passOn finds the ticket on its way a new joiner after the one it had has
// left the queue, or leaves it when nobody waits any more. A Join under way is
// not interrupted; who sends it passes the role on afterwards.
func (l *line) passOn() {
	switch first := l.queue.first; {
	case l.next == nil || l.sends || l.joiner != nil && l.joiner.queued():
	case first != nil:
		l.appoint(first)
	default:
		l.abandon()
	}
}

// abandon leaves the ticket on its way: nobody waits for it any more.
func (l *line) abandon() {
	t := l.next
	l.settled()
	if old := t.Replaces; old != nil && t.state == 0 {
		l.c.cleaner.addRef(driver.Ref{Ticket: old, State: driver.Held})
	}
	if t.state == 0 && t.tries == 0 {
		return // never asked for
	}
	l.c.keeper.remove(t)
	ref := t.ref()
	t.state = driver.Gone
	l.c.cleaner.addRef(ref)
}

// discard leaves a held ticket that nobody wants.
func (l *line) discard(t *ticket) {
	l.retire(t)
	l.c.cleaner.add(t)
}

// retire takes a held ticket out of the line; the store still has it.
func (l *line) retire(t *ticket) {
	l.held--
	if l.open == t {
		l.open = nil
	}
	if l.last == t {
		l.last = nil
	}
	t.state = driver.Gone
	l.c.keeper.remove(t)
}
