package anylock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// ErrConfig is matched by the error of opening a store if the URL, its file or
// an option is wrong, so that no retry helps. Refused is true for such an error.
var ErrConfig = errors.New("wrong URL or option")

// Open returns a client of the store at a URL. The URL may be @FILE: then the
// first line of that file is the URL, so that
//
//	anylock.Open(ctx, os.Getenv("HOLDFAST_STORE"))
//
// is all the configuration of a service. Open connects, and blocks until the
// store has answered or ctx has ended; if the store does not answer, for at most
// the time that the URL's options name, or 5 s.
//
// Every error is a *holdfast.StoreError with the Op "open": Unavailable if the
// store cannot be reached yet, Unknown if it fell silent after its first answer (see
// OpenRetry for both), Refused if the store does not let this user in, and Refused and
// matching ErrConfig if the URL or an option of the client is wrong. An empty URL, and
// a URL with an empty part, are such errors.
// No error contains a password, or a part of a URL that may contain one.
func Open(ctx context.Context, url string, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	d, err := OpenDriver(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(d, opts...)
	if err != nil {
		return nil, openError(&configError{errors.Join(err, d.Close())})
	}
	return c, nil
}

// The pauses of OpenRetry, before jitter.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// OpenRetry is Open for services that may start before their store: it opens
// again, every 0.1 to 5 s, while the store is unavailable or does not answer, until
// ctx ends. It returns an error of class Refused at once. After ctx has ended, the error is that of the
// last attempt, and wraps the context's cause too. A file that the URL names is
// read for each attempt.
func OpenRetry(ctx context.Context, url string, opts ...holdfast.ClientOption) (*holdfast.Client, error) {
	var last *holdfast.StoreError
	// Not all clients of a store that comes back ask at the same instant.
	retry := backoff.Backoff{First: firstPause, Last: lastPause, Jitter: true}
	for {
		c, err := Open(ctx, url, opts...)
		if err == nil {
			return c, nil
		}
		failed, ok := errors.AsType[*holdfast.StoreError](err)
		if ok && !failed.Refused() { // an opening that has no answer leaves nothing to find out
			last = failed
		} else if last == nil || ctx.Err() == nil {
			return nil, err
		}
		if !retry.Wait(ctx) {
			return nil, openError(fmt.Errorf("%w (ended by %w)", last.Err, context.Cause(ctx)))
		}
	}
}

// OpenDriver is Open for programs that need the driver itself: to wrap it, or to
// combine several drivers.
func OpenDriver(ctx context.Context, url string) (holdfast.Driver, error) {
	if ctx == nil {
		return nil, openError(&configError{errors.New("anylock: the context is nil")})
	}
	d, err := openDriver(ctx, url)
	if err != nil {
		return nil, openError(err)
	}
	return d, nil
}

func openDriver(ctx context.Context, url string) (holdfast.Driver, error) {
	url, err := ReadURL(url)
	if err != nil {
		return nil, err
	}
	s, url, err := storeOf(url)
	if err != nil {
		return nil, &configError{err}
	}
	if err := checkHosts(s, url); err != nil {
		return nil, &configError{err}
	}
	if err := checkEmpty(s, url); err != nil {
		return nil, &configError{err}
	}
	d, err := s.open(ctx, url)
	if err == nil {
		return d, nil
	}
	if _, classed := errors.AsType[*driver.Error](err); classed || ctx.Err() != nil {
		return nil, redactError(err, url)
	}
	return nil, &configError{redactError(err, url)}
}

// openError returns the error of opening a store.
func openError(err error) error { return &holdfast.StoreError{Op: "open", Err: err} }

// configError is the error of a wrong URL or option. It has its text, the class
// Refused, and matches ErrConfig.
type configError struct{ err error }

var refusedConfig error = &driver.Error{Class: driver.Refused, Err: ErrConfig}

func (e *configError) Error() string { return e.err.Error() }

func (e *configError) Unwrap() []error { return []error{e.err, refusedConfig} }
