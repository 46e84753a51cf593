// Package etcdlock keeps lines of tickets in etcd, version 3.4 or later. On
// mutexes it takes turns with etcdctl lock, the Lock RPC and
// concurrency.Mutex, whose layout it uses.
//
// # What is in the store
//
// P is the prefix, N the name with / and control characters as %XX, L a lease
// in hex. A line is the keys below P N "/", in the order of their create
// revisions: the oldest hold, as far as their units fit the limit. A create
// revision is also the token. All keys live by leases.
//
//	P N / L                   a place of a mutex
//	P N / L - id              another one of the same client
//	P N / rw- units - L - id  a place of a read/write lock
//	P N / s limit - units - L - id  of a semaphore; numbers in hex
//	P %w/ L                   the wake key of a lease
//	P %t/ id                  a tombstone: this ticket may not join any more
//	P %o/ N / owner           where a named owner has its place
//	P %m/ N / owner / id      one ticket of that owner
//
// The value of a place is four lines after a version: id, TTL in milliseconds,
// owner, metadata. A key without them is a foreign client's; a key that does
// not end with its own lease is no lock's, and the line is refused.
//
// # How a turn is handed on
//
// Join is one transaction that makes the key and reads who is before it. The
// one who leaves deletes its key and, in the same transaction, writes to the
// wake key of the next one's lease, provided that the next one's key is still
// there. Each client has one watch on each of its wake keys, which is always
// open: a watch begun at the time of waiting would have to begin at a past
// revision, and the server serves those every 100 ms only. The message also
// names up to seven who are next after that, so that only one in eight has to
// read the line; between them nobody can come, since places are taken at the
// end. Two clients that pass a lock to each other do not read it at all.
//
// Whoever waits for a second, or behind a foreign key, watches the key before
// its own as well. That is how it hears of predecessors that go without a word: by the
// end of their lease, by hand, or because they are foreign.
//
// # How time is kept
//
// All tickets of a client with one TTL live by one lease, whose keep-alives go
// over one stream for all leases; they are sent along with Joins and Renews
// that need one for their promise of a whole TTL, and counted from when they
// were sent. A place that the core does not renew in time is removed by the
// driver, although its lease goes on. A lease that ends takes its wake key
// with it, which is how the client hears of it at once.
package etcdlock
