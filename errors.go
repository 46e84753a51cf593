package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The sentinels, cut by what the caller does next. Test for them with
// errors.Is.
var (
	// ErrHeld is matched by the error of a Try call that found the lock held,
	// or others waiting for it: do something else, or wait with Lock. The
	// error is a *HeldError and says who holds.
	ErrHeld = errors.New("held by another")

	// ErrLost is matched when a hold ended before it was released: stop, and
	// treat what was done since as unguarded (a resource that checks tokens
	// has refused it). The error is a *LostError and says why.
	ErrLost = errors.New("lock lost")

	// ErrClosed is matched by every call on a closed Client, and by waits that
	// Close ended.
	ErrClosed = errors.New("client closed")

	// ErrKindMismatch is matched when the name is in use as another kind of
	// lock, or as a semaphore of another size: the programs disagree.
	ErrKindMismatch = errors.New("in use as another kind of lock")

	// ErrUpgrade is matched when a hold's context, or a named owner, asks for
	// more than it has: a write lock inside its own read lock, more permits
	// than the outer hold took. Waiting would be waiting for oneself.
	ErrUpgrade = errors.New("a hold cannot be widened")

	// ErrReleased is the cause of a hold's context after Unlock, and the error
	// of a Lock that was given such a context.
	ErrReleased = errors.New("lock released")

	// ErrUnsupported is matched when the store cannot do what was asked for:
	// see Client.Traits.
	ErrUnsupported = errors.New("not supported by this store")

	// ErrNoTicket is matched by Break when the line has no such ticket.
	ErrNoTicket = errors.New("no such ticket")
)

// HeldError says who stood in the way of a Try call. It matches [ErrHeld].
type HeldError struct {
	Name   string
	Holder Holder // zero where the store does not tell
}

// Error names the lock, and the holder where it is known.
func (e *HeldError) Error() string {
	if e.Holder == (Holder{}) {
		return fmt.Sprintf("holdfast: %q is held by another", e.Name)
	}
	return fmt.Sprintf("holdfast: %q is held by %s", e.Name, e.Holder)
}

// Is matches ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LossReason says why a hold was lost.
type LossReason string

// The reasons.
const (
	// LossExpired: no renewal was confirmed in time, so the lease may have
	// ended at the store: the process was paused, or the store out of reach.
	LossExpired LossReason = "not renewed in time"
	// LossGone: the store no longer had the hold: broken by an operator,
	// evicted, or lost with the store's data.
	LossGone LossReason = "gone from the store"
	// LossMaxHold: the hold reached its MaxHold.
	LossMaxHold LossReason = "held for the longest time allowed"
)

// LostError says that a hold ended before it was released. It matches
// [ErrLost], and is the cause of the hold's context.
type LostError struct {
	Name   string
	Reason LossReason
	Token  uint64    // of the lost hold
	Since  time.Time // when it was granted, by this machine's clock
}

// Error names the lock and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("holdfast: lost %q: %s (token %d)", e.Name, e.Reason, e.Token)
}

// Is matches ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// WaitError says that a wait ended because its context did. It wraps the
// context's cause, so errors.Is(err, context.DeadlineExceeded) and the like
// work, and custom causes are found.
type WaitError struct {
	Name   string
	Cause  error         // context.Cause of the context that ended
	Waited time.Duration // since Lock was called
	Holder Holder        // who held it when last heard, zero where not known
}

// Error names the lock, the time waited, the holder where known, and the cause.
func (e *WaitError) Error() string {
	by := ""
	if e.Holder != (Holder{}) {
		by = ", held by " + e.Holder.String()
	}
	return fmt.Sprintf("holdfast: wait for %q ended after %v%s: %v",
		e.Name, e.Waited.Round(time.Millisecond), by, e.Cause)
}

// Unwrap returns the context's cause.
func (e *WaitError) Unwrap() error { return e.Cause }

// StoreError says that the store did not do what it was asked to.
type StoreError struct {
	Op   string // "acquire", "release", "inspect", …
	Name string // of the lock; empty when it concerns none
	Err  error  // the driver's error
}

// Error names the operation, the lock, and the driver's error with its class.
func (e *StoreError) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("holdfast: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("holdfast: %s %q: %v", e.Op, e.Name, e.Err)
}

// Unwrap returns the driver's error.
func (e *StoreError) Unwrap() error { return e.Err }

// Unavailable says whether the store could not be reached or does not serve
// now: trying later may help.
func (e *StoreError) Unavailable() bool {
	return driver.ClassOf(e.Err) == driver.Unavailable || driver.ClassOf(e.Err) == driver.NotDone
}

// Unknown says whether it is not known if the store did it. A release of
// unknown outcome is repeated in the background, and at the latest the lease
// ends it.
func (e *StoreError) Unknown() bool { return driver.ClassOf(e.Err) == driver.Unknown }

// nameError is a sentinel with the name it is about.
type nameError struct {
	name string
	err  error
	more string
}

func (e *nameError) Error() string {
	if e.more != "" {
		return fmt.Sprintf("holdfast: %q: %v: %s", e.name, e.err, e.more)
	}
	return fmt.Sprintf("holdfast: %q: %v", e.name, e.err)
}

func (e *nameError) Unwrap() error { return e.err }

func waitError(ctx context.Context, name string, since time.Time, h Holder) error {
	return &WaitError{Name: name, Cause: context.Cause(ctx), Waited: time.Since(since), Holder: h}
}

// storeError dresses a driver's error as the caller's.
func storeError(op, name string, err error) error {
	if l, ok := errors.AsType[*driver.LimitError](err); ok {
		return &nameError{name, ErrKindMismatch, kindOf(l.Have) + " there, " + kindOf(l.Want) + " asked for"}
	}
	switch {
	case errors.Is(err, driver.ErrUpgrade):
		return &nameError{name, ErrUpgrade, "the owner's hold has fewer units"}
	case errors.Is(err, driver.ErrNoTicket):
		return &nameError{name: name, err: ErrNoTicket}
	case errors.Is(err, driver.ErrClosed):
		return &nameError{name: name, err: ErrClosed}
	}
	return &StoreError{Op: op, Name: name, Err: err}
}
