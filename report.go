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

// reporter calls the Observers of a client. Without any, it does nothing.
type reporter struct {
	observers     []Observer
	observesWaits bool // an Observer has a LockWait
	errors        backgroundErrors
}

// isObserved reports whether the client has an Observer and the call does not
// nest.
func (s *spec) isObserved(ctx context.Context) bool {
	if len(s.c.report.observers) == 0 {
		return false
	}
	outer, _ := ctx.Value(s).(*Hold)
	return outer == nil
}

// event returns what the events of a call have in common.
func (s *spec) event(units int64) Event {
	return newEvent(s.name, s.kind, units, s.key.owner)
}

func newEvent(name string, k kind, units int64, owner string) Event {
	e := Event{Name: name, Kind: KindMutex, Units: 1, Owner: owner}
	switch {
	case k == kindRW && units == 1:
		e.Kind = KindReader
	case k == kindRW:
		e.Kind = KindWriter
	case k == kindSemaphore:
		e.Kind, e.Units = KindPermits, int(units)
	}
	return e
}

// lockObserved is lock for a client with Observers.
func (s *spec) lockObserved(a attempt, units int64) (*Hold, error) {
	c := s.c
	e := s.event(units)
	values, derived := c.report.lockStart(a.ctx, &LockStartInfo{Event: e, Try: a.try})
	a.values, a.observed = values, true
	a.askedAt, a.begunAt = c.clock.read()
	h, err := s.lockUnits(a, units)
	done := LockDoneInfo{Event: e, Err: err}
	if h != nil {
		done.Contended = h.wait.turnDue || h.wait.storeDue
	}
	if err != nil {
		done.Waited = time.Since(a.askedAt)
		c.report.lockDone(values, &done)
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
	next, more := c.report.lockDone(values, &done)
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
	if len(r.observers) == 0 || len(ended) == 0 {
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
	e := HoldDoneInfo{Token: r.token, Held: now.sub(r.since), Err: err,
		Event: newEvent(r.queue.name(), r.kind, int64(r.queue.key.units), r.queue.key.owner)}
	for i := range r.queue.c.report.observers {
		if f := r.queue.c.report.observers[i].HoldDone; f != nil {
			notify(f, ctx, &e)
		}
	}
}

func (r *reporter) lockStart(ctx context.Context, e *LockStartInfo) (values context.Context, derived bool) {
	return deriveAll(r.observers, func(o *Observer) func(context.Context, LockStartInfo) context.Context { return o.LockStart }, ctx, e)
}

func (r *reporter) lockDone(ctx context.Context, e *LockDoneInfo) (values context.Context, derived bool) {
	return deriveAll(r.observers, func(o *Observer) func(context.Context, LockDoneInfo) context.Context { return o.LockDone }, ctx, e)
}

// deriveAll calls one hook of each Observer, with the context of the one before.
func deriveAll[E any](observers []Observer, hook func(*Observer) func(context.Context, E) context.Context, ctx context.Context, e *E) (values context.Context, derived bool) {
	values = ctx
	for i := range observers {
		if f := hook(&observers[i]); f != nil {
			if next := derive(f, values, e); next != nil {
				values, derived = next, true
			}
		}
	}
	return values, derived
}

// derive calls f and returns its context, or nil after a panic.
func derive[E any](f func(context.Context, E) context.Context, ctx context.Context, e *E) (next context.Context) {
	defer func() { _ = recover() }()
	return f(ctx, *e)
}

// notify calls f and drops a panic.
func notify[E any](f func(context.Context, E), ctx context.Context, e *E) {
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
	e := LockWaitInfo{Event: w.spec.event(int64(q.key.units))}
	switch {
	case w.storeErr != nil && !w.storeDue:
		w.storeDue = true
		e.Err, e.Until = w.storeErr, w.storeUntil
	case turn && !w.turnDue:
		w.turnDue = true
	default:
		return false
	}
	if !q.c.report.observesWaits || q.c.closing() {
		return false
	}
	if e.Err == nil {
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
	observers := w.hold.queue.c.report.observers
	for i := range observers {
		if f := observers[i].LockWait; f != nil {
			notify(f, w.hold.ctx, e)
		}
	}
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
	if len(r.observers) == 0 {
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
		go b.report(r.observers)
	}
}

// report calls the Observers until the queue is empty. If a callback ends its
// goroutine, another goroutine reports the rest.
func (b *backgroundErrors) report(observers []Observer) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.reporting = len(b.queue) > 0; b.reporting {
			go b.report(observers)
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
		for i := range observers {
			if f := observers[i].BackgroundError; f != nil {
				notify(f, context.Background(), &e)
			}
		}
	}
}
