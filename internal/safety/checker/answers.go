package checker

import "slices"

// The classes of errors, as a client writes them.
const (
	ErrHeld        = "held"        // a try found the lock held
	ErrWait        = "wait"        // the context of a wait ended
	ErrLost        = "lost"        // the hold was lost
	ErrClosed      = "closed"      // the client was closed
	ErrUnavailable = "unavailable" // the store does not answer, or does not serve
	ErrNotDone     = "not done"    // the store did nothing
	ErrUnknown     = "unknown"     // the outcome is not known
	ErrRefused     = "refused"     // the store refuses: never, in a run of this package
	ErrOther       = "other"       // an error without a class
)

// answers is the table of C9: the errors that a call may return.
var answers = struct{ lock, unlock, store []string }{
	lock:   []string{ErrWait, ErrUnavailable, ErrNotDone, ErrUnknown, ErrClosed},
	unlock: []string{"", ErrLost, ErrUnavailable, ErrNotDone, ErrUnknown, ErrClosed},
	store:  []string{ErrUnavailable, ErrNotDone, ErrUnknown},
}

// checkFailure applies C9 to a call that took no lock.
func (c *Checker) checkFailure(op *Op, class, text string) {
	switch class {
	case ErrHeld:
		c.stats.Busy++
	case ErrWait:
		c.stats.Timeouts++
	default:
		c.stats.Errors++
	}
	switch {
	case op.Waiting > 0 && slices.Contains(answers.store, class) && !c.disturbances.hadStoreError(op, c.rules.Slack):
		c.violations.add("C7", op.Name, op.Asked, "a wait that had its place ended by itself: "+class+" "+text, op)
	case class == ErrHeld && op.Try, slices.Contains(answers.lock, class) && (class != ErrWait || op.Bound):
	default:
		c.violations.add("C9", op.Name, op.Asked, "Lock answered "+class+": "+text, op)
	}
}

// checkUnlockError applies C9 to Unlock.
func (c *Checker) checkUnlockError(op *Op, text string) {
	if !slices.Contains(answers.unlock, op.DoneErr) {
		c.violations.add("C9", op.Name, op.Done, "Unlock answered "+op.DoneErr+": "+text, op)
	}
}
