package holdfast

import (
	"context"
	"time"
)

// Observer receives the events of a client's locks, for logs, metrics and
// traces. A nil field costs nothing. The client copies the struct, and calls
// its functions outside of all mutexes: they may take and release locks of the
// same client. They may call Close and Shutdown, which end the wait of a LockWait
// and do not wait for its function. Shutdown waits for the other locks of the
// goroutine: a LockDone that reports a lock must not call it, nor a LockWait for a
// later name of a Multi. A function that blocks delays its caller; LockWait also
// delays the goroutines of this client that wait for the same name. Panics are
// dropped, because an Observer must not change the locks that it observes.
//
// Nested holds are not reported, nor are calls that are refused for their
// arguments. With several Observers, the functions are called in the order of
// their WithObserver options, and each receives the context that the one before
// it returned. Contexts are passed for their values: they may have ended.
type Observer struct {
	// LockStart: Lock, TryLock or a call of that kind begins. The values of the
	// context that it returns, which should be derived from ctx, reach the other
	// events of this lock and its hold. Nil stands for ctx.
	LockStart func(ctx context.Context, e LockStartInfo) context.Context
	// LockWait: it is not the caller's turn yet (Err is nil), or the store
	// cannot give a place in the queue yet (Err says why). It comes at most once
	// of each kind for a LockStart, on the goroutine that waits, and never for a
	// Try.
	LockWait func(ctx context.Context, e LockWaitInfo)
	// LockDone: the call returns, with the lock or without. It comes once for
	// each LockStart, on the same goroutine. The values of the context that it
	// returns reach HoldDone, Hold.Context and the function of Do. Nil stands for
	// ctx.
	LockDone func(ctx context.Context, e LockDoneInfo) context.Context
	// HoldDone: a hold has ended, and the holds nested in it too. It comes once
	// for each LockDone without an error: on the goroutine of Unlock or Detach,
	// which may be called again from it, or on a goroutine of its own after a
	// loss or Close. Close does not wait for such a goroutine.
	HoldDone func(ctx context.Context, e HoldDoneInfo)
	// BackgroundError: a renewal, a clean-up, a subscription to pushes or a
	// campaign of Lead failed, or the store is set up so that a promise does not
	// hold. Holds and waits continue where they can. It runs on a goroutine of its
	// own, one error at a time; while one is being reported, the newest 16 are
	// kept.
	BackgroundError func(ctx context.Context, e BackgroundErrorInfo)
}

// Kind is the kind of a lock, as its user takes it.
type Kind string

// The kinds.
const (
	KindMutex   Kind = "mutex"
	KindReader  Kind = "reader"  // of an RWMutex
	KindWriter  Kind = "writer"  // of an RWMutex
	KindPermits Kind = "permits" // of a Semaphore
)

// Event says which lock an event is about.
type Event struct {
	Name  string // without the client's prefix
	Kind  Kind
	Units int    // permits of a semaphore, else 1
	Owner string // the name given with WithOwner, if any
}

// LockStartInfo is the event of a call that begins.
type LockStartInfo struct {
	Event
	Try bool // the call does not wait for a turn
}

// LockWaitInfo is the event of a call that has to wait.
type LockWaitInfo struct {
	Event
	Holder Holder    // one that keeps the caller waiting; zero where not known
	Err    error     // a *StoreError if the store cannot give a place yet
	Until  time.Time // with Err: the store surely refuses until then; zero if it did not say
}

// LockDoneInfo is the event of a call that returns.
type LockDoneInfo struct {
	Event
	Token     uint64 // 0 with an error
	Waited    time.Duration
	Contended bool  // LockWait was due
	Local     bool  // another goroutine of this client handed the lock over
	Err       error // the call's
}

// HoldDoneInfo is the event of a hold that has ended.
type HoldDoneInfo struct {
	Event
	Token uint64
	Held  time.Duration // from the grant until Unlock was called, or the hold ended
	// Err is nil after a release or Detach, a *LostError, an error that matches
	// ErrClosed, or a *StoreError if the store did not confirm the release.
	Err error
}

// BackgroundErrorInfo is the event of a failure in the background.
type BackgroundErrorInfo struct {
	Op   string // "renew", "leave", "watch", "campaign", "once", or "check" for the store's settings
	Name string // of the lock; empty when it concerns none, or several
	Err  error  // for "renew", "leave" and "watch" a *StoreError
}
