package holdfast

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// phase is the progress of closing a client. It only moves forward.
type phase uint8

const (
	phaseOpen     phase = iota
	phaseShutdown       // calls refuse, waits end, holds are asked to stop
	phaseClosing        // Close has begun: bare holds have ended too
	phaseClosed         // nothing is renewed any more
)

// shutdown is the state of a client that closes.
type shutdown struct {
	c       *Client
	closing chan struct{} // closed when calls begin to refuse
	idle    chan struct{} // closed when every hold that was asked to stop has ended

	finished chan struct{} // closed when the client has closed
	err      error         // of closing; written before finished is closed

	// Guarded by Client.mu.
	phase  phase
	asked  bool                   // no hold is left that has not been asked
	isIdle bool                   // idle is closed
	begun  bool                   // a caller of finish closes the client
	left   map[*rootHold]struct{} // the roots that were asked to stop, until they end

	abandoned []string // names of the holds that ended under a function
}

func (s *shutdown) init(c *Client) {
	s.c = c
	s.closing, s.idle, s.finished = make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.left = make(map[*rootHold]struct{})
}

// checkIdleLocked closes idle after the end of the last hold that was asked to
// stop.
func (s *shutdown) checkIdleLocked() {
	if s.asked && len(s.left) == 0 && !s.isIdle {
		s.isIdle = true
		close(s.idle)
	}
}

// isDone reports whether done is closed.
func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// closing reports whether Shutdown or Close has begun: calls refuse, and waits
// end.
func (c *Client) closing() bool { return isDone(c.shutdown.closing) }

// ShutdownError reports that Shutdown or Close stopped waiting while locks were
// still held. These locks were not released: after Shutdown they are still held
// and renewed; after Close each of them ends with its lease.
type ShutdownError struct {
	Held  []string // the name of each hold that is left, sorted; a name may come several times
	Cause error    // the context's cause, or the bound of Close, which matches context.DeadlineExceeded
}

// Error names the cause, and at most five of the locks.
func (e *ShutdownError) Error() string {
	names := make([]string, 0, 6)
	for i, name := range e.Held {
		if i == 5 {
			names = append(names, fmt.Sprintf("%d more", len(e.Held)-i))
			break
		}
		names = append(names, fmt.Sprintf("%q", name))
	}
	return fmt.Sprintf("holdfast: shutdown: still held: %s: %v", strings.Join(names, ", "), e.Cause)
}

// Unwrap returns Cause.
func (e *ShutdownError) Unwrap() error { return e.Cause }

// Shutdown closes the client without taking a lock from work that still runs.
// From the call on, Lock and the like return ErrClosed, also for a lock nested
// in a hold; waits end with ErrClosed and leave their places. The context of
// every hold ends with ErrShutdown as its cause, which asks the work to stop.
// The hold stays valid and renewed, with a nil Err, until its Unlock. Inspect,
// Names, Break, Check and LastDone go on working.
//
// Shutdown blocks until every hold is unlocked, detached or lost. Then it closes
// the client and returns what Close does: a store that does not answer delays that
// for as long as it delays Close, whatever ctx says. When ctx ends first, Shutdown
// returns a *ShutdownError and takes nothing away: call it again, call Close, or
// end the process and its leases. A nil ctx is an error. After Close, Shutdown returns
// what Close did. It is safe for concurrent use. The functions of Do must not
// call it: each would wait for itself.
func (c *Client) Shutdown(ctx context.Context) error {
	switch {
	case !c.made():
		return errNoClient
	case ctx == nil:
		return errNoCtx
	}
	c.shutdown.begin(phaseShutdown)
	select {
	case <-c.shutdown.idle:
	case <-c.done:
	case <-ctx.Done():
		if held := c.shutdown.heldNames(); len(held) > 0 {
			return &ShutdownError{Held: held, Cause: context.Cause(ctx)}
		}
	}
	return c.shutdown.finish()
}

// Close ends the client now. Holds taken with Lock end at once, with ErrClosed
// as their cause, and are released at the store. Functions of Do, Once and Lead
// are asked to stop as by Shutdown, and their locks are released when they return.
// Close waits for them for a third of the client's TTL, at most 5 s and at least
// 100 ms. A lock whose function has not returned then is not released: it ends
// with its lease, and a *ShutdownError names it. Waits and calls end with
// ErrClosed, as by Shutdown, and so do Inspect, Names, Break, Check and LastDone.
// Close then closes the driver.
//
// Close blocks as long again for the store to confirm the releases, and until
// the calls of the driver have noticed the end of their contexts. No goroutine
// of the client survives Close, except functions of Do and of the Observer that
// have not returned. If a release was not confirmed, the hold ends with its
// lease, and Close returns a *StoreError. Close is idempotent and safe for
// concurrent use. A function of Do that calls Close waits for itself until the
// bound, and its lock is not released.
func (c *Client) Close() error {
	if !c.made() {
		return errNoClient
	}
	c.shutdown.begin(phaseClosing)
	bound := time.NewTimer(c.shutdown.timeout())
	defer bound.Stop()
	select {
	case <-c.shutdown.idle:
	case <-c.done:
	case <-bound.C:
	}
	return c.shutdown.finish()
}

