// Package lockclient is the driver of lock servers: the store behind holdfast://,
// holdfasts:// and holdfast-unix: is whatever store the servers use.
//
// The rules are those of clients/README.md. The core keeps the ones about time: it counts
// a claim from before a request was sent, takes 1 % and a margin from what an answer
// leaves of it, and calls a loss final. The driver keeps the others:
//
//   - A ticket is an id of this driver at the servers, whose owner at the store is a hash
//     of that id; so each server over the store finds its place and token.
//   - A request goes to one server. A server that does not answer, that answers for
//     another, or that ends, makes the next one the server of the requests that follow.
//   - A server that does not know a hold is asked to resume it, which never makes a new
//     grant. A server that does not know a wait, and is another one than before, is asked
//     for the place that the id has.
//   - Events are hints, apart from the word that a hold has ended. An event of a grant
//     counts on the claim of the place, if that is its server's; else the driver asks to
//     resume. A loss counts if no other server can have the hold.
//
// A lease is what is left of the server's claim, which is up to 2 % and 20 ms shorter than
// the TTL of a fresh grant, and up to a third shorter while a ticket waits. So Join 9 of
// package driver holds for the store and not for the Lease of the answer: the core's claim
// ends a little earlier.
package lockclient
