package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
)

// WithManualRenewal leaves the renewal of a hold to the program, which calls
// Hold.Renew or Client.Renew; the client itself sends none, and a hold that is not
// renewed in time is lost. It is for servers that hold locks on behalf of other
// processes: those ask for each renewal, so a lock does not outlive the process
// that works under it. A program that works under its locks itself has no use for
// it. While a Lock waits, the client renews the place as ever. A Lock whose context ends
// returns once the store has confirmed that the place is left, within a third of the
// TTL, 5 s at most. Do and Lead, which leave nobody to call Renew, refuse the option, and
// so does Multi. A nested lock shares the lease of the outer hold, so the option for it
// is an error unless the outer hold has it too.
func WithManualRenewal() Option {
	return option(func(s *settings) { s.manual, s.given = true, s.given|givenManual })
}

// errManualFunction refuses WithManualRenewal for a hold that the user does not
// get to see.
func errManualFunction(name string) error {
	return fmt.Errorf("holdfast: %q: WithManualRenewal is for holds that Lock or TryLock returns", name)
}

// userRenewal is a renewal that Client.Renew waits for. Calls for one ticket share
// it.
type userRenewal struct {
	done chan struct{}
	err  error // the request's; guarded by queue.mu until done is closed
}

// isLeftToUser reports whether only the user renews t. queue.mu guards the state.
func (t *ticket) isLeftToUser() bool { return t.queue.key.manual && t.state == driver.Held }

// endRenewalLocked ends the renewal that Client.Renew waits for, if any. queue.mu
// guards it.
func (t *ticket) endRenewalLocked(err error) {
	if t.extra == nil || t.extra.renewal == nil {
		return
	}
	t.extra.renewal.err = err
	close(t.extra.renewal.done)
	t.extra.renewal = nil
}

// Renew renews a hold with WithManualRenewal; see Client.Renew. It blocks until the
// store has answered, or ctx has ended.
func (h *Hold) Renew(ctx context.Context) error {
	if !h.made() {
		return ErrReleased
	}
	return h.queue.c.Renew(ctx, h)[0]
}

// Renew renews holds with WithManualRenewal, and returns an error for each, in
// their order: nil after the store has confirmed it, and Deadline has moved; a
// *LostError, ErrReleased or ErrClosed if the hold has ended; a *StoreError if the
// store did not confirm it before ctx ended or the request failed: the hold goes
// on then until its Deadline, and Renew may be called again. Holds that the client
// renews itself, and those of another client, have an error too.
//
// Holds whose renewals come together travel in one request, up to 100, and calls
// that come while one is under way share the next. Renew blocks until the store has
// answered for all holds, or ctx has ended.
func (c *Client) Renew(ctx context.Context, holds ...*Hold) []error {
	errs := make([]error, len(holds))
	if err := checkRenew(c, ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if !c.beginCall() {
		for i := range errs {
			errs[i] = fmt.Errorf("holdfast: renew: %w", ErrClosed)
		}
		return errs
	}
	defer c.calls.Done()
	asked := make([]*userRenewal, len(holds))
	due := make([]*ticket, 0, len(holds))
	for i, h := range holds {
		if errs[i] = checkManual(c, h); errs[i] != nil {
			continue
		}
		t, q := h.root.ticket, h.root.queue
		q.mu.Lock()
		if t.state == driver.Held {
			if x := t.ensureExtra(); x.renewal == nil {
				x.renewal = &userRenewal{done: make(chan struct{})}
				due = append(due, t)
			}
			asked[i] = t.extra.renewal
		}
		q.mu.Unlock()
	}
	c.renewer.renewAllNow(due)
	for i, h := range holds {
		if errs[i] == nil {
			errs[i] = asked[i].await(ctx, h)
		}
	}
	return errs
}

// checkRenew refuses a call of Renew that cannot be carried out.
func checkRenew(c *Client, ctx context.Context) error {
	switch {
	case !c.made():
		return errNoClient
	case ctx == nil:
		return errNoCtx
	}
	return nil
}

// checkManual refuses a hold that has ended, or that c has not left to its user.
func checkManual(c *Client, h *Hold) error {
	switch {
	case !h.made():
		return ErrReleased
	case h.root.queue.c != c:
		return fmt.Errorf("holdfast: renew %q: the hold is another client's", h.Name())
	case !h.root.queue.key.manual:
		return fmt.Errorf("holdfast: renew %q: the client renews the hold: it has no WithManualRenewal", h.Name())
	}
	return h.Err()
}

// await waits for the end of a renewal, nil if the ticket had ended, and returns
// its result for h.
func (u *userRenewal) await(ctx context.Context, h *Hold) error {
	q := h.root.queue
	if u == nil {
		return ticketEnd(h)
	}
	select {
	case <-u.done:
	default:
		select {
		case <-u.done:
		case <-q.c.done:
			return ticketEnd(h)
		case <-ctx.Done():
			if err := h.Err(); err != nil {
				return err
			}
			return storeError("renew", h.Name(), driver.Errorf(driver.Unknown, "no answer yet: %w", context.Cause(ctx)))
		}
	}
	q.mu.Lock() // a loss ends the ticket and its holds under it
	err := u.err
	q.mu.Unlock()
	if over := h.Err(); over != nil {
		return over
	}
	if err != nil {
		return storeError("renew", h.Name(), err)
	}
	return nil
}

// ticketEnd returns why the ticket of h ended, whose end may be under way.
func ticketEnd(h *Hold) error {
	q := h.root.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := h.endError(); err != nil {
		return err
	}
	return q.closedError()
}

// renewAllNow renews tickets at once, in as few requests as their lanes allow.
func (r *renewer) renewAllNow(ts []*ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.c.clock.now()
	for _, t := range ts {
		r.scheduleLocked(t, now, false)
	}
}

// leaveToUser takes a ticket that holds out of the renewals. It stays known for
// pushes.
func (r *renewer) leaveToUser(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.renewal.removed {
		return
	}
	r.byID[t.ID] = t
	t.renewal.waiting, t.renewal.renewAgain = false, false
	if t.renewal.dueIndex > 0 {
		t.renewal.lane.tickets.Remove(t)
		r.reorder(t.renewal.lane)
	}
}
