package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Done says who did a slot of a job.
type Done struct {
	Slot  time.Time // the slot, in UTC
	Here  bool      // this call ran the function
	By    Holder    // the machine; zero where not known
	At    time.Time // when the function returned, by that machine's clock, in milliseconds; zero where not known
	Token uint64    // of the hold under which it ran; 0 where not known

	// TooOld: the slot is older than all that the store remembers. It counts as done,
	// whether it was done or not.
	TooOld bool
}

// Once runs fn for one slot of a job, on one machine of all that ask. A slot is a
// label, compared as an instant: Slot(time.Now(), time.Hour), or the time for
// which a scheduler started the job; all machines must derive it the same way.
//
// Once takes the mutex of that name. It waits behind a machine that runs the job,
// and returns without running fn when the slot is done by then; a machine that
// comes later still is answered by one request, without the lock. The Done says
// who did the slot: By, At and Token are known of the slots that were recorded
// last, as many as fit into 4 KiB, which is mostly some thirty. They are zero for
// others.
//
// A slot is done when fn has returned, with or without an error, unless that
// error matches ErrNotDone. So a fn that stops early, because its context ended,
// returns ErrNotDone. The slot stays open when fn panics or its machine dies: then
// the next in line runs it, at most a TTL and 5 % later. The context given to fn
// is that of Do.
//
// The error is that of fn if it ran here, else that of Mutex.Lock; it is nil if
// the slot was done by another. If the store did not confirm the record of the slot
// while the lock was held, the error matches ErrNotDone too, and the *LostError,
// *StoreError or ErrClosed that says why: another machine may run the slot again. A
// *LostError without ErrNotDone says that the slot is recorded, and that the lock was
// lost before its release, as when an operator broke it: another machine may have
// held it while fn ran. Once records the slot also when ctx ended while fn ran, and
// during Shutdown.
//
// A store remembers, for each name, the 64 greatest slots that are done, for at
// least 400 days after the last. A slot that is older than all of 64 counts as
// done, which Done.TooOld says, and the Observer is told; a job that does old slots
// again takes a name for each of them. WithOwner is an error here, because holders with
// one owner hold together, also if it was given to a hold that Once would nest in. So is
// Once for the slot that fn itself runs for, with fn's context. ErrUnsupported is matched
// where Traits.Marks is false.
func (c *Client) Once(ctx context.Context, name string, slot time.Time, fn func(ctx context.Context) error, opts ...Option) (Done, error) {
	return c.Mutex(name, opts...).handle().once(ctx, slot, fn, false)
}

// TryOnce is Once without the wait: it returns a *HeldError, which matches
// ErrHeld, while another machine runs a slot of the job. It blocks for at most two
// round trips when it does not run fn, or four if another machine has done the slot
// between them; else for five and for as long as fn runs. Requests that have to be
// repeated, for a store that fails or has lost the hold, come on top.
func (c *Client) TryOnce(ctx context.Context, name string, slot time.Time, fn func(ctx context.Context) error, opts ...Option) (Done, error) {
	return c.Mutex(name, opts...).handle().once(ctx, slot, fn, true)
}

// LastDone returns the slot of a job that was recorded last, whatever its time,
// or the zero Done if none was. It is for alarms: a job whose LastDone is old has
// not run. Here is false. It blocks for a round trip and takes no lock. The error
// is a *StoreError, or matches ErrUnsupported where Traits.Marks is false, or
// ErrClosed after Close.
func (c *Client) LastDone(ctx context.Context, name string) (Done, error) {
	if err := c.checkCall(ctx); err != nil {
		return Done{}, err
	}
	full, err := c.storeName(name)
	if err != nil {
		return Done{}, err
	}
	m, err := markerOf(c, name)
	if err != nil {
		return Done{}, err
	}
	var r doneRecord
	err = c.read(ctx, "last done", name, func(ctx context.Context) (err error) {
		r, err = readRecord(ctx, c, m, full)
		return err
	})
	if err != nil || len(r.last) == 0 {
		return Done{}, err
	}
	return r.last[0], nil
}

// markerOf returns the store's marks.
func markerOf(c *Client, name string) (driver.Marker, error) {
	if m, ok := c.drv.(driver.Marker); ok && c.traits.Marks {
		return m, nil
	}
	return nil, fmt.Errorf("holdfast: %q: once for a slot: %w", name, ErrUnsupported)
}

// onceCall is one call of Once or TryOnce.
type onceCall struct {
	*spec
	ctx    context.Context // the caller's
	wait   context.Context // bounds the wait
	begun  time.Time
	marker driver.Marker
	slot   int64
	fn     func(ctx context.Context) error
	try    bool
}

