package lockserver

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

// spec says what an id asks for. It stays the same for an id.
type spec struct {
	name    string
	kind    string
	ttl     time.Duration
	permits int64
	of      int64
	pinned  bool
}

// The kinds of locks, as requests name them.
const (
	kindMutex   = "mutex"
	kindRead    = "read"
	kindWrite   = "write"
	kindPermits = "permits"
)

// state is the state of a hold at this server.
type state uint8

const (
	joining state = iota // a goroutine asks the store
	waiting              // that goroutine has a place
	granted              // the store has granted it; nothing was sent to the client
	held                 // the client may believe that it holds
	over                 // ended here; see reason
)

// hold is an id's hold at this server. Requests attach to it, and none owns it.
//
//	joining, waiting → granted → held → over → forgotten
//	over → joining, when its client asks again: an owner check
//
// A grant of which nothing could be sent, a place whose client is silent, and what was
// released are forgotten at once.
type hold struct {
	t      *table
	key    holdKey
	owner  string // of key, at the store
	id     string
	who    string // principal
	remote string // of the request that made it
	spec   spec
	asked  time.Time
	// prefixes are those of the grants that bound the waits for its name.
	prefixes []string
	opts     []holdfast.Option // for the store
	maxHold  time.Duration     // 0: no bound
	try      bool              // the first try does not wait for a turn

	// Guarded by table.mu.
	state     state
	removed   bool               // no longer in table.holds
	counted   bool               // in the quota
	live      bool               // in table.live
	starts    int32              // number of goroutines that have joined
	polls     int32              // requests that wait for a change
	want      uint64             // of an owner check: the token that it compares
	cancel    context.CancelFunc // ends the goroutine that joins; nil: none does
	ended     chan struct{}      // closed when that goroutine has ended
	changed   chan struct{}      // closed at the next change; nil: nobody looks
	place     *holdfast.Waiting  // while waiting, and never changed; nil: none is known
	queue     *localQueue        // of a pinned hold; nil: it is in none
	keptUntil time.Time          // the end of the place, as answers have said
	// question is about a grant of which its client has heard elsewhere; nil: none is under way.
	question *question
	lock     *holdfast.Hold // granted, held; over: to be released by its client
	unwatch  func() bool    // ends the watch for the end of lock; nil: none has begun
	token    uint64         // of the last grant
	since    time.Time      // of the last grant
	until    time.Time      // end of the claim, as the last request extended it
	seen     time.Time      // when the client was last heard of
	timer    *time.Timer    // of the state: see onTimer
	due      time.Time      // when timer does something
	reason   string         // over: why
	failed   *problem       // why the last attempt ended without a hold
}

// resumable reports whether another server can go on with the hold.
func (h *hold) resumable() bool { return !h.spec.pinned }

// settledLocked reports whether h holds, or has no hold and waits for none.
func (h *hold) settledLocked() bool {
	switch h.state {
	case granted, held:
		return h.lock.Err() == nil // else its end is about to be noted
	case over:
		return true
	}
	return h.removed
}

// changeLocked wakes the requests that wait for a change.
func (h *hold) changeLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// changeOfLocked returns a channel that is closed at the next change.
func (h *hold) changeOfLocked() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// armLocked sets the timer of the hold's state.
func (h *hold) armLocked(d time.Duration) {
	h.due = time.Now().Add(d)
	if h.timer == nil {
		h.timer = time.AfterFunc(d, h.onTimer)
		return
	}
	h.timer.Reset(d)
}

// onTimer does what a state does when its time is over: a wait whose client is silent
// gives its place up, a grant of which nothing could be sent is given back, a hold that
// was not renewed ends, and one that is over is forgotten.
func (h *hold) onTimer() {
	t := h.t
	t.mu.Lock()
	now := time.Now()
	if h.removed || now.Before(h.due) { // it was set again as it fired
		t.mu.Unlock()
		return
	}
	switch h.state {
	case joining, waiting:
		if rest := h.spec.ttl - now.Sub(h.seen); h.polls > 0 || rest > 0 {
			h.armLocked(max(rest, h.spec.ttl/10))
			break
		}
		h.failed = lost("gone")
		h.cancel()
		t.removeLocked(h)
	case granted:
		if h.polls > 0 { // a request is about to answer with it
			h.armLocked(h.spec.ttl / 10)
			break
		}
		t.unlock(h.lock)
		t.removeLocked(h)
		t.mu.Unlock()
		h.report(HoldGivenBack, "")
		return
	case held:
		// A claim that ends by itself is noted by onEnded. Readers of one client share a
		// ticket, which may outlast the claim of one of them.
		if rest := h.endOfClaimLocked().Sub(now); rest > 0 || h.lock.Err() != nil {
			h.armLocked(max(rest, h.spec.ttl/10))
			break
		}
		t.unlock(h.lock)
		h.endLocked("expired")
		t.mu.Unlock()
		h.report(HoldLost, "expired")
		return
	case over:
		if h.lock != nil {
			t.unlock(h.lock)
		}
		t.removeLocked(h)
	}
	t.mu.Unlock()
}

