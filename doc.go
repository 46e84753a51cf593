// Package holdfast is a distributed lock: mutual exclusion for code that runs
// in many processes on many machines, over a store that they share.
//
//	locks, err := anylock.Open(ctx, "redis://localhost:6379")
//	defer locks.Close()
//
//	err = locks.Do(ctx, "invoice/42", func(ctx context.Context) error {
//		return post(ctx, holdfast.Token(ctx, "invoice/42"))
//	})
//
// # What a hold promises
//
// A lock is held by a lease of the store, which the client renews while the
// work runs. At no instant do two holds of one name both have a nil
// [Hold.Err], as long as the store keeps what it acknowledged and its clock
// runs at the rate of this machine's (docs/guarantees.md says what that means
// on each store). A hold that can no longer be proven is lost: its context ends
// with a [LostError] before the lease can have ended at the store.
//
// No lock can stop a process that is paused between looking at its context and
// writing. What can is the resource itself, if it refuses a fencing token
// lower than one it has seen: every exclusive hold has a [Token] greater than
// all before it.
//
// # Waiting
//
// Waiters stand in line, first come first served. A release wakes exactly one,
// by a push of the store where it has one. Goroutines of one client stand in
// line locally and have one place at the store; a lock is handed from one to
// the next without asking the store, at most 255 times or for 10 ms in a row,
// so that other processes get their turn. The context given to Lock ends the
// wait, and nothing of it stays behind.
//
// # Reentrancy
//
// A lock taken with the context of a hold of the same name and client (from
// [Hold.Context], or given to the function of Do) nests in that hold: it asks
// nobody, and the lock is released by the last Unlock. Holds nested with one
// and the same context exclude each other, so goroutines that share it are
// still serialised; only the nested hold's own context nests deeper. Locking
// with the context of a hold that has ended returns its cause.
//
// Across processes and restarts, holders that name the same owner (see
// [WithOwner]) hold together.
package holdfast
