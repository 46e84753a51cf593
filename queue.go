package holdfast

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// This file decides; it sends nothing and waits for nothing. acquire.go sends
// Join, renewer.go sends Renew, release.go and cleaner.go send Leave, and they
// report the answers as the events of this table. The state is that of one
// ticket; "-" marks events that do not occur in it, or that change nothing.
// TestQueueTable has a case for each cell.
//
//	event              joining                   waiting              held
//	join reply Held    the head holds            -                    -
//	join reply Waiting waits; Trys fail          -                    -
//	join reply Gone    fresh ticket; a Try fails -                    -
//	reply too old      left; fresh ticket        -                    -
//	join error         repeated, same id         -                    -
//	  Refused          the head fails            -                    -
//	  budget spent     left; the head fails      -                    -
//	push Held          kept for the reply        the head holds       -
//	  claim over       kept for the reply        renewed now          -
//	push Gone          kept for the reply        fresh ticket         lost: gone
//	renew Held         -                         the head holds       claim extended
//	renew Waiting      -                         claim extended       lost: gone; left
//	renew Gone         -                         fresh ticket         lost: gone
//	renew error        -                         renewed soon         renewed soon
//	  claim over       -                         left; fresh ticket   renewed soon
//	claim over         -                         -                    lost: expired; left
//	last one gives up  left, unless never sent   left                 left
//	unlock             -                         -                    handed on, replaced or left
//
// A ticket ends in endTicket, and is then out of the queue. The second column has
// the argument atStore, and what follows from it:
//
//	why                             at the store                     next
//	unlock, 255 hand-offs or 10 ms  kept: replaced by the head's     the head joins
//	unlock, nobody waits            kept: left by the caller         -
//	lost                            kept until its holds have ended  the head joins
//	detached, or Close gave up      kept until its lease ends        the head joins
//	the store has no place for it   absent                           the head joins anew
//	refused                         absent                           the head fails
//	no reply about it is to rely on left in the background           the head joins anew
//	nobody waits for it             left in the background           -
//	ended by Close                  left in the background           -

// queue holds the goroutines of one client that use one key. However many wait,
// it has at most one pending ticket (joining or waiting), which belongs to the
// queue: when the goroutine that asked for it gives up, the next one inherits
// its place. waiters has the goroutines, endTicket and its callers in ending.go
// the ends of tickets.
//
// A mutex is taken under another only as in this table; of a Hold, it is the mutex
// of the root. TestLockOrder compares the table with what the tests do. No request
// is sent and no Observer called under a mutex.
//
//	mutex of         and under it those of
//	queue            laneHealth, Client, Hold, renewer, cleaner, subscription, callCtx
//	laneHealth       Client
//	Client           lanes
type queue struct {
	*laneHealth // of the name's lane; its c is also the queue's client

	key      queueKey
	sameHash *queue // guarded by Client.mu: the next queue with the same hash in queues.byHash

	mu          sync.Mutex
	waiters     waiters  // the goroutines that wait, and which of them joins
	pending     *ticket  // the ticket that joins or waits; nil: none
	openTicket  *ticket  // a held ticket that admits more readers
	lastGranted *ticket  // of the held tickets, the one granted last
	joinCall    *callCtx // the call of the Join in flight
	heldCount   int32    // number of held tickets
	refs        int32    // guarded by Client.mu: callers and holds that use the queue
	placedAt    instant  // when the store last gave a place, or a place last ended
}

// name returns the name that the user gave.
func (q *queue) name() string { return q.c.userName(q.key.name) }

// holder returns the metadata of a ticket that keeps others waiting, as far as
// this client knows one.
func (q *queue) holder() string {
	if t := q.pending; t != nil && t.extra != nil && t.extra.holder != "" {
		return t.extra.holder
	}
	if q.lastGranted != nil {
		return q.lastGranted.Meta
	}
	return ""
}