// endOfClaimLocked returns the end of the claim of a hold of which its client may know. A
// client that has not been heard of since the grant can know of it by an event alone, and
// no event moves a claim: the client believes in the hold for as long as in its place, which
// is at most a TTL from its last request.
func (h *hold) endOfClaimLocked() time.Time {
	if silence := h.seen.Add(h.spec.ttl); h.polls == 0 && h.seen.Before(h.since) && silence.Before(h.until) {
		return silence
	}
	return h.until
}

// endLocked notes that a hold has ended here, and tells its client by an event, unless
// another server may have it.
func (h *hold) endLocked(reason string) {
	h.endQuietlyLocked(reason)
	if h.spec.pinned || reason != "expired" {
		h.t.subscribers.push(h.who, h.id, lostEvent(h.id, reason))
	}
}

// endQuietlyLocked notes that a hold has ended here, which is remembered for two TTLs:
// its client may ask again.
func (h *hold) endQuietlyLocked(reason string) {
	h.state, h.reason, h.lock, h.until = over, reason, nil, time.Time{}
	h.t.leaveQueueLocked(h)
	h.t.countWaitLocked(h, false)
	h.armLocked(2 * h.spec.ttl)
	h.changeLocked()
	h.t.countLiveLocked(h, false)
}

// lookFor asks the store whether the owner of a hold whose ticket is gone still holds,
// by the ticket of another server. If not, the client learns of the loss by an event.
// The place is not taken: a lease lasts only as long as the client asks for it.
func (h *hold) lookFor() {
	t := h.t
	t.mu.Lock()
	token := h.token
	t.mu.Unlock()
	holds, err := t.store.holdsWith(context.Background(), &h.spec, h.owner, token)
	t.mu.Lock()
	gone := err == nil && !holds && h.state == over && !h.removed
	if gone {
		t.subscribers.push(h.who, h.id, lostEvent(h.id, "gone"))
	}
	t.mu.Unlock()
	if gone {
		h.report(HoldLost, "gone")
	}
}

// report tells Options.Events, without the table's mutex.
func (h *hold) report(what HoldEvent, reason string) {
	if h.t.onHold == nil {
		return
	}
	h.t.mu.Lock()
	e := HoldInfo{
		Event: what, Name: h.spec.name, Principal: h.who, Remote: h.remote, HashedID: h.owner, Kind: h.spec.kind,
		Token: h.token, Reason: reason,
	}
	switch {
	case what == HoldGranted:
		e.Waited = h.since.Sub(h.asked)
	case !h.since.IsZero():
		e.Held = time.Since(h.since)
	}
	h.t.mu.Unlock()
	h.t.onHold(e)
}

// onEnded notes that the client has lost a hold. The store may still have it by the
// ticket of another server: an owner check tells.
func (h *hold) onEnded(lock *holdfast.Hold) {
	t := h.t
	err := lock.Err()
	e, ok := errors.AsType[*holdfast.LostError](err)
	if err == nil || errors.Is(err, holdfast.ErrReleased) {
		return // Shutdown asks the work to stop, and the hold goes on; or it was released
	}
	reason := "gone"
	if ok {
		reason = lostReason(e.Reason)
	}
	t.mu.Lock()
	if h.removed || h.lock != lock {
		t.mu.Unlock()
		return
	}
	switch {
	case reason == "gone" && ok && h.resumable():
		t.running.Go(h.lookFor) // before a drain takes h for ended
		h.endQuietlyLocked(reason)
		t.mu.Unlock()
		return
	case reason == "max_hold":
		h.endLocked(reason)
		h.lock = lock // kept until its client releases it, or the client library does
	default:
		h.endLocked(reason)
	}
	t.mu.Unlock()
	h.report(HoldLost, reason)
}
