package holdfast

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// subscription is the state of the store's pushes. A Lock does not depend on
// them: without pushes, the client renews waiting tickets at a pace of its own,
// and tries to subscribe again in the background.
type subscription struct {
	c            *Client
	mu           sync.Mutex
	active       bool          // pushes flow
	firstAttempt chan struct{} // closed when the first attempt has ended; nil before that attempt
	firstBegan   chan struct{} // closed when the first attempt has begun, with it
	firstUntil   time.Time     // until when Locks wait for the first attempt; set before firstBegan is closed
}

const (
	firstAttemptWait = 250 * time.Millisecond // how long Locks wait for the first attempt
	attemptTimeout   = 5 * time.Second        // for one attempt
	minAttemptPause  = 100 * time.Millisecond // between the first two attempts
	maxAttemptPause  = 10 * time.Second       // the longest between two attempts
)

// ensure subscribes to pushes before the first ticket can wait, and
// gives the first attempt a moment. It returns false if ctx or the client ends
// during that moment.
func (w *subscription) ensure(ctx context.Context) bool {
	c := w.c
	w.mu.Lock()
	if w.active {
		w.mu.Unlock()
		return true
	}
	if w.firstAttempt == nil {
		w.firstAttempt, w.firstBegan = make(chan struct{}), make(chan struct{})
		c.calls.Add(1)
		go w.run()
	}
	first, began := w.firstAttempt, w.firstBegan
	w.mu.Unlock()
	if !isDone(began) { // on a busy machine this may take longer than the moment
		select {
		case <-began:
		case <-ctx.Done():
			return false
		case <-c.shutdown.closing:
			return false
		}
	}
	rest := time.Until(w.firstUntil)
	if rest <= 0 {
		return true
	}
	late := time.NewTimer(rest)
	defer late.Stop()
	select {
	case <-first:
		return true
	case <-late.C:
		return true
	case <-ctx.Done():
	case <-c.shutdown.closing:
	}
	return false
}

// missing reports whether pushes should flow and do not.
func (w *subscription) missing() bool {
	if !w.c.traits.Push {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.active
}

// run tries to subscribe until pushes flow or the client is closed. It
// reports an outage to the Observer once.
func (w *subscription) run() {
	c := w.c
	defer c.calls.Done()
	w.firstUntil = time.Now().Add(firstAttemptWait)
	close(w.firstBegan)
	retry := backoff.Backoff{First: minAttemptPause, Last: maxAttemptPause}
	for tries := 0; ; tries++ {
		err := w.attempt()
		if err == nil {
			// Pushes of earlier grants are lost. The Locks that wait for the
			// first attempt join afterwards, and need no second request.
			c.renewer.notify("", driver.Status{})
		}
		w.mu.Lock()
		w.active = err == nil
		if tries == 0 {
			close(w.firstAttempt)
		}
		w.mu.Unlock()
		if err == nil {
			return
		}
		if isDone(c.done) || errors.Is(err, driver.ErrClosed) {
			return
		}
		if tries == 0 {
			c.report.storeError("watch", err)
		}
		timer := time.NewTimer(retry.Next())
		select {
		case <-timer.C:
		case <-c.done:
			timer.Stop()
			return
		}
	}
}

// attempt makes one attempt. Its context ends with the attempt if the
// attempt fails or lasts too long, else when the client closes.
func (w *subscription) attempt() error {
	c := w.c
	ctx, cancel := context.WithCancelCause(c.pushCtx)
	late := time.AfterFunc(attemptTimeout, func() {
		cancel(driver.Errorf(driver.Unavailable, "the subscription to pushes did not succeed in %v", attemptTimeout))
	})
	err := c.drv.Watch(ctx, c.renewer.notify)
	if !late.Stop() && err == nil { // it ended as it succeeded
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && c.pushCtx.Err() == nil {
			err = cause
		}
		cancel(nil)
	}
	return err
}
