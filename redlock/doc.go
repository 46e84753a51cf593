// Package redlock makes one store of an odd number of independent stores,
// usually Redis servers. A client holds a lock once a majority of them has
// granted it. One node of three, or two nodes of five, may be down, slow, cut
// off or empty, and the clients do not notice.
//
// # Acquisition
//
// A client asks all nodes at once. One of them is the name's home: the first
// node that answers, in an order that the name decides. A client that finds the
// home taken waits in the queue there, and nowhere else, and gives back the
// votes of the other nodes. Only one client at a time is granted at the home,
// and only that client tries to win the other nodes; so equal contenders do not
// take votes from each other, and the home's push wakes the next waiter. If a
// name was contended recently, the client asks the home first and the other
// nodes after it.
//
// Clients may disagree about the home, because one of them cannot reach it, and
// then meet at the other nodes. They give back the votes that they got and
// wait; the wait grows and is partly random. After six tries they leave the
// home, too, and wait as long.
//
// # Lease
//
// Each node promises to keep its vote for a lease, counted from before the
// request was sent to it. The lock's lease is the one that a majority promised:
// with three nodes, the second longest. The duration of a request is thus
// subtracted from the lease. The drift of clocks is covered by the one per cent
// and the margin that the core subtracts, and by the four per cent for which a
// node keeps a vote longer.
//
// A renewal counts once a majority has confirmed it. Then, and only then, the
// driver asks the nodes that lost the vote or never gave it for their vote
// again, so that votes do not erode when nodes restart one after the other.
//
// # Tokens
//
// Each node gives a token of its own. The lock's token has to be greater than
// every earlier one. A majority remembers the earlier tokens, so the token is
// the greatest answer of some majority. A majority also has to remember the new
// token, so as many answers must not be below it. The middle one of all answers
// always meets both conditions, and so does an answer that a majority gave
// alike. While a node is down, the driver proposes a minimum token that all
// nodes can give; if it was too low, one more round takes the votes anew with a
// higher one.
//
// # Release
//
// A release goes to every node that may have a vote, including nodes that never
// answered the request for it. The driver repeats it in the background until
// they confirm it. Neither a lock nor its release waits for a node longer than
// four times what the others take, at most 50 ms. Until such a node answers,
// later calls do not wait for it at all.
//
// # Limitations
//
// There are no semaphores: three holders of two permits can each have a
// majority of three nodes. Read/write locks would be right, but the seam has
// one trait for both. There are no named owners: the owner's second ticket
// would have to find a majority of places that one ticket has, while nodes come
// and go. There are no marks yet, and so no Once: Traits.Marks is false. The order of
// tickets is only the home's: Traits.Fair is false.
package redlock
