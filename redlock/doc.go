// Package redlock makes one store of an odd number of independent ones, usually
// Redis servers: a lock is held by whoever a majority of them has granted it. Of
// three nodes one may be down, slow, cut off or without its data, of five two,
// and nobody notices.
//
// # How a lock is taken
//
// All nodes are asked at once. One of them is the name's home: the first in an
// order that the name decides, of those that answer. Whoever finds somebody else
// at home stands in line there, and nowhere else, and gives back what the other
// nodes granted. Whoever is granted at home is the only one, and goes for the
// others; so equal contenders do not take votes from each other, and the next
// one is woken by the home's push. Where others were met lately, the home is
// asked first and the other nodes after it.
//
// Clients that disagree about the home, because one cannot reach it, may meet at
// the other nodes. They give back what they got, wait for a time that grows and
// is left to chance, and after six tries leave the home, too, for as long.
//
// # How long it is held
//
// Each node promises to keep its vote for a lease, counted from before the
// request was sent to it. The lock's lease is the one that a majority promised:
// with three nodes, the second longest. What a request took is thus off it, and
// the drift of clocks is in the one per cent and the margin that the core takes
// off, and in the four per cent for which a node keeps a vote longer.
//
// A renewal counts when a majority has confirmed it. Then, and only then, nodes
// that lost the vote or never gave it are asked for it again, so that votes do
// not erode as nodes restart one after the other.
//
// # Tokens
//
// Each node gives a token of its own. The lock's token has to be greater than
// every one before, which a majority remembers: it is the greatest answer of
// some majority. And a majority has to remember it: as many answers must not be
// below it. The middle one of all answers is always that, and so is an answer
// that a majority gave alike. While a node is down, a floor is proposed that all
// nodes can give; where it was too low, one more round takes the votes anew with
// a higher one.
//
// # Releasing
//
// A release goes to every node that may have a vote, also to those that never
// answered the request for it, and is repeated in the background until they
// confirm it. Neither a lock nor its release waits for a node that is slower
// than four times what the others take, 50 ms at most; from then on, until it
// answers, it is not waited for at all.
//
// # What it cannot do
//
// Semaphores are left out, since three holders of two permits can each have a
// majority of three nodes. Read/write locks would be right, but the seam has one
// trait for both; named owners, because the owner's second ticket would have to
// find a majority of places that one ticket has, while nodes come and go. Order
// is the home's, and no more than that: Traits.Fair is false.
package redlock
