package lockserver

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

// startLocked begins a goroutine that takes the lock for h: as a new try, or, with a
// token, by an owner check. An owner check may follow a try that still waits. It ends that
// first, because the client library refuses a Try behind it without asking the store; the
// owner keeps its place by the ticket of the server that has told its client of the grant.
// Server.mu guards h.
func (s *Server) startLocked(h *hold, want uint64) {
	giveUp, gaveUp := h.cancel, h.ended
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	h.state, h.want, h.cancel, h.ended, h.failed, h.place = joining, want, cancel, ended, nil, holdfast.Waiting{Ahead: -1}
	h.starts++
	start := h.starts
	h.seen = time.Now()
	s.countWaitLocked(h, true)
	s.countLiveLocked(h, true)
	s.armLocked(h, h.spec.ttl)
	s.running.Go(func() {
		defer close(ended)
		defer cancel()
		if giveUp != nil {
			giveUp()
			<-gaveUp
		}
		lock, err := s.take(ctx, h, want)
		s.onTaken(h, start, lock, err)
	})
}

// errGone is the result of an owner check that found another holder, or none.
var errGone = errors.New("lockserver: the owner does not hold with this token")

// errChanged is the result of an owner check that found the owner's hold, and could not
// share it.
var errChanged = errors.New("lockserver: the owner holds, but its place could not be shared")

// take takes the lock of h. With a token, it is an owner check: Inspect comes first,
// because a question must not take the lock, and then the token that the place really
// has is compared.
func (s *Server) take(ctx context.Context, h *hold, want uint64) (*holdfast.Hold, error) {
	if want == 0 {
		return s.store.lock(ctx, &h.spec, h.opts, h.try)
	}
	if holds, err := s.store.holdsWith(ctx, &h.spec, h.key.owner(), want); err != nil {
		return nil, err
	} else if !holds {
		return nil, errGone
	}
	lock, err := s.store.lock(ctx, &h.spec, h.opts, true)
	switch {
	case errors.Is(err, holdfast.ErrHeld), errors.Is(err, holdfast.ErrKindMismatch):
		// A client answers a Try so, too, for reasons that are not the store's word about
		// the owner: its own ticket may have ended on the way.
		holds, err := s.store.holdsWith(ctx, &h.spec, h.key.owner(), want)
		switch {
		case err != nil:
			return nil, err
		case holds:
			return nil, errChanged
		}
		return nil, errGone
	case err != nil:
		return nil, err
	case lock.Token() != want:
		s.unlockInBackground(lock)
		return nil, errGone
	}
	return lock, nil
}

// onWaiting notes the place of h. A try beside an owner check tells nothing.
func (s *Server) onWaiting(h *hold, w holdfast.Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.state != joining && h.state != waiting || h.want != 0 {
		return
	}
	first := h.state == joining
	h.state, h.place = waiting, w
	if first {
		h.changeLocked()
	}
}

// onTaken notes the end of the goroutine that joined, which was the start-th of h.
func (s *Server) onTaken(h *hold, start int, lock *holdfast.Hold, err error) {
	s.mu.Lock()
	if h.removed || h.starts != start { // released, its client was silent, or an owner check came after
		s.mu.Unlock()
		if lock != nil {
			_ = lock.Unlock()
		}
		return
	}
	h.cancel, h.ended = nil, nil
	s.countWaitLocked(h, false)
	if err != nil {
		s.onFailedLocked(h, err)
		s.mu.Unlock()
		if errors.Is(err, errGone) {
			s.report(h, HoldLost, "gone")
		}
		return
	}
	what := HoldGranted
	if h.want != 0 {
		what = HoldResumed
	}
	now := time.Now()
	h.state, h.lock, h.token, h.since, h.until = granted, lock, lock.Token(), now, lock.Deadline()
	s.armLocked(h, h.spec.ttl/3)
	if h.want != 0 || s.subscribers.push(h.who, h.id, fields{{"event", "held"}, {"id", h.id}, {"token", h.token}}) {
		s.sentLocked(h) // a client that resumes believes in its hold already
	}
	h.changeLocked()
	s.mu.Unlock()
	s.report(h, what, "")
	// No goroutine waits for the end of the hold.
	context.AfterFunc(lock.Context(), func() { s.onEnded(h, lock) })
}

// sentLocked notes that the client may learn of the grant from now on: the claim alone
// ends the hold. Server.mu guards it.
func (s *Server) sentLocked(h *hold) {
	if h.state == granted {
		h.state = held
		s.armLocked(h, max(0, time.Until(h.until)))
	}
}

// onFailedLocked notes that an attempt ended without a hold.
func (s *Server) onFailedLocked(h *hold, err error) {
	switch {
	case errors.Is(err, errGone):
		h.failed = lost("gone")
		s.endLocked(h, "gone")
		return
	case errors.Is(err, context.Canceled):
		h.failed = draining()
	default:
		h.failed = problemOf(err)
	}
	if h.want != 0 && h.token != 0 { // it was lost here, and nobody knows more yet
		h.state, h.reason = over, "gone"
		s.countLiveLocked(h, false)
		s.armLocked(h, 2*h.spec.ttl)
		h.changeLocked()
		return
	}
	h.state = over
	s.removeLocked(h)
}