// once runs fn for a slot.
func (s *spec) once(ctx context.Context, slot time.Time, fn func(ctx context.Context) error, try bool) (Done, error) {
	if err := s.checkFunc(fn); err != nil {
		return Done{}, err
	}
	if err := s.check(ctx); err != nil {
		return Done{}, err
	}
	if err := s.checkSlot(ctx, slot); err != nil {
		return Done{}, err
	}
	if ctx.Value(s.slotKey(slot.UnixNano())) != nil {
		return Done{}, fmt.Errorf("holdfast: %q: Once for slot %s inside of the function that runs for it", s.name, slot.Format(time.RFC3339))
	}
	m, err := markerOf(s.c, s.name)
	if err != nil {
		return Done{}, err
	}
	o := onceCall{spec: s, ctx: ctx, wait: ctx, begun: time.Now(), marker: m, slot: slot.UnixNano(), fn: fn, try: try}
	if !try {
		wait, cancel := s.bounded(ctx)
		defer cancel()
		o.wait = wait
	}
	for {
		done, again, err := o.attempt()
		if !again {
			return done, err
		}
	}
}

// slotKey is the key under which the context of Once's function has its slot. A Once
// with such a context would nest in the hold, and run the slot twice.
type slotKey struct {
	c    *Client
	name string
	slot int64
}

func (s *spec) slotKey(slot int64) slotKey { return slotKey{s.c, s.name, slot} }

// checkSlot refuses what cannot be a slot, and options that do not fit Once.
func (s *spec) checkSlot(ctx context.Context, slot time.Time) error {
	outer, _ := ctx.Value(s).(*Hold)
	switch {
	case slot.IsZero():
		return fmt.Errorf("holdfast: %q: the slot is the zero time", s.name)
	case slot.Year() < 1678 || slot.Year() > 2261: // of Unix nanoseconds
		return fmt.Errorf("holdfast: %q: slot %v is outside of the years 1678 to 2261", s.name, slot)
	case s.key.owner != "":
		return fmt.Errorf("holdfast: %q: Once with owner %q: holders with one owner hold together, and would all run the slot",
			s.name, s.key.owner)
	case outer != nil && outer.queue.key.owner != "":
		return fmt.Errorf("holdfast: %q: Once inside of a hold of owner %q: holders with one owner hold together, and would all run the slot",
			s.name, outer.queue.key.owner)
	}
	return nil
}

// attempt reads whether the slot is done, takes the lock if it is not, and runs
// fn. again reports that the hold was lost before fn began.
func (o *onceCall) attempt() (done Done, again bool, err error) {
	if done, ok, err := o.look(); ok || err != nil {
		return done, false, err
	}
	h, err := o.lockWithin(&attempt{ctx: o.ctx, wait: o.wait, calledAt: o.begun, try: o.try}, 1)
	if err != nil {
		return Done{}, false, err
	}
	t := onceTerm{onceCall: o, h: h}
	err, over := runTerm(h, h.context(h.workParent(o.ctx)), t.run)
	switch {
	case t.ran:
		return t.done, false, t.result(err, over)
	case t.found:
		return t.done, false, nil
	case o.mayTryAgain(over):
		return Done{}, true, nil
	case over != nil:
		return Done{}, false, over
	}
	return Done{}, false, t.readErr
}

// mayTryAgain reports whether a hold that was lost before fn began is worth
// another one.
func (o *onceCall) mayTryAgain(over error) bool {
	lost, ok := errors.AsType[*LostError](over)
	return ok && lost.Reason != LossMaxHold && o.wait.Err() == nil && !o.c.closing()
}

// look reads whether the slot is done, before the lock is taken. A store that
// does not answer is left to Lock, which knows how long to wait for it.
func (o *onceCall) look() (done Done, ok bool, err error) {
	switch {
	case o.c.closing():
		return Done{}, false, &nameError{name: o.name, err: ErrClosed}
	case o.wait.Err() != nil:
		return Done{}, false, waitError(o.wait, o.name, o.begun, Holder{})
	}
	r, err := o.read(o.wait)
	switch {
	case err == nil:
		done, ok = o.find(&r)
		return done, ok, nil
	case driver.ClassOf(err) == driver.Refused && !o.c.closing():
		return Done{}, false, storeError("once", o.name, err)
	}
	return Done{}, false, nil
}

// find reports whether the slot counts as done, and reports to the Observers if
// that is for its age alone.
func (o *onceCall) find(r *doneRecord) (Done, bool) {
	done, ok := r.find(o.slot)
	if done.TooOld {
		o.c.report.background(BackgroundErrorInfo{Op: "once", Name: o.name,
			Err: fmt.Errorf("holdfast: once %q: slot %s is older than the %d slots done last, and counts as done; %s",
				o.name, done.Slot.Format(time.RFC3339), maxSlots, r.ahead())})
	}
	return done, ok
}