// admitReader lets a reader in through the open ticket, if no goroutine waits.
func (q *queue) admitReader(h *Hold) bool {
	t := q.openTicket
	if t == nil || q.waiters.first != nil || q.c.closing() {
		return false
	}
	now := q.c.clock.now()
	if t.handOffs >= maxHandOffs || now.sub(t.grantedAt) > maxHandOffTime || !t.valid(now) {
		q.openTicket = nil
		return false
	}
	t.handOffs++
	h.ticket, h.wait.local = t, true
	t.holds.pushBack(h)
	return h.wait.takeGrantLocked()
}

// tryBlocked returns the error of a Try if another goroutine of this client is
// ahead.
func (q *queue) tryBlocked() error {
	waiting := q.waiters.first != nil && !q.waiters.first.wait.try
	if !waiting && !(q.key.exclusive() && q.heldCount > 0) {
		return nil
	}
	return &HeldError{Name: q.name(), Holder: parseHolder(q.holder())}
}

// ensureJoiner creates a pending ticket and makes the head of the queue the
// joiner, if a ticket is needed and none is pending. An exclusive queue with a
// held ticket waits for the local hand-off instead.
func (q *queue) ensureJoiner() {
	h := q.waiters.first
	if h == nil || q.pending != nil || q.key.exclusive() && q.heldCount > 0 {
		return
	}
	q.pending = q.newTicket(h)
	q.waiters.appointJoiner(h)
}

// clearPending forgets the pending ticket, and the joiner with it.
func (q *queue) clearPending() { q.pending, q.waiters.joiner = nil, nil }

func (q *queue) newTicket(h *Hold) *ticket {
	t := h.wait.spareTicket
	if h.wait.spareTicket = nil; t == nil {
		t = new(ticket)
	}
	t.queue = q
	id, meta := q.c.ids.next(h.wait.spec.meta, time.Now())
	t.Ticket = driver.Ticket{
		ID: id, Owner: q.key.owner, Name: q.key.name,
		Units: int64(q.key.units), Limit: q.key.limit, TTL: q.key.ttl,
		Meta: meta,
	}
	return t
}

// onGrant handles the store's news that t holds. t's claim is valid.
func (q *queue) onGrant(t *ticket, token uint64) {
	if q.pending == t {
		q.clearPending()
	}
	t.state, t.storeToken, t.grantedAt = driver.Held, token, q.c.clock.now()
	q.heldCount++
	q.lastGranted = t
	if q.key.manual {
		q.c.renewer.leaveToUser(t)
	}
	q.c.renewer.watchClaim(t)
	h := q.waiters.first
	if h == nil {
		q.endTicket(t, left)
		return
	}
	if token > driver.MaxToken {
		q.endTicket(t, left)
		q.waiters.endWait(h, &StoreError{Op: "acquire", Name: q.name(),
			Err: driver.Errorf(driver.Refused, "the store's tokens are at their end: %d of its own is more than %d", token, uint64(driver.MaxToken))})
		q.ensureJoiner()
		return
	}
	q.grantTo(t, h)
	if q.key.readers() {
		q.openTicket = t
		for h := q.waiters.first; h != nil && t.handOffs < maxHandOffs; h = q.waiters.first {
			t.handOffs++
			h.wait.local = true
			q.grantTo(t, h)
		}
	}
	if q.key.exclusive() {
		q.waiters.endTries(q.name(), t.Meta, 0)
	}
	q.ensureJoiner()
}

// grantTo grants t to h, a waiter.
func (q *queue) grantTo(t *ticket, h *Hold) {
	q.waiters.remove(h)
	h.ticket = t
	t.holds.pushBack(h)
	h.wait.wake()
	if q.waiters.joiner == h || q.waiters.first == nil {
		q.passJoiner() // a semaphore's local hand-off while a ticket was pending
	}
}

// withdraw takes h out of the queue because its wait ends with err. The grant or
// pending ticket of h passes to another waiter, or leaves. withdraw returns the
// error of the wait, which may have ended before.
func (q *queue) withdraw(h *Hold, err error) error {
	if h.ticket != nil { // granted just as the wait ended
		if t := q.dropHold(h); t != nil {
			q.c.cleaner.addHeld(t)
		}
		return err
	}
	if h.wait.err != nil {
		return h.wait.err
	}
	q.waiters.remove(h)
	h.wait.err = err
	if q.waiters.joiner == h || q.waiters.first == nil {
		q.passJoiner()
	}
	return err
}

