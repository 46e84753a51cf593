package redislock

import "sync/atomic"

// crowd counts the requests that a connection with many callers has not
// answered. The client keeps a place for each, and one that finds none waits
// for it, whatever its context. Those whose callers gave up keep theirs, too:
// at a server that is silent, as long as the connection lasts. So who finds
// little room is to go by way of a sender.
//
// Answers come in the order of the requests: one that was made when so many had
// been given up says that they have been answered, or went with the connection.
// A client of the user's may have several connections; then this is a guess.
//
// The zero value is ready.
type crowd struct {
	under atomic.Int64 // requests under way
	lost  atomic.Int64 // requests that were given up, ever
	found atomic.Int64 // how many of those have left their places
}

// room is how many requests are sent by their callers themselves. The client
// has 256 places.
const room = 200

// admit counts a request, if there is room for it. The mark is for over.
func (c *crowd) admit() (mark int64, ok bool) {
	found := c.found.Load()
	mark = c.lost.Load()
	if c.under.Add(1)+mark-found > room {
		c.under.Add(-1)
		return 0, false
	}
	return mark, true
}

// add counts a request whether there is room or not.
func (c *crowd) add() (mark int64) {
	c.under.Add(1)
	return c.lost.Load()
}

// over says that a request has its answer, or was given up.
func (c *crowd) over(mark int64, answered bool) {
	if !answered {
		c.lost.Add(1)
	}
	for answered {
		found := c.found.Load()
		if found >= mark || c.found.CompareAndSwap(found, mark) {
			break
		}
	}
	c.under.Add(-1)
}