// onceTerm is one hold of a call of Once.
type onceTerm struct {
	*onceCall
	h       *Hold
	found   bool // the slot is done
	ran     bool // fn has begun
	done    Done
	readErr error // the record could not be read
	markErr error // the slot could not be recorded
	// recorded: the store has confirmed the record while the hold lasted, as far as
	// the client knew. Only such a record is surely seen by the next holder.
	recorded bool
}

// result returns the error of a call whose function ran: its own, and why the slot is
// not known to be recorded, or why the hold ended after it was. err is as it is where
// there is nothing to add.
func (t *onceTerm) result(err, over error) error {
	var open error
	if !t.recorded && !errors.Is(err, ErrNotDone) {
		open = &nameError{t.name, ErrNotDone, "its record is not confirmed"}
	}
	if open == nil && t.markErr == nil && over == nil {
		return err
	}
	return errors.Join(err, open, t.markErr, over)
}

// run runs fn under the hold, unless the slot is done, and records the slot.
func (t *onceTerm) run(ctx context.Context) error {
	r, err := t.readHeld(ctx)
	if err != nil {
		t.readErr = err
		return nil
	}
	if t.done, t.found = t.find(&r); t.found {
		return nil
	}
	t.ran = true
	err = t.fn(context.WithValue(ctx, t.slotKey(t.slot), true))
	t.done = Done{
		Slot: slotTime(t.slot), Here: true, By: parseHolder(t.h.root.ticket.Meta),
		At: time.UnixMilli(time.Now().UnixMilli()), Token: t.h.Token(),
	}
	if !errors.Is(err, ErrNotDone) && t.h.Err() == nil {
		t.markErr = t.record(&r)
		t.recorded = t.markErr == nil && t.h.Err() == nil
	}
	return err
}

// readHeld reads the record under the hold, before fn begins: for as long as the
// hold, the wait and the client last.
func (t *onceTerm) readHeld(ctx context.Context) (r doneRecord, err error) {
	for pause := (markPause{}); ; pause.wait(ctx, t.wait) {
		r, err = t.read(ctx)
		switch {
		case t.c.closing():
			return r, &nameError{name: t.name, err: ErrClosed}
		case err == nil && ctx.Err() == nil:
			return r, nil
		case t.ctx.Err() != nil || err != nil && t.wait.Err() != nil:
			return r, waitError(t.wait, t.name, t.begun, Holder{})
		case t.h.Err() != nil:
			return r, t.h.Err()
		case driver.ClassOf(err) == driver.Refused:
			return r, storeError("once", t.name, err)
		}
	}
}

// record records the slot, and repeats that for as long as the hold lasts: its
// answer must come before another machine can hold. It does not end with the
// caller's context, nor with Shutdown.
func (t *onceTerm) record(r *doneRecord) error {
	for pause := (markPause{}); ; pause.wait(t.c.requestCtx, t.c.requestCtx) {
		err := t.recordOnce(r)
		switch {
		case err == nil:
			return nil
		case driver.ClassOf(err) == driver.Refused, t.h.Err() != nil:
			return storeError("once", t.name, err)
		}
	}
}

// recordOnce is one attempt to record the slot.
func (t *onceTerm) recordOnce(r *doneRecord) error {
	if t.nestedWasUsed() { // perhaps by another Once of this name
		again, err := t.read(t.c.requestCtx)
		if err != nil {
			return err
		}
		r = &again
	}
	next := r.with(t.done)
	value, err := next.format()
	if err != nil {
		return driver.Wrap(driver.Refused, err)
	}
	return t.setMark(driver.Mark{Token: t.done.Token, Value: value})
}

// markPause returns the pauses between attempts to reach a mark, which double up
// to maxMarkPause.
type markPause struct{ attempts int }

const (
	minMarkPause = 20 * time.Millisecond
	maxMarkPause = 500 * time.Millisecond
)

// wait waits for the next pause, or until one of the contexts ends.
func (p *markPause) wait(a, b context.Context) {
	timer := time.NewTimer(min(minMarkPause<<min(p.attempts, 10), maxMarkPause))
	defer timer.Stop()
	p.attempts++
	select {
	case <-timer.C:
	case <-a.Done():
	case <-b.Done():
	}
}

// nestedWasUsed reports whether a hold was nested in the hold.
func (t *onceTerm) nestedWasUsed() bool {
	r := t.h.root
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nested != nil
}
