//go:build unix

package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// finalWait bounds the wait for the store after a signal that arrives during a
// release.
const finalWait = time.Second

// awaitUnlessSignalled calls f, which releases something at the store and may take
// seconds if the store is silent, and reports whether f has returned. A signal
// that ends programs shortens the wait to finalWait; the process does not wait
// for the rest of f, which is one of calls.
func (s *runSignals) awaitUnlessSignalled(calls *sync.WaitGroup, f func()) bool {
	done := make(chan struct{})
	calls.Go(func() {
		defer close(done)
		f()
	})
	ctx, stop := cancelOn(context.Background(), s.c)
	defer stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	limit := time.NewTimer(finalWait)
	defer limit.Stop()
	select {
	case <-done:
		return true
	case <-limit.C:
		return false
	}
}

// release releases the lock and returns the error of Unlock.
func (r *runner) release(hold *holdfast.Hold) error {
	answer := make(chan error, 1)
	err := errors.New("a signal came before the store had answered")
	if r.signals.awaitUnlessSignalled(&r.closing, func() { answer <- hold.Unlock() }) {
		err = <-answer
	}
	r.unconfirmed = err != nil && !errors.Is(err, holdfast.ErrLost)
	return err
}

// close closes the client. If the store has just failed to confirm the release,
// it has had its time, and close does not wait for it again.
func (r *runner) close() {
	if r.client == nil {
		return
	}
	if r.unconfirmed {
		r.closing.Go(func() { _ = r.client.Close() })
		return
	}
	r.signals.awaitUnlessSignalled(&r.closing, func() { _ = r.client.Close() })
}
