package holdfast

import (
	"context"
	"sync"
	"time"
)

// observedState says which events of a root hold are still due.
type observedState uint8

const (
	notObserved observedState = iota
	lockDoneDue               // HoldDone waits until LockDone has returned
	holdDoneDue
	allReported
)

// reporter has the functions of a client's Observers, each list in the order of the
// Observers. Without any, it does nothing.
type reporter struct {
	lockStarts  []func(context.Context, LockStartInfo) context.Context
	lockWaits   []func(context.Context, LockWaitInfo)
	lockDones   []func(context.Context, LockDoneInfo) context.Context
	holdDones   []func(context.Context, HoldDoneInfo)
	backgrounds []func(context.Context, BackgroundErrorInfo)
	errors      backgroundErrors
}

// add adds the functions of an Observer.
func (r *reporter) add(o *Observer) {
	if o.LockStart != nil {
		r.lockStarts = append(r.lockStarts, o.LockStart)
	}
	if o.LockWait != nil {
		r.lockWaits = append(r.lockWaits, o.LockWait)
	}
	if o.LockDone != nil {
		r.lockDones = append(r.lockDones, o.LockDone)
	}
	if o.HoldDone != nil {
		r.holdDones = append(r.holdDones, o.HoldDone)
	}
	if o.BackgroundError != nil {
		r.backgrounds = append(r.backgrounds, o.BackgroundError)
	}
}

// observesLocks reports whether an Observer has a function of locks.
func (r *reporter) observesLocks() bool {
	return len(r.lockStarts)+len(r.lockWaits)+len(r.lockDones)+len(r.holdDones) > 0
}

// isObserved reports whether the client has an Observer of locks and the call does
// not nest.
func (s *spec) isObserved(ctx context.Context) bool {
	if !s.c.report.observesLocks() {
		return false
	}
	outer, _ := ctx.Value(s).(*Hold)
	return outer == nil
}

// set fills in the event of a lock. The caller's struct is filled in place: copies of
// what has just been written would take most of the time of an event.
func (e *Event) set(name string, k kind, units int64, owner string) {
	e.Name, e.Kind, e.Units, e.Owner = name, KindMutex, 1, owner
	switch {
	case k == kindRW && units == 1:
		e.Kind = KindReader
	case k == kindRW:
		e.Kind = KindWriter
	case k == kindSemaphore:
		e.Kind, e.Units = KindPermits, int(units)
	}
}

// setEvent fills in the event of a call on s.
func (s *spec) setEvent(e *Event, units int64) { e.set(s.name, s.kind, units, s.key.owner) }

// lockObserved is lock for a client with Observers.
func (s *spec) lockObserved(a *attempt, units int64) (*Hold, error) {
	c := s.c
	if a.calledAt.IsZero() && a.wait.Done() != nil { // else no wait ends, and no clock is read for it
		a.calledAt = time.Now()
	}
	start := LockStartInfo{Try: a.try}
	s.setEvent(&start.Event, units)
	values, derived := derive(c.report.lockStarts, a.ctx, &start)
	a.values, a.observed = values, true
	a.begin(&c.clock)
	h, err := s.lockUnits(a, units)
	done := LockDoneInfo{Err: err}
	s.setEvent(&done.Event, units)
	if h != nil {
		done.Contended = h.wait.turnDue || h.wait.storeDue
	}
	if err != nil {
		done.Waited = time.Since(a.askedAt)
		derive(c.report.lockDones, values, &done)
		return nil, err
	}
	done.Token, done.Waited, done.Local = h.token, h.since.sub(a.begunAt), h.wait.local
	c.waits.put(h)
	returned := false
	defer func() {
		if !returned { // the callback has ended the goroutine: nobody can unlock h
			h.root.announce(values, derived)
			_ = h.Unlock()
		}
	}()
	next, more := derive(c.report.lockDones, values, &done)
	h.root.announce(next, derived || more)
	returned = true
	return h, nil
}

// announce gives a hold the context of LockDone. HoldDone is due from then on.
func (r *rootHold) announce(values context.Context, derived bool) {
	r.mu.Lock()
	r.ctx, r.derived, r.observed = values, derived, holdDoneDue
	err := r.endErr
	r.mu.Unlock()
	if err != nil {
		r.queue.c.report.ended(endedHold{r, r.queue.c.clock.now(), err})
	}
}

// endedHold is a hold that has ended, and the reason.
type endedHold struct {
	root *rootHold
	at   instant
	err  error
}

// ended calls HoldDone for holds that ended without an Unlock, on a
// goroutine of its own: a callback may call Unlock, Lock or Close, and may
// block.
func (r *reporter) ended(ended ...endedHold) {
	if len(r.holdDones) == 0 || len(ended) == 0 {
		return
	}
	go reportAll(ended)
}