// passJoiner appoints a new joiner for the pending ticket after the old joiner
// left the queue, and leaves the ticket when no goroutine waits. It does not
// interrupt a Join in flight: the goroutine that sends it passes the role on
// afterwards.
func (q *queue) passJoiner() {
	switch first := q.waiters.first; {
	case q.pending == nil || q.waiters.hasJoiner():
	case first != nil:
		q.waiters.appointJoiner(first)
	default:
		q.endPending(left)
	}
}

// onJoinReply handles the reply st to a Join that was sent at the instant sent.
func (q *queue) onJoinReply(h *Hold, t *ticket, st driver.Status, sent instant) {
	t.noteHolder(st.Holder)
	if st.State == driver.Gone && h.wait.try {
		q.clearPending()
		q.endTicket(t, absent)
		q.waiters.endTries(q.name(), st.Holder, st.Recheck) // h is one of them
		q.ensureJoiner()
		return
	}
	if st.State == driver.Waiting && t.joinPending && q.c.clock.now() >= claimEnd(t.joinSentAt, q.key.ttl) {
		// An earlier Join may have taken a place that has expired since, and this
		// one another: a push about the first one would grant the second.
		q.endDoubtful(h, t)
		return
	}
	if t.extra != nil && t.extra.earlyPush.State > st.State { // the push overtook the answer
		st.State, st.Token = t.extra.earlyPush.State, t.extra.earlyPush.Token
	}
	t.extend(sent, st.Lease)
	switch {
	case st.State == driver.Gone || st.State == 0:
		// The id has a tombstone or was broken; a new id may succeed.
		q.endTicket(t, absent)
		q.replaceTicket(h, t)
	case !t.valid(q.c.clock.now()):
		// The reply is older than its lease (F15), so it proves nothing.
		q.endDoubtful(h, t)
	case st.State == driver.Held:
		q.placedAt = q.c.clock.now()
		q.onGrant(t, st.Token)
		if !q.key.manual {
			q.c.renewer.add(t, sent, st.Recheck)
		}
	default:
		q.placedAt = q.c.clock.now()
		t.state = driver.Waiting
		q.notePlaceLocked(t, st)
		q.waiters.joiner = nil
		q.c.renewer.add(t, sent, st.Recheck)
		q.waiters.endTries(q.name(), st.Holder, 0)
		if q.waiters.first == nil {
			q.endPending(left)
		}
	}
}

// onJoinError handles a failed Join. While the failure may pass, h repeats the
// Join with the same ticket, so that a request that took effect is found and
// not repeated.
func (q *queue) onJoinError(h *Hold, t *ticket, err error) {
	class := driver.ClassOf(err)
	if class == driver.Unknown {
		t.joinPending = true
	}
	if h.wait.mayRetryJoin(t, err) {
		if t.joinPending && q.c.clock.now() >= t.joinSentAt.add(q.key.ttl-q.key.ttl/50) {
			q.endLapsed(t)
		}
		return
	}
	var le *driver.LimitError
	if errors.As(err, &le) {
		h.wait.limitAtStore = le.Have
	}
	at := left
	if class == driver.Refused {
		at = absent
	}
	q.endPending(at)
	if _, notReady := driver.IsNotReady(err); class != driver.Refused && !notReady {
		// Waiters whose budget is spent too need no Join of their own to fail.
		for w := q.waiters.first; w != nil; {
			next := w.next
			if w.wait.budgetLeft() <= 0 {
				q.waiters.endWait(w, storeError("acquire", q.name(), err))
			}
			w = next
		}
	}
	q.waiters.endWait(h, storeError("acquire", q.name(), err))
	q.ensureJoiner()
}

// onPush handles a push about t.
func (q *queue) onPush(t *ticket, st driver.Status) {
	q.mu.Lock()
	switch {
	case t.state == driver.Gone || st.State <= t.state:
	case t.state == 0:
		if st.State > t.ensureExtra().earlyPush.State {
			t.extra.earlyPush, t.extra.pushed = st, true
			if j := q.waiters.joiner; j != nil && q.pending == t {
				j.wait.wake()
			}
		}
	case st.State == driver.Held:
		if t.valid(q.c.clock.now()) && !t.mayHearStalePush() {
			q.onGrant(t, st.Token)
		} else {
			q.c.renewer.renewNow(t) // t may hold only with a fresh lease, in its present place
		}
	case t.state == driver.Waiting:
		q.onPlaceLost(t)
	default:
		q.mu.Unlock()
		t.lose(LossGone)
		return
	}
	q.mu.Unlock()
}

