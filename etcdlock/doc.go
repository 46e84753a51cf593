// Package etcdlock keeps queues of tickets in etcd, version 3.4 or later. Its
// mutexes use the layout of etcdctl lock, the Lock RPC and concurrency.Mutex,
// and take turns with them.
//
// # Layout
//
// P is the prefix, N the name with / and control characters as %XX, L a lease
// in hex. A queue is the keys below P N "/", in the order of their create
// revisions: the oldest hold, as far as their units fit the limit. The create
// revision is also the token. Every key but that of a mark is bound to a lease.
//
//	P N / L                   a place of a mutex
//	P N / L - id              another one of the same client
//	P N / rw- units - L - id  a place of a read/write lock
//	P N / s limit - units - L - id  of a semaphore; numbers in hex
//	P %w/ L                   the wake key of a lease
//	P %t/ id                  a tombstone: this ticket may no longer join
//	P %d/ N                   the mark of a name, without a lease
//	P %layout                 never written: a version that cannot share the prefix with
//	                          this one will write a number above 1, which Open refuses
//	P %o/ N / owner           where a named owner has its place
//	P %m/ N / owner / id      one ticket of that owner
//
// The value of a place is four lines after a version: id, TTL in milliseconds,
// owner, metadata. A key without them belongs to a foreign client. A key that
// does not end with its own lease is not a lock's, and requests for its queue
// are refused.
//
// # The hand-off
//
// Join is one transaction that makes the key and reads its predecessors. A
// release deletes the holder's key and, in the same transaction, writes to the
// wake key of the next waiter's lease, provided that the next waiter's key
// still exists. Each client has one watch on each of its wake keys, and that
// watch is always open: a watch created at the start of a wait would begin at a
// past revision, and the server serves those only every 100 ms. The message
// also names up to seven waiters that come next, so that only one release in
// eight reads the queue. No ticket can come between them, because places are
// taken at the end. Two clients that pass a lock to each other do not read the
// queue at all.
//
// A waiter that has waited for a second, or whose predecessor is foreign, also
// watches its predecessor's key. In this way it notices a predecessor that goes
// without a wake-up: because its lease ended, because somebody deleted the key,
// or because it is foreign.
//
// # How time is kept
//
// All tickets of a client with one TTL share one lease. One stream carries the
// keep-alives of all leases. A keep-alive is sent along with a Join or Renew
// whose promise of a whole TTL needs one, and the lease is counted from when
// the keep-alive was sent. The driver removes a place that the core does not
// renew in time, although its lease goes on. A lease that ends deletes its wake
// key, so that its client notices at once.
package etcdlock