// timeout bounds how long Close waits for functions, and then for the
// store.
func (s *shutdown) timeout() time.Duration { return releaseTimeout(s.c.settings.ttl) }

// begin makes calls refuse, ends the waits, and asks the holds to stop.
// From phaseClosing on it ends the holds under which no function runs.
func (s *shutdown) begin(p phase) {
	c := s.c
	c.mu.Lock()
	if s.phase == phaseOpen {
		close(s.closing)
	}
	s.phase = max(s.phase, p)
	c.mu.Unlock()

	for _, q := range c.queues.all() {
		q.mu.Lock()
		if q.joinCall != nil {
			q.joinCall.stop()
		}
		for h := q.waiters.first; h != nil; {
			next := h.next
			if h.wait.inCallback {
				s.endCallbackWait(h)
			} else {
				h.wait.wake()
			}
			h = next
		}
		q.mu.Unlock()
	}
	for t := range c.renewer.heldTickets() {
		t.stopHolds(p)
	}
	c.mu.Lock()
	s.asked = true
	s.checkIdleLocked()
	c.mu.Unlock()
}

// endCallbackWait ends the wait of h, whose goroutine runs a function of the user's.
// Nothing waits for the call: the function may have called Shutdown or Close. The
// caller has locked the queue.
func (s *shutdown) endCallbackWait(h *Hold) {
	q, w := h.queue, h.wait
	over := q.closedError()
	w.inCallback, w.uncounted = false, true
	if h.queuedLocked() {
		_ = q.withdraw(h, over)
	}
	h.ticket, w.err = nil, over
	s.c.calls.Done()
}

// stopHolds asks the holds of t to stop. From phaseClosing on it ends those
// under which no function runs, and leaves t when none remains.
func (t *ticket) stopHolds(p phase) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.state != driver.Held {
		return
	}
	over := q.closedError()
	var ended []endedHold
	for h := t.holds.first; h != nil; {
		next := h.next
		switch {
		case !h.taken && h.wait.inCallback:
			t.holds.remove(h)
			q.c.shutdown.endCallbackWait(h)
		case !h.taken:
			h.wait.wake() // its goroutine gives the grant up
		case p >= phaseClosing && h.root.endIfBare(over):
			t.holds.remove(h)
			q.c.shutdown.holdEnded(h.root)
			ended = append(ended, endedHold{h.root, q.c.clock.now(), over})
		case h.root.askToStop():
			q.c.mu.Lock()
			q.c.shutdown.left[h.root] = struct{}{}
			q.c.mu.Unlock()
		}
		h = next
	}
	if t.holds.first == nil {
		q.endTicket(t, left)
	}
	q.c.report.ended(ended...)
}

// closedError returns the error of calls on this queue's lock from Shutdown or
// Close on.
func (q *queue) closedError() error { return &nameError{name: q.name(), err: ErrClosed} }

// holdEnded notes the end of r: it releases r's queue, and Shutdown and Close no
// longer wait for r.
func (s *shutdown) holdEnded(r *rootHold) {
	s.c.queues.release(r.queue)
	if !s.c.closing() {
		return
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	delete(s.left, r)
	s.checkIdleLocked()
}

// heldNames returns the names of the holds that were asked to stop and have not
// ended.
func (s *shutdown) heldNames() []string {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	names := make([]string, 0, len(s.left))
	for r := range s.left {
		names = append(names, r.queue.name())
	}
	slices.Sort(names)
	return names
}

// closeBegan reports whether Close has begun, or Shutdown has closed the client.
func (s *shutdown) closeBegan() bool {
	if !s.c.closing() {
		return false
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.phase >= phaseClosing
}

// askToStop ends the contexts of a root and of the holds nested in it, and
// reports whether this call was the first to do so. The holds go on.
func (r *rootHold) askToStop() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unlocksLeft == 0 || r.stopping {
		return false
	}
	r.stopping = true
	for n := range r.holdsLocked() {
		if n.hctx != nil {
			n.hctx.cancel(ErrShutdown)
		}
	}
	return true
}

// askedToStop reports whether Shutdown or Close has asked the work to stop.
func (h *Hold) askedToStop() bool {
	h.root.mu.Lock()
	defer h.root.mu.Unlock()
	return h.root.stopping
}

// beginFunction notes that a function of Do runs under h from now on. It returns
// an error if the client closes: the function must not begin then.
func (h *Hold) beginFunction() error {
	r := h.root
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopping || errors.Is(h.endErr, ErrClosed) {
		return r.queue.closedError()
	}
	h.function = true
	return nil
}

// functionRunsLocked reports whether a function of Do runs under the root.
func (r *rootHold) functionRunsLocked() bool {
	for n := range r.holdsLocked() {
		if n.function && !n.left {
			return true
		}
	}
	return false
}

// runsFunction reports whether a function of Do runs under the root.
func (r *rootHold) runsFunction() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.functionRunsLocked()
}

// endIfBare ends the root, unless a function of Do runs under it. It reports
// whether it did.
func (r *rootHold) endIfBare(why error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.functionRunsLocked() && r.endLocked(why)
}
