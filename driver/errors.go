package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Class is the knowledge about the outcome of a request that failed. It decides
// the core's next step.
type Class uint8

// The classes. The zero Class is Unknown, so that the core treats an error
// without a class with care.
const (
	// Unknown: the request may have been carried out. The core asks again
	// with the same ticket, or leaves it until that is confirmed.
	Unknown Class = iota
	// NotDone: it was surely not carried out and may be repeated at once (the
	// victim of a deadlock, a slot that moved).
	NotDone
	// Unavailable: it was surely not carried out because the store cannot be
	// reached or does not serve now (refused connection, loading, read-only).
	Unavailable
	// Refused: the store will not do it, and asking again is no use (no
	// rights, wrong type, other limit).
	Refused
)

// String returns the class in words.
func (c Class) String() string {
	switch c {
	case NotDone:
		return "not done"
	case Unavailable:
		return "store unavailable"
	case Refused:
		return "refused"
	}
	return "outcome unknown"
}

// Error is a store's error with its class.
type Error struct {
	Class Class
	Err   error

	// NotReady, of class Unavailable, means that the store itself answered and
	// will serve, but not yet: it loads its data, elects a leader, or guards
	// against losses of a restart. A Lock waits for such a store as long as its
	// context allows, and gives a silent store up much earlier.
	NotReady bool

	// RetryAfter is the time for which a store that is not ready will surely
	// go on refusing, counted from its answer. A Lock asks again after that,
	// and a TryLock reports it. 0: the store does not tell.
	RetryAfter time.Duration
}

// Error returns the class and the text of the store's error.
func (e *Error) Error() string { return e.Class.String() + ": " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of the given class, in the manner of fmt.Errorf.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, Err: fmt.Errorf(format, args...)}
}

// NotReady makes the error of a store that answered and will not serve for the
// next d; 0 means that the store does not tell. Its class is Unavailable.
func NotReady(d time.Duration, format string, args ...any) error {
	return &Error{Class: Unavailable, Err: fmt.Errorf(format, args...), NotReady: true, RetryAfter: max(d, 0)}
}

// IsNotReady reports whether err is the answer of a store that is not ready
// yet, and for how long it will surely not be ready: 0 if it did not tell.
func IsNotReady(err error) (after time.Duration, ok bool) {
	if e, is := errors.AsType[*Error](err); is && e.NotReady {
		return e.RetryAfter, true
	}
	return 0, false
}

// Wrap gives err a class. It returns nil for nil, and an error that has a class
// unchanged.
func Wrap(c Class, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return &Error{Class: c, Err: err}
}

// ClassOf returns the class of err: of the outermost Error in it, Refused for
// the sentinels of this package, and otherwise Unknown.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	if _, ok := errors.AsType[*LimitError](err); ok {
		return Refused
	}
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrUpgrade) || errors.Is(err, ErrNoTicket) || errors.Is(err, ErrStaleMark) {
		return Refused
	}
	return Unknown
}

// Before returns the error of a call whose context had ended before anything
// was sent (class NotDone, wrapping the context's cause), or nil.
func Before(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &Error{Class: NotDone, Err: context.Cause(ctx)}
}

var (
	// ErrClosed is returned by every method of a closed driver.
	ErrClosed = errors.New("driver is closed")
	// ErrUpgrade is returned by Join if an owner asks for more units than its
	// place has (Join 7).
	ErrUpgrade = errors.New("the owner's place has fewer units")
	// ErrNoTicket is returned by Break if the queue has no such ticket.
	ErrNoTicket = errors.New("no such ticket")
)

// LimitError is returned by Join if the queue has tickets with another limit:
// of another kind of lock, or of a semaphore of another size.
type LimitError struct {
	Name string
	Have int64 // the queue's limit
	Want int64 // the ticket's
}

// Error names both limits.
func (e *LimitError) Error() string {
	return fmt.Sprintf("line has limit %d, ticket wants %d", e.Have, e.Want)
}