// reportAll calls HoldDone for each of these holds, also if a callback ends the
// goroutine.
func reportAll(ended []endedHold) {
	if len(ended) == 0 {
		return
	}
	defer reportAll(ended[1:])
	ended[0].root.reportDone(ended[0].at, ended[0].err)
}

// reportDone calls HoldDone if it is due. A hold that ends before LockDone has
// returned is reported by announce.
func (r *rootHold) reportDone(now instant, err error) {
	r.mu.Lock()
	due := r.observed == holdDoneDue
	if due {
		r.observed = allReported
	}
	ctx := r.ctx
	r.mu.Unlock()
	if !due {
		return
	}
	e := HoldDoneInfo{Token: r.token, Held: now.sub(r.since), Err: err}
	e.set(r.queue.name(), r.kind, int64(r.queue.key.units), r.queue.key.owner)
	notify(r.queue.c.report.holdDones, ctx, &e)
}

// derive calls the functions of an event, each with the context that the one before
// it returned.
func derive[E any](functions []func(context.Context, E) context.Context, ctx context.Context, e *E) (values context.Context, derived bool) {
	values = ctx
	for _, f := range functions {
		if next := deriveOne(f, values, e); next != nil {
			values, derived = next, true
		}
	}
	return values, derived
}

// deriveOne calls f and returns its context, or nil after a panic.
func deriveOne[E any](f func(context.Context, E) context.Context, ctx context.Context, e *E) (next context.Context) {
	defer func() { _ = recover() }()
	return f(ctx, *e)
}

// notify calls the functions of an event.
func notify[E any](functions []func(context.Context, E), ctx context.Context, e *E) {
	for _, f := range functions {
		notifyOne(f, ctx, e)
	}
}

// notifyOne calls f and drops a panic.
func notifyOne[E any](f func(context.Context, E), ctx context.Context, e *E) {
	defer func() { _ = recover() }()
	f(ctx, *e)
}

// noteStoreWait notes why the store cannot give a place yet, and for how long it
// surely cannot; the goroutine that waits reports it.
func (w *wait) noteStoreWait(err error, rest time.Duration) {
	if w.storeErr != nil {
		return
	}
	w.storeErr = err
	if rest > 0 {
		w.storeUntil = time.Now().Add(rest)
	}
}

// reportWaitLocked calls LockWait if it is due: for the state of the store, or
// for the caller's turn. It reports whether it has unlocked queue.mu for the call.
func (w *wait) reportWaitLocked(turn bool) bool {
	q := w.hold.queue
	if w.hold.observed == notObserved || w.try {
		return false
	}
	forStore := w.storeErr != nil && !w.storeDue
	switch {
	case forStore:
		w.storeDue = true
	case turn && !w.turnDue:
		w.turnDue = true
	default:
		return false
	}
	if len(q.c.report.lockWaits) == 0 || q.c.closing() {
		return false
	}
	var e LockWaitInfo
	w.spec.setEvent(&e.Event, int64(q.key.units))
	if forStore {
		e.Err, e.Until = w.storeErr, w.storeUntil
	} else {
		e.Holder = parseHolder(q.holder())
	}
	w.inCallback = true
	q.mu.Unlock()
	w.lockWait(&e)
	q.mu.Lock()
	w.inCallback = false
	return true
}

// lockWait calls LockWait, which may end the goroutine.
func (w *wait) lockWait(e *LockWaitInfo) {
	returned := false
	defer w.giveUpUnlessReturned(&returned)
	notify(w.hold.queue.c.report.lockWaits, w.hold.ctx, e)
	returned = true
}

// maxBackgroundErrors bounds the errors kept while one is reported.
const maxBackgroundErrors = 16

// backgroundErrors reports errors to the Observers, one after the other, on a
// goroutine that ends when none are left. While a callback blocks, only the
// newest are kept: an unavailable store causes one for each renewal.
type backgroundErrors struct {
	mu        sync.Mutex
	queue     []BackgroundErrorInfo
	reporting bool
}

// storeError reports the error of a request that no caller waits for.
func (r *reporter) storeError(op string, err error) {
	r.background(BackgroundErrorInfo{Op: op, Err: storeError(op, "", err)})
}

// background reports an error that is no call's result.
func (r *reporter) background(e BackgroundErrorInfo) {
	if len(r.backgrounds) == 0 {
		return
	}
	b := &r.errors
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == maxBackgroundErrors {
		b.queue = b.queue[1:]
	}
	b.queue = append(b.queue, e)
	if !b.reporting {
		b.reporting = true
		go b.report(r.backgrounds)
	}
}

// report calls the Observers until the queue is empty. If a callback ends its
// goroutine, another goroutine reports the rest.
func (b *backgroundErrors) report(functions []func(context.Context, BackgroundErrorInfo)) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.reporting = len(b.queue) > 0; b.reporting {
			go b.report(functions)
		}
	}()
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.mu.Unlock()
			return
		}
		e := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()
		notify(functions, context.Background(), &e)
	}
}
