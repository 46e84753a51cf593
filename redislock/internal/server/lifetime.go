package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

// Life is the lifetime of a driver, and the goroutines that run in it.
//
// No mutex is taken under mu.
type Life struct {
	mu      sync.Mutex // guards closed against begin
	closed  bool
	Done    chan struct{} // closed with the driver
	running sync.WaitGroup
	quiet   chan struct{} // closed when all goroutines have ended

	// replaceable says that another driver takes the place of this one when
	// the server is no longer the one to ask.
	replaceable bool
}

// Start begins the life.
func (l *Life) Start() {
	l.Done, l.quiet = make(chan struct{}), make(chan struct{})
}

// Begin runs f on a goroutine that Finish waits for. It returns false if the
// life has ended.
func (l *Life) Begin(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.running.Go(f)
	return true
}

// Over reports whether the end has begun.
func (l *Life) Over() bool {
	select {
	case <-l.Done:
		return true
	default:
		return false
	}
}

// Sleep returns after a time, or when the life or ctx ends.
func (l *Life) Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-l.Done:
	}
}

// Finish ends the life: it calls f, and waits for the goroutines, but at most
// two seconds. Calls after the first only wait.
func (l *Life) Finish(f func()) {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.Done)
		go func() {
			f()
			l.running.Wait()
			close(l.quiet)
		}()
	}
	select {
	case <-l.quiet:
	case <-time.After(2 * time.Second):
	}
}

// errClosing is the error of a call during which the driver was closed.
var errClosing = &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}

var (
	// ErrDropped is the error of a call on a driver whose server is no longer
	// used.
	ErrDropped = driver.Errorf(driver.NotDone, "server is no longer the primary")
	// errCut is the error of a call that was under way when its server was
	// dropped.
	errCut = driver.Errorf(driver.Unknown, "connection closed: the server is no longer the primary")
)

// CheckOpen returns the error that keeps a request from being sent, or nil.
func (l *Life) CheckOpen(ctx context.Context) error {
	if l.Over() {
		return l.overErr()
	}
	return driver.Before(ctx)
}

// overErr returns the error of a call that begins after the driver's end.
func (l *Life) overErr() error {
	if l.replaceable {
		return ErrDropped
	}
	return driver.ErrClosed
}

// cutErr returns the error of a call that was under way when the driver ended.
func (l *Life) cutErr() error {
	if l.replaceable {
		return errCut
	}
	return errClosing
}

// classify gives an error of a client in this life its class. That the client is
// closed is its owner's doing, except at a replaceable driver, which closes its
// client itself.
func (l *Life) classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrOver):
		return l.overErr()
	case errors.Is(err, client.ErrCut):
		return l.cutErr()
	case l.replaceable && errors.Is(err, client.ErrClosed):
		return errCut
	}
	return Classify(err)
}
