package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// The sentinels, grouped by how the caller should react. Test for them with
// errors.Is.
var (
	// ErrHeld is matched by the error of a Try call that found the lock held,
	// or others waiting for it: do something else, or wait with Lock. The error
	// is a *HeldError, which names the holder. The *WaitError of a wait that
	// WithMaxWait ended matches it too.
	ErrHeld = errors.New("held by another")

	// ErrMaxWait is the cause of a wait that WithMaxWait ended. The error is a
	// *WaitError, which matches ErrHeld too.
	ErrMaxWait = errors.New("MaxWait is over")

	// ErrLost is matched by the error of a hold that ended before it was
	// released: stop, and treat the work done since as unguarded (a resource
	// that checks tokens has refused it). The error is a *LostError, which has
	// the reason.
	ErrLost = errors.New("lock lost")

	// ErrClosed is matched by the error of every call that takes a lock on a
	// Client from Shutdown or Close on, by the error of a wait that they ended,
	// and by that of a hold that Close ended.
	ErrClosed = errors.New("client closed")

	// ErrShutdown is the cause of a hold's context when Shutdown or Close asks
	// the work to stop: finish and return. The lock is still held and renewed
	// until Unlock.
	ErrShutdown = errors.New("client is shutting down")

	// ErrKindMismatch is matched if the name is in use as another kind of lock,
	// or as a semaphore of another size: the programs disagree.
	ErrKindMismatch = errors.New("in use as another kind of lock")

	// ErrUpgrade is matched if a hold's context, or a named owner, asks for
	// more than the hold has: a write lock inside its own read lock, or more
	// permits than the outer hold took. Such a caller would wait for itself.
	ErrUpgrade = errors.New("a hold cannot be widened")

	// ErrReleased is the cause of a hold's context after Unlock, and the error
	// of a Lock with such a context.
	ErrReleased = errors.New("lock released")

	// ErrUnsupported is matched if the store lacks the ability that the call
	// needs: see Client.Traits.
	ErrUnsupported = errors.New("not supported by this store")

	// ErrNotDone is for the function of Once to return, or to wrap: the slot stays
	// open, and the next in line runs it. The error of Once matches it also where the
	// function has returned and the slot is not known to be recorded.
	ErrNotDone = errors.New("slot not done")

	// ErrNoTicket is matched by the error of Break if the queue has no such
	// ticket.
	ErrNoTicket = errors.New("no such ticket")
)

// HeldError is the error of a Try call that found the lock taken; it names the
// holder. It matches [ErrHeld].
type HeldError struct {
	Name   string
	Holder Holder // zero where the store does not tell
	// Left is the time after which the store drops the holder unless that
	// renews, as a living one does; counted from the store's answer. 0: not
	// known, as on etcd and ZooKeeper, or where a goroutine of the same client is
	// in the way.
	Left time.Duration
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

// LossReason is the reason of a loss.
type LossReason string

// The reasons.
const (
	// LossExpired: no renewal was confirmed in time, so the lease may have
	// ended at the store: the process was paused, or the store out of reach.
	LossExpired LossReason = "not renewed in time"
	// LossGone: the store no longer had the hold: broken by an operator,
	// evicted, or lost with the store's data.
	LossGone LossReason = "gone from the store"
	// LossMaxHold: the hold reached its MaxHold. The lock is released by Unlock,
	// or a third of the TTL later, at most 5 s.
	LossMaxHold LossReason = "held for the longest time allowed"
)

// LostError reports that a hold ended before it was released. It matches
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

// WaitError reports that a wait ended because its context did, or because it
// reached its MaxWait. It wraps the cause, so that errors.Is finds
// context.DeadlineExceeded and the like, custom causes, and ErrMaxWait.
type WaitError struct {
	Name   string
	Cause  error         // context.Cause of the context that ended, or ErrMaxWait
	Waited time.Duration // since the call began: of Lock, RLock, Acquire, Once or the like
	Holder Holder        // the last known holder, zero where not known
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

// Unwrap returns the cause.
func (e *WaitError) Unwrap() error { return e.Cause }

// Is matches ErrHeld if MaxWait ended the wait.
func (e *WaitError) Is(target error) bool { return target == ErrHeld && e.Cause == ErrMaxWait }

// StoreError reports that a request failed at the store, or that its outcome is
// unknown.
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

// Unavailable reports whether the store could not be reached or refuses service
// at present: a later attempt may succeed.
func (e *StoreError) Unavailable() bool {
	return driver.ClassOf(e.Err) == driver.Unavailable || driver.ClassOf(e.Err) == driver.NotDone
}

// Unknown reports whether the outcome is unknown. The client repeats a release
// of unknown outcome in the background; at the latest, the hold ends with its
// lease.
func (e *StoreError) Unknown() bool { return driver.ClassOf(e.Err) == driver.Unknown }

// Refused reports whether the store will not do it, however often it is asked: a
// right is missing, or a value of another program is in the way.
func (e *StoreError) Refused() bool { return driver.ClassOf(e.Err) == driver.Refused }

// RetryAfter returns how long a store that answered, and is not ready yet, will
// surely go on refusing, counted from its answer; 0 if the store did not say,
// or the error has another cause. A Try call reports such a store at once; a
// Lock waits for it.
func (e *StoreError) RetryAfter() time.Duration {
	after, _ := driver.IsNotReady(e.Err)
	return after
}

// nameError is a sentinel error with the name of the lock.
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

// storeError turns a driver's error into the caller's.
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
		return closedError(name)
	}
	return &StoreError{Op: op, Name: name, Err: err}
}