// onRenewReply handles the reply st about t to a Renew that was sent at the
// instant sent.
func (q *queue) onRenewReply(t *ticket, st driver.Status, sent instant) {
	q.mu.Lock()
	if t.state == driver.Gone {
		q.mu.Unlock()
		return
	}
	switch st.State {
	case driver.Held, driver.Waiting:
		if t.state == driver.Held && sent > t.grantedAt &&
			(st.State == driver.Waiting || st.Token != 0 && st.Token != t.storeToken) {
			// The store went back to an older state without the grant (F27).
			// The place in that state is given up too.
			q.mu.Unlock()
			t.lose(LossGone)
			q.c.cleaner.addHeld(t)
			return
		}
		if t.state == driver.Waiting && t.joinPending && !t.valid(q.c.clock.now()) {
			// The place may have expired, and the earlier Join, which came late, may
			// have taken this one: a push about the first one would grant the second.
			t.ensureExtra().stalePush = true
		}
		t.extend(sent, st.Lease)
		if st.Holder != "" {
			t.noteHolder(st.Holder)
		}
		t.endRenewalLocked(nil)
		if st.State == driver.Waiting {
			q.notePlaceLocked(t, st)
		}
		if !t.valid(q.c.clock.now()) { // too late to rely on: renew again
			q.c.renewer.renewSoon(t)
			break
		}
		if st.State == driver.Held && t.state == driver.Waiting {
			q.onGrant(t, st.Token)
		}
		q.c.renewer.add(t, sent, st.Recheck)
	case driver.Gone:
		if t.state == driver.Held {
			q.mu.Unlock()
			t.lose(LossGone)
			return
		}
		q.onPlaceLost(t)
	default:
		if t.state == driver.Waiting && driver.ClassOf(st.Err) == driver.Unknown && !t.valid(q.c.clock.now()) {
			q.endLapsed(t)
			break
		}
		t.endRenewalLocked(st.Err)
		q.c.renewer.renewSoon(t)
	}
	q.mu.Unlock()
}

// onPlaceLost handles the news that the store dropped a waiting ticket: the
// head of the queue joins with a new one.
func (q *queue) onPlaceLost(t *ticket) {
	q.endTicket(t, absent)
	if q.pending == t {
		q.clearPending()
		q.ensureJoiner()
	}
}

// dropHold removes h from its ticket. If h was the last hold of the ticket, the
// ticket passes to the next goroutine, is replaced by a new one at the end of
// the store's queue, or is returned, and the caller makes it leave.
func (q *queue) dropHold(h *Hold) *ticket {
	t := h.ticket
	if t.state != driver.Held {
		return nil // lost in the meantime
	}
	t.holds.remove(h)
	if t.holds.first != nil {
		return nil
	}
	next := q.waiters.first
	if next != nil && (next.wait.try || q.c.closing()) {
		next = nil // a Try sends a Join of its own, and closing ends the others
	}
	now := q.c.clock.now()
	if next != nil && q.key.owner == "" && !q.key.readers() && t.valid(now) {
		if t.handOffs < maxHandOffs && now.sub(t.grantedAt) < maxHandOffTime {
			t.handOffs++
			next.wait.local = true
			q.grantTo(t, next)
			return nil
		}
		if q.key.exclusive() && !t.joinPending && q.pending == nil {
			// Other clients get their turn: one request leaves and joins anew.
			q.endTicket(t, kept)
			old := t.Ticket
			old.Replaces = nil // else each ticket would keep all earlier ones in memory
			q.pending = q.newTicket(next)
			q.pending.Replaces = &old
			q.waiters.appointJoiner(next)
			return nil
		}
	}
	q.endTicket(t, kept)
	q.ensureJoiner()
	return t
}
