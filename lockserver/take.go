package lockserver

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

// startLocked begins a goroutine that takes the lock for h: as a new try, or, with a
// token, by an owner check.
func (h *hold) startLocked(want uint64) {
	t := h.t
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	h.state, h.want, h.cancel, h.ended, h.failed, h.place = joining, want, cancel, ended, nil, nil
	h.starts++
	start := h.starts
	h.seen = time.Now()
	t.enterQueueLocked(h)
	t.countWaitLocked(h, true)
	t.countLiveLocked(h, true)
	h.armLocked(h.spec.ttl)
	t.running.Go(func() {
		defer close(ended)
		defer cancel()
		lock, err := h.take(ctx, want, h.opts)
		h.onTaken(start, lock, err)
	})
}

// recheckLocked begins an owner check of a hold that is over here, unless its end is
// known for certain. resume is the token that the client names, 0 for that of the hold.
func (h *hold) recheckLocked(resume uint64) *problem {
	if h.state != over || h.removed {
		return nil
	}
	if resume == 0 {
		resume = h.token
	}
	if h.reason == "max_hold" || !h.resumable() || resume == 0 {
		return lost(h.reason)
	}
	h.startLocked(resume)
	return nil
}

// errGone is the result of an owner check that found another holder, or none.
var errGone = errors.New("lockserver: the owner does not hold with this token")

// errChanged is the result of an owner check that found the owner's hold, and could not
// share it.
var errChanged = errors.New("lockserver: the owner holds, but its place could not be shared")

// take takes the lock of h. With a token, it is an owner check: Inspect comes first,
// because a question must not take the lock, and then the token that the place really
// has is compared.
func (h *hold) take(ctx context.Context, want uint64, opts []holdfast.Option) (*holdfast.Hold, error) {
	t := h.t
	if want == 0 {
		lock, err := t.store.lock(ctx, &h.spec, opts, h.try)
		if err != nil {
			return nil, err
		}
		return coverPlace(ctx, h, lock)
	}
	if holds, err := t.store.holdsWith(ctx, &h.spec, h.owner, want); err != nil {
		return nil, err
	} else if !holds {
		return nil, errGone
	}
	lock, err := t.store.lock(ctx, &h.spec, opts, true)
	switch {
	case errors.Is(err, holdfast.ErrHeld), errors.Is(err, holdfast.ErrKindMismatch):
		// A client answers a Try so, too, for reasons that are not the store's word about
		// the owner: its own ticket may have ended on the way.
		holds, err := t.store.holdsWith(ctx, &h.spec, h.owner, want)
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
		_ = lock.Unlock()
		return nil, errGone
	}
	return lock, nil
}

// coverPlace returns a grant of h whose claim lasts at least as long as the client was told
// that its place is kept, because an event of the grant moves no claim. The client library
// may have handed it on from another hold, with a ticket that was renewed before that: then
// it is renewed first, or given back if the store confirms that no more while its claim
// lasts. A grant that is given back has left when coverPlace returns.
func coverPlace(ctx context.Context, h *hold, lock *holdfast.Hold) (*holdfast.Hold, error) {
	end := lock.Deadline()
	h.t.mu.Lock()
	until := h.keptUntil
	place := knownOf(h.place)
	if place.Until = placeEndLocked(h); place.Until.IsZero() || place.Until.After(end) {
		place.Until = end // later answers say no more
	}
	h.place = &place
	h.t.mu.Unlock()
	if !end.Before(until) {
		return lock, nil
	}
	bounded, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for {
		err := lock.Renew(bounded)
		if err == nil {
			return lock, nil
		}
		pause := time.NewTimer(h.spec.ttl / 60)
		select {
		case <-pause.C:
		case <-bounded.Done():
		}
		pause.Stop()
		if bounded.Err() != nil || lock.Err() != nil {
			_ = lock.Unlock()
			return nil, err
		}
	}
}

// onWaiting notes the place of h. A try beside an owner check tells nothing.
func (h *hold) onWaiting(w holdfast.Waiting) {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	if h.state != joining && h.state != waiting || h.want != 0 {
		return
	}
	before := placeEndLocked(h)
	first := h.state == joining
	h.state, h.place = waiting, &w
	if first || !before.After(time.Now()) {
		h.changeLocked()
	}
	h.queue.confirmLocked(w.Until)
}

// knownOf returns what is known of a place.
func knownOf(place *holdfast.Waiting) holdfast.Waiting {
	if place == nil {
		return holdfast.Waiting{Ahead: -1}
	}
	return *place
}

// onTaken notes the end of the goroutine that joined, which was the start-th of h.
func (h *hold) onTaken(start int32, lock *holdfast.Hold, err error) {
	t := h.t
	t.mu.Lock()
	if h.removed || h.starts != start { // released, its client was silent, or an owner check came after
		t.mu.Unlock()
		if lock != nil {
			_ = lock.Unlock()
		}
		return
	}
	h.cancel, h.ended, h.place = nil, nil, nil
	t.countWaitLocked(h, false)
	if err != nil {
		h.onFailedLocked(err)
		t.mu.Unlock()
		if errors.Is(err, errGone) {
			h.report(HoldLost, "gone")
		}
		return
	}
	what := HoldGranted
	if h.want != 0 {
		what = HoldResumed
	}
	now := time.Now()
	unsent := unsentFor(h.spec.ttl, now.Sub(h.seen), h.state == waiting)
	h.state, h.lock, h.token, h.since, h.until = granted, lock, lock.Token(), now, lock.Deadline()
	h.queue.noteHoldLocked(h, h.until)
	h.armLocked(unsent)
	if h.want != 0 || t.subscribers.push(h.who, h.id, fields{{"event", "held"}, {"id", h.id}, {"token", h.token}}) {
		h.sentLocked() // a client that resumes believes in its hold already
	}
	h.changeLocked()
	t.mu.Unlock()
	h.report(what, "")
	// No goroutine waits for the end of the hold, and none begins when it is released.
	stop := context.AfterFunc(lock.Context(), func() { h.onEnded(lock) })
	t.mu.Lock()
	defer t.mu.Unlock()
	h.unwatch = stop
	if h.removed {
		stop()
	}
}

// sentLocked notes that the client may learn of the grant from now on: the claim alone
// ends the hold.
func (h *hold) sentLocked() {
	if h.state == granted {
		h.state = held
		h.armLocked(max(0, time.Until(h.endOfClaimLocked())))
	}
}

// onFailedLocked notes that an attempt ended without a hold.
func (h *hold) onFailedLocked(err error) {
	t := h.t
	switch {
	case errors.Is(err, errGone):
		h.failed = lost("gone")
		h.endLocked("gone")
		return
	case errors.Is(err, context.Canceled):
		h.failed = draining()
	default:
		h.failed = problemOf(err)
	}
	if h.want != 0 && h.token != 0 { // it was lost here, and nobody knows more yet
		h.state, h.reason = over, "gone"
		t.countLiveLocked(h, false)
		h.armLocked(2 * h.spec.ttl)
		h.changeLocked()
		return
	}
	h.state = over
	t.removeLocked(h)
}

// unsentFor returns for how long a grant is kept of which nothing could be sent. asked is the
// time since its client's last request. One that waits renews its place a third of the TTL
// after that, and its next request may take a sixth of the TTL.
func unsentFor(ttl, asked time.Duration, waits bool) time.Duration {
	keep := ttl / 3
	if waits {
		keep = max(keep, ttl/2-asked)
	}
	return max(0, min(keep, ttl-asked))
}
