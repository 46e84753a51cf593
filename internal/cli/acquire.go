//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/cli/job"
)

// noWaitLimit bounds the requests of a run with --no-wait.
const noWaitLimit = 10 * time.Second

// lockWait is a wait for the lock. A signal that ends programs ends it, and so does
// --wait, which counts from before the store is opened.
type lockWait struct {
	ctx         context.Context
	show        *waitDisplay
	stopSignals func() // later signals are not the wait's
	end         func()
}

// beginWait begins a wait; the caller calls its end.
func (r *runner) beginWait() *lockWait {
	ctx, stopSignals := cancelOn(context.Background(), r.signals.c)
	ctx, cancel := context.WithCancelCause(ctx)
	endLimit := func() {}
	if limit := r.waitLimit(); limit != nil {
		ctx, endLimit = context.WithTimeoutCause(ctx, limit.limit, limit)
	}
	w := &lockWait{ctx: ctx, show: newWaitDisplay(r, cancel), stopSignals: stopSignals}
	w.end = func() { endLimit(); cancel(nil); stopSignals() }
	r.show.Store(w.show)
	return w
}

// waitLimit returns the limit that the flags set to a wait, or nil.
func (r *runner) waitLimit() *waitTimeout {
	switch {
	case r.wait > 0:
		return &waitTimeout{flag: "--wait " + r.wait.String(), limit: r.wait}
	case r.noWait:
		return &waitTimeout{flag: "--no-wait", limit: noWaitLimit}
	}
	return nil
}

// acquire opens the store and takes the lock. Meanwhile the guard of the command
// starts: within the hold, nobody waits for it.
func (r *runner) acquire() (_ *holdfast.Hold, err error) {
	r.guard = job.StartGuard(r.guardName(), os.Stderr)
	defer func() {
		if err != nil {
			r.guard.End()
		}
	}()
	w := r.beginWait()
	defer w.end()
	ctx := w.ctx
	if r.client == nil { // with --lead it is open after the first campaign
		if err := r.openStore(ctx); err != nil {
			w.show.end()
			return nil, err
		}
	}
	hold, err := r.lockFunc()(ctx)
	w.show.end()
	switch {
	case err != nil && r.noWait && ctx.Err() != nil:
		return nil, r.timeoutError(ctx, err)
	case err != nil:
		return nil, explain(cause(ctx, err))
	}
	r.event(eventJSON{Event: "acquired", Token: hold.Token(), Waited: new(seconds(time.Since(r.startedAt)))})
	return hold, nil
}

// openStore opens the store, and fills in the settings that depend on it.
func (r *runner) openStore(ctx context.Context) error {
	opts := []holdfast.ClientOption{
		holdfast.WithOwner(r.owner), holdfast.WithNote(r.note),
		holdfast.WithObserver(&holdfast.Observer{
			LockWait:        func(ctx context.Context, e holdfast.LockWaitInfo) { r.show.Load().lockWait(ctx, e) },
			BackgroundError: r.noteBackgroundError,
		}),
	}
	if r.ttl > 0 {
		opts = append(opts, holdfast.WithTTL(r.ttl))
	}
	var err error
	if r.client, r.loc, err = r.open(ctx, opts...); err != nil {
		return r.timeoutError(ctx, err)
	}
	r.ttl = r.client.TTL()
	if err := r.checkGrace(); err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(r.loc.url), "memory:") { // only this process can see it
		r.console.printWarning("memory: is a store within this process: the lock excludes nobody", "sqlite:PATH for this machine, or a server")
	}
	return nil
}

// timeoutError returns the error of a request to the store: if --wait or
// --no-wait ended it, one that says so, else err.
func (r *runner) timeoutError(ctx context.Context, err error) error {
	var over *waitTimeout
	if errors.As(context.Cause(ctx), &over) {
		return fail(exitUnavailable, "%s: the store did not answer within %v (%s)", r.loc.shown(), over.limit, over.flag)
	}
	return cause(ctx, err)
}

// waitTimeout is the cause of a wait that a flag ended.
type waitTimeout struct {
	flag  string
	limit time.Duration
}

func (w *waitTimeout) Error() string { return fmt.Sprintf("%s is over", w.flag) }

// lockFunc returns the call that takes the lock in the way of the flags.
func (r *runner) lockFunc() func(context.Context) (*holdfast.Hold, error) {
	pick := func(lock, try func(context.Context) (*holdfast.Hold, error)) func(context.Context) (*holdfast.Hold, error) {
		if r.noWait {
			return try
		}
		return lock
	}
	switch {
	case r.shared:
		m := r.client.RWMutex(r.name)
		return pick(m.RLock, m.TryRLock)
	case r.exclusive:
		m := r.client.RWMutex(r.name)
		return pick(m.Lock, m.TryLock)
	case r.slots > 0:
		s := r.client.Semaphore(r.name, r.slots)
		return pick(
			func(ctx context.Context) (*holdfast.Hold, error) { return s.Acquire(ctx, 1) },
			func(ctx context.Context) (*holdfast.Hold, error) { return s.TryAcquire(ctx, 1) })
	}
	m := r.client.Mutex(r.name)
	return pick(m.Lock, m.TryLock)
}

// explain adds to a mismatch of kinds which flags choose a kind.
func explain(err error) error {
	if !errors.Is(err, holdfast.ErrKindMismatch) {
		return err
	}
	return fmt.Errorf("%w (a read/write lock is asked for by --shared or --exclusive, a semaphore by --slots, a mutex by neither)", err)
}
