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
// # Guarantees of a hold
//
// A lock is held by a lease of the store, which the client renews while the
// work runs. At no instant do two holds of one name both have a nil [Hold.Err],
// as long as the store keeps what it acknowledged and its clock runs at the
// rate of this machine's clock (docs/guarantees.md explains what that means on
// each store). A hold that can no longer be proven is lost: its context ends
// with a [LostError] before the lease can have ended at the store.
//
// No lock can stop a process that is paused between looking at its context and
// writing. Only the resource itself can, if it refuses a fencing token lower
// than one it has seen: every exclusive hold has a [Token] greater than the
// tokens of all earlier holds.
//
// # Waiting
//
// Waiters queue, first come first served. A release wakes exactly one waiter,
// by a push of the store where the store has pushes. Goroutines of one client
// queue locally and share one place at the store. They hand a lock from one to
// the next without asking the store, at most 255 times or for 10 ms in a row,
// so that other processes get their turn. The context given to Lock ends the
// wait, [WithMaxWait] bounds it, and nothing of the wait stays behind.
//
// # Once for each slot
//
// [Client.Once] runs a function for one slot of a job, such as the report of an
// hour, on one machine of all that ask. The store remembers the slots that are
// done, so that a machine that comes late hears by whom and when.
//
// # Reentrancy
//
// A lock taken with the context of a hold of the same name and client (from
// [Hold.Context], or given to the function of Do) nests in that hold: it sends
// no request, and the last Unlock releases the lock. Holds nested with one and
// the same context exclude each other, so goroutines that share a context are
// still serialised; only the nested hold's own context nests deeper. Locking
// with the context of a hold that has ended returns the cause of that context.
// A nested lock has the lease, the owner and the note of the outer hold:
// another TTL, owner or way of renewal for it is an error. Its [WithMaxHold] ends
// the nested hold alone.
//
// Across processes and restarts, holders that name the same owner (see
// [WithOwner]) hold together.
//
// # The end
//
// [Client.Shutdown] ends a client without taking a lock from work that still
// runs: it asks the work to stop, by a context whose cause is [ErrShutdown], and
// waits until every lock is unlocked. [Client.Close] is its bounded form. It ends
// the holds taken with Lock at once, and waits only for functions of Do. A lock
// whose function still runs is never released under it.
package holdfast
