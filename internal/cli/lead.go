//go:build unix

package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast"
)

// lostTerm reports that the lock was lost, or in doubt, and the command stopped:
// with --lead, run campaigns again.
type lostTerm struct{ why error }

func (e *lostTerm) Error() string { return e.why.Error() }

func (e *lostTerm) Unwrap() error { return e.why }

// The interval between campaigns is that of holdfast.Client.Lead.
const (
	minCampaignPause = 100 * time.Millisecond
	maxCampaignPause = 10 * time.Second
)

// executeLead runs the command in each term, until it ends by itself in one, or
// a signal ends run.
func (r *runner) executeLead() error {
	defer r.close()
	stop := r.signals.watch()
	defer stop()
	for failures := 0; ; failures++ {
		begun := time.Now()
		err := r.term()
		if lost := (*lostTerm)(nil); !errors.As(err, &lost) {
			return err
		}
		if time.Since(begun) > maxCampaignPause {
			failures = 0
		}
		r.say(eventJSON{Event: "campaigning", Error: message(err)}, message(err)+"; campaigning again")
		base := min(minCampaignPause<<min(failures, 10), maxCampaignPause/2)
		if err := r.signals.pause(base + rand.N(base)); err != nil {
			return r.failedWait(err)
		}
	}
}

// term waits for the lock once, and runs the command.
func (r *runner) term() error {
	r.startedAt, r.unconfirmed = time.Now(), false
	hold, err := r.acquire()
	if err == nil {
		return r.command(hold)
	}
	if r.client != nil && mayPass(err) {
		return &lostTerm{err}
	}
	return r.failedWait(err)
}

// mayPass reports whether a later Lock may succeed where one failed with err.
func mayPass(err error) bool {
	var failed *holdfast.StoreError
	return errors.As(err, &failed) && (failed.Unavailable() || failed.Unknown())
}

// runSignals are the signals that run passes on to its command.
type runSignals struct {
	c    <-chan os.Signal
	stop atomic.Pointer[signalError] // with --lead: the signal that told run to stop
}

// pause waits for d, or returns the error of a signal that ends programs.
func (s *runSignals) pause(d time.Duration) error {
	ctx, stop := cancelOn(context.Background(), s.c)
	defer stop()
	if by := s.stop.Load(); by != nil { // it came while the lock was released
		return by
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch notes the signals that tell run to stop, on their way to the
// command, which may end by one much later than it was sent.
func (s *runSignals) watch() (stop func()) {
	in, out, done, ended := s.c, make(chan os.Signal, 64), make(chan struct{}), make(chan struct{})
	s.c = out
	go func() {
		defer close(ended)
		for {
			select {
			case got := <-in:
				if got == syscall.SIGINT || got == syscall.SIGTERM || got == syscall.SIGQUIT {
					s.stop.Store(&signalError{got.(syscall.Signal)})
				}
				select {
				case out <- got:
				default: // as a channel of os/signal drops it
				}
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}
