package holdfast

import "time"

// Observer is told what happens to a client's locks, for logs, metrics and
// traces. Each function may be nil. They are called outside of all locks and
// may call Holdfast, but Waiting must not call Close, which would wait for it.
// Waiting, Acquired and Released run on the goroutine that locks or unlocks,
// and so add to its time; Lost and Trouble run on goroutines of their own, and
// several may run at a time. A panic is recovered and dropped: what is observed
// must not depend on the observer.
type Observer struct {
	// Waiting: a Lock did not succeed at once and now waits. The holder is
	// zero where the store does not tell.
	Waiting func(name string, holder Holder)
	// Acquired: a Lock or Try call succeeded, after the given wait. Nested
	// holds are not reported.
	Acquired func(name string, token uint64, waited time.Duration)
	// Released: a hold ended by Unlock, with its error.
	Released func(name string, token uint64, held time.Duration, err error)
	// Lost: a hold ended otherwise.
	Lost func(err *LostError)
	// Trouble: the store failed to answer a background request (a renewal, a
	// clean-up) in the way it should, or was found to be set up so that a
	// promise does not hold. Holds and waits go on where they can.
	Trouble func(err error)
}
