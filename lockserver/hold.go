package lockserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast"
)

// holdKey identifies a hold: the hash of realm, principal and id.
type holdKey [sha256.Size]byte

// ownerPrefix begins the owners of holds at the store.
const ownerPrefix = "serve:"

func (s *Server) keyOf(principal, id string) holdKey {
	b := strconv.AppendQuote(make([]byte, 0, 128), s.options.Realm)
	b = strconv.AppendQuote(append(b, ' '), principal)
	return sha256.Sum256(strconv.AppendQuote(append(b, ' '), id))
}

// owner returns the name at the store that all servers give to a hold.
func (k holdKey) owner() string { return ownerPrefix + hex.EncodeToString(k[:]) }

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
type hold struct {
	key    holdKey
	id     string
	who    string // principal
	remote string // of the request that made it
	spec   spec
	asked  time.Time
	// prefixes are those of the grants that bound the waits for its name.
	prefixes []string

	// Guarded by Server.mu.
	state   state
	want    uint64             // of an owner check: the token that it compares
	try     bool               // the joining goroutine does not wait for a turn
	opts    []holdfast.Option  // for a later owner check
	starts  int                // number of goroutines that have joined
	cancel  context.CancelFunc // ends the goroutine that joins; nil: none does
	ended   chan struct{}      // closed when that goroutine has ended
	changed chan struct{}      // closed at the next change; nil: nobody looks
	place   holdfast.Waiting   // while waiting
	lock    *holdfast.Hold     // granted, held; over: to be released by its client
	token   uint64             // of the last grant
	since   time.Time          // of the last grant
	until   time.Time          // end of the claim, as the last request extended it
	seen    time.Time          // when the client was last heard of
	polls   int                // requests that wait for a change
	timer   *time.Timer        // of the state: see onTimer
	due     time.Time          // when timer does something
	reason  string             // over: why
	failed  *problem           // why the last attempt ended without a hold
	removed bool               // no longer in Server.holds
	counted bool               // in the quota
	live    bool               // in Server.live
}

// resumable reports whether another server can go on with the hold.
func (h *hold) resumable() bool { return !h.spec.pinned }

// changeLocked wakes the requests that wait for a change. Server.mu guards it.
func (h *hold) changeLocked() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// changeOfLocked returns a channel that is closed at the next change. Server.mu guards it.
func (h *hold) changeOfLocked() <-chan struct{} {
	if h.changed == nil {
		h.changed = make(chan struct{})
	}
	return h.changed
}

// armLocked sets the timer of the hold's state. Server.mu guards it.
func (s *Server) armLocked(h *hold, d time.Duration) {
	h.due = time.Now().Add(d)
	if h.timer == nil {
		h.timer = time.AfterFunc(d, func() { s.onTimer(h) })
		return
	}
	h.timer.Reset(d)
}

// addLocked makes a hold known; removeLocked forgets it.
func (s *Server) addLocked(h *hold) {
	s.holds[h.key] = h
	s.quota.countHold(h.who, 1)
}

func (s *Server) removeLocked(h *hold) {
	if h.removed {
		return
	}
	h.removed = true
	delete(s.holds, h.key)
	s.quota.countHold(h.who, -1)
	s.countWaitLocked(h, false)
	s.countLiveLocked(h, false)
	if h.timer != nil {
		h.timer.Stop()
	}
	h.changeLocked()
}

// countLiveLocked counts h among the holds that Drain waits for, or no longer.
func (s *Server) countLiveLocked(h *hold, on bool) {
	if h.live == on {
		return
	}
	h.live = on
	if on {
		s.live++
		return
	}
	s.live--
	s.checkDrainedLocked()
}

// countWaitLocked counts h among the waits of its principal, or no longer.
func (s *Server) countWaitLocked(h *hold, on bool) {
	if h.counted == on {
		return
	}
	h.counted = on
	n := 1
	if !on {
		n = -1
	}
	s.quota.countWait(h.who, h.prefixes, n)
}

