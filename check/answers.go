package check

import "slices"

// The classes of errors, as a client writes them.
const (
	ErrHeld        = "held"        // a try found it held
	ErrWait        = "wait"        // the context of a wait ended
	ErrLost        = "lost"        // the hold was lost
	ErrClosed      = "closed"      // the client was closed
	ErrUnavailable = "unavailable" // the store does not answer, or does not serve
	ErrNotDone     = "not done"    // the store did nothing
	ErrUnknown     = "unknown"     // the outcome is not known
	ErrRefused     = "refused"     // the store refuses: never, in a run of ours
	ErrOther       = "other"       // whatever has no class
)

// answers is the table of C9: what a call may answer.
var answers = struct{ lock, unlock []string }{
	lock:   []string{ErrWait, ErrUnavailable, ErrNotDone, ErrUnknown, ErrClosed},
	unlock: []string{"", ErrLost, ErrUnavailable, ErrNotDone, ErrUnknown, ErrClosed},
}

// failed is C9 for a call that took no lock.
func (c *Checker) failed(op *Op, class, text string) {
	switch class {
	case ErrHeld:
		c.stats.Busy++
	case ErrWait:
		c.stats.Timeouts++
	default:
		c.stats.Errors++
	}
	switch {
	case class == ErrHeld && op.Try, slices.Contains(answers.lock, class) && (class != ErrWait || op.Bound):
	default:
		c.violate("C9", op.Name, op.Asked, "Lock answered "+class+": "+text, op)
	}
}

// doneErr is C9 for Unlock.
func (c *Checker) doneErr(op *Op, text string) {
	if !slices.Contains(answers.unlock, op.DoneErr) {
		c.violate("C9", op.Name, op.Done, "Unlock answered "+op.DoneErr+": "+text, op)
	}
}
