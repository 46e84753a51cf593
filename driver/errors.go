package driver

import (
	"context"
	"errors"
	"fmt"
)

// Class says what is known about a request that failed, which is what decides
// what the core does next.
type Class uint8

// The classes. The zero Class is Unknown, so that an error nobody classed is
// treated with care.
const (
	// Unknown: the request may have been carried out. The core asks again
	// with the same ticket, or leaves it until that is confirmed.
	Unknown Class = iota
	// NotDone: it was surely not carried out and may be repeated at once (a
	// deadlock chosen as victim, a slot that moved).
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
}

// Error returns the class and the store's own words.
func (e *Error) Error() string { return e.Class.String() + ": " + e.Err.Error() }

// Unwrap returns the store's own error.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of the given class, in the manner of fmt.Errorf.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, Err: fmt.Errorf(format, args...)}
}

// Wrap gives err a class. It returns nil for nil, and leaves an error that has
// a class as it is.
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
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrUpgrade) || errors.Is(err, ErrNoTicket) {
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
	// ErrUpgrade is returned by Join when an owner asks for more units than
	// the place it has (Join 7).
	ErrUpgrade = errors.New("the owner's place has fewer units")
	// ErrNoTicket is returned by Break when the line has no such ticket.
	ErrNoTicket = errors.New("no such ticket")
)

// LimitError is returned by Join when the line has tickets of another limit:
// another kind of lock, or a semaphore of another size.
type LimitError struct {
	Name string
	Have int64 // the line's limit
	Want int64 // the ticket's
}

// Error names both limits.
func (e *LimitError) Error() string {
	return fmt.Sprintf("line has limit %d, ticket wants %d", e.Have, e.Want)
}