// onTimer does what a state does when its time is over: a wait whose client is silent
// gives its place up, a grant of which nothing could be sent is given back, a hold that
// was not renewed ends, and one that is over is forgotten.
func (s *Server) onTimer(h *hold) {
	s.mu.Lock()
	now := time.Now()
	if h.removed || now.Before(h.due) { // it was set again as it fired
		s.mu.Unlock()
		return
	}
	switch h.state {
	case joining, waiting:
		if rest := h.spec.ttl - now.Sub(h.seen); h.polls > 0 || rest > 0 {
			s.armLocked(h, max(rest, h.spec.ttl/10))
			break
		}
		h.failed = lost("gone")
		h.cancel()
		s.removeLocked(h)
	case granted:
		if h.polls > 0 { // a request is about to answer with it
			s.armLocked(h, h.spec.ttl/10)
			break
		}
		s.removeLocked(h)
		s.unlockInBackground(h.lock)
		s.mu.Unlock()
		s.report(h, HoldGivenBack, "")
		return
	case held:
		// A claim that ends by itself is noted by onEnded. Readers of one client share a
		// ticket, which may outlast the claim of one of them.
		if rest := h.until.Sub(now); rest > 0 || h.lock.Err() != nil {
			s.armLocked(h, max(rest, h.spec.ttl/10))
			break
		}
		lock := h.lock
		s.endLocked(h, "expired")
		s.unlockInBackground(lock)
		s.mu.Unlock()
		s.report(h, HoldLost, "expired")
		return
	case over:
		if h.lock != nil {
			s.unlockInBackground(h.lock)
		}
		s.removeLocked(h)
	}
	s.mu.Unlock()
}

// unlockInBackground releases a lock that no request waits for. The client repeats a
// release without an answer until the lease has ended.
func (s *Server) unlockInBackground(lock *holdfast.Hold) {
	s.running.Go(func() { _ = lock.Unlock() })
}

// endLocked notes that a hold has ended here, and tells its client by an event, unless
// another server may have it. Server.mu guards it.
func (s *Server) endLocked(h *hold, reason string) {
	s.endQuietlyLocked(h, reason)
	if h.spec.pinned || reason != "expired" {
		s.subscribers.push(h.who, h.id, lostEvent(h, reason))
	}
}

func lostEvent(h *hold, reason string) fields {
	return fields{{"event", "lost"}, {"id", h.id}, {"reason", reason}}
}

// endQuietlyLocked notes that a hold has ended here, which is remembered for two TTLs:
// its client may ask again. Server.mu guards it.
func (s *Server) endQuietlyLocked(h *hold, reason string) {
	h.state, h.reason, h.lock, h.until = over, reason, nil, time.Time{}
	s.countWaitLocked(h, false)
	s.armLocked(h, 2*h.spec.ttl)
	h.changeLocked()
	s.countLiveLocked(h, false)
}

// lookFor asks the store whether the owner of a hold whose ticket is gone still holds,
// by the ticket of another server. If not, the client learns of the loss by an event.
// The place is not taken: a lease lasts only as long as the client asks for it.
func (s *Server) lookFor(h *hold) {
	s.mu.Lock()
	token := h.token
	s.mu.Unlock()
	holds, err := s.store.holdsWith(context.Background(), &h.spec, h.key.owner(), token)
	s.mu.Lock()
	gone := err == nil && !holds && h.state == over && !h.removed
	if gone {
		s.subscribers.push(h.who, h.id, lostEvent(h, "gone"))
	}
	s.mu.Unlock()
	if gone {
		s.report(h, HoldLost, "gone")
	}
}

// report calls Events.Hold, without the server's mutex.
func (s *Server) report(h *hold, what HoldEvent, reason string) {
	f := s.options.Events.Hold
	if f == nil {
		return
	}
	s.mu.Lock()
	e := HoldInfo{
		Event: what, Name: h.spec.name, Principal: h.who, Remote: h.remote, HashedID: h.key.owner(), Kind: h.spec.kind,
		Token: h.token, Reason: reason,
	}
	switch {
	case what == HoldGranted:
		e.Waited = h.since.Sub(h.asked)
	case !h.since.IsZero():
		e.Held = time.Since(h.since)
	}
	s.mu.Unlock()
	f(e)
}

// onEnded notes that the client has lost a hold. The store may still have it by the
// ticket of another server: an owner check tells.
func (s *Server) onEnded(h *hold, lock *holdfast.Hold) {
	err := lock.Err()
	e, ok := errors.AsType[*holdfast.LostError](err)
	if err == nil || errors.Is(err, holdfast.ErrReleased) {
		return // Shutdown asks the work to stop, and the hold goes on; or it was released
	}
	reason := "gone"
	if ok {
		reason = lostReason(e.Reason)
	}
	s.mu.Lock()
	if h.removed || h.lock != lock {
		s.mu.Unlock()
		return
	}
	switch {
	case reason == "gone" && ok && h.resumable():
		s.endQuietlyLocked(h, reason)
		s.running.Go(func() { s.lookFor(h) })
		s.mu.Unlock()
		return
	case reason == "max_hold":
		s.endLocked(h, reason)
		h.lock = lock // kept until its client releases it, or the client library does
	default:
		s.endLocked(h, reason)
	}
	s.mu.Unlock()
	s.report(h, HoldLost, reason)
}
