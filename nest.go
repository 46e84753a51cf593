package holdfast

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// rootHold is a Hold that is nested in no other, as the holds nested in it know
// it: its ticket is theirs, its mutex guards their ends, and the lock is released
// when the last of them has left it.
type rootHold Hold

// nestedHolds is the record of the holds nested in a hold.
type nestedHolds struct {
	holds []*Hold // of a root: ended together with it
	slot  chan struct{}
}

// nestedLocked returns the record of the holds nested in h. The root's mu
// guards it.
func (h *Hold) nestedLocked() *nestedHolds {
	if h.nested == nil {
		h.nested = new(nestedHolds)
	}
	return h.nested
}

// nest takes a hold inside the hold outer, without a request. Holds opened with
// one context exclude each other, unless they only read, so that goroutines
// that share a context are still serialised.
func (h *Hold) nest(ctx context.Context, outer *Hold, key queueKey, try bool) error {
	if err := outer.Err(); err != nil {
		return err
	}
	r := outer.root
	if key.units > r.queue.key.units {
		return &nameError{h.Name(), ErrUpgrade, "inside " + kindOfKey(r.queue.key) + " of the same name"}
	}
	if err := h.wait.spec.fits(&r.queue.key); err != nil {
		return err
	}
	shared := r.queue.key.readers()
	if !shared {
		if err := outer.takeSlot(ctx, h, try); err != nil {
			return err
		}
	}
	h.outer, h.root, h.queue, h.ticket, h.taken = outer, r, r.queue, r.ticket, true
	h.token, h.since = r.token, r.queue.c.clock.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	over := outer.endErr
	if over == nil && r.stopping {
		over = r.queue.closedError()
	}
	if over != nil {
		if !shared {
			outer.nested.freeSlot()
		}
		return over
	}
	r.unlocksLeft++
	in := (*Hold)(r).nestedLocked()
	in.holds = append(in.holds, h)
	startMaxHoldLocked(h)
	return nil
}

// fits refuses options of a nested lock that its outer hold, of the given key,
// does not have: both share the outer hold's ticket.
func (s *spec) fits(outer *queueKey) error {
	switch {
	case s.given&givenOwner != 0 && s.key.owner != outer.owner:
		return fmt.Errorf("holdfast: %q: owner %q inside a hold of owner %q: a nested lock has the owner of the outer hold",
			s.name, s.key.owner, outer.owner)
	case s.given&givenTTL != 0 && s.key.ttl != outer.ttl:
		return fmt.Errorf("holdfast: %q: TTL %v inside a hold with a TTL of %v: a nested lock shares the lease of the outer hold",
			s.name, s.key.ttl, outer.ttl)
	case s.given&givenManual != 0 && !outer.manual:
		return fmt.Errorf("holdfast: %q: WithManualRenewal inside a hold that the client renews: a nested lock shares the lease of the outer hold",
			s.name)
	}
	return nil
}

// takeSlot takes the only slot inside a hold.
func (h *Hold) takeSlot(ctx context.Context, in *Hold, try bool) error {
	h.root.mu.Lock()
	if h.nestedLocked().slot == nil {
		h.nested.slot = make(chan struct{}, 1)
	}
	slot := h.nested.slot
	h.root.mu.Unlock()
	select {
	case slot <- struct{}{}:
		return nil
	default:
	}
	if try {
		return &HeldError{Name: in.Name(), Holder: parseHolder(h.root.ticket.Meta)}
	}
	over := h.Context()
	select {
	case slot <- struct{}{}:
		return nil
	case <-ctx.Done():
	case <-over.Done():
	}
	switch {
	case h.root.queue.c.closing():
		return &nameError{name: in.Name(), err: ErrClosed}
	case over.Err() != nil:
		return context.Cause(over)
	}
	return waitError(ctx, in.Name(), in.wait.calledAt, Holder{})
}

// freeSlot frees the slot that takeSlot took.
func (n *nestedHolds) freeSlot() { <-n.slot }

// isNestedIn reports whether h is o or nested in it.
func (h *Hold) isNestedIn(o *Hold) bool {
	for h != nil && h != o {
		h = h.outer
	}
	return h == o
}

// holdsLocked yields the root and the holds nested in it that have not left it.
func (r *rootHold) holdsLocked() iter.Seq[*Hold] {
	return func(yield func(*Hold) bool) {
		if !yield((*Hold)(r)) || r.nested == nil {
			return
		}
		for _, n := range r.nested.holds {
			if !yield(n) {
				return
			}
		}
	}
}

// end ends a root and the holds nested in it. Only the first cause counts. last
// reports whether this call ended the root; reported, whether a loss of the root
// was reported before.
func (r *rootHold) end(why error) (last, reported bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reported = errors.Is(r.endErr, ErrLost)
	return r.endLocked(why), reported
}

// endLocked is end. It reports whether this call ended the root.
func (r *rootHold) endLocked(why error) bool {
	if r.unlocksLeft == 0 {
		return false
	}
	for n := range r.holdsLocked() {
		n.leaveLocked(why)
	}
	r.cleanUpLocked()
	return true
}

// cleanUpLocked drops the parts that a root that has ended does not need.
func (r *rootHold) cleanUpLocked() {
	r.maxHold.stop()
	if r.nested == nil {
		return
	}
	for _, n := range r.nested.holds {
		n.maxHold.stop()
	}
	r.nested.holds = nil
}

// doneError returns the error of HoldDone for a root that has ended. released is the
// result of its release.
func (r *rootHold) doneError(released error) error {
	if err := (*Hold)(r).endError(); err != ErrReleased {
		return err
	}
	return released
}
