package rueidisclient

import "sync/atomic"

// inFlight counts the requests that a connection with many callers has not
// answered. The client keeps a place for each request. A request that finds no
// free place blocks, whatever its context. A request whose caller gave up
// keeps its place, too: at a silent server, for as long as the connection
// lasts. So when few places are left, callers go by way of a sender.
//
// Answers come in the order of the requests. So the answer to a request shows
// that all requests given up before it was made have been answered, or went
// with the connection. A client of the user's may have several connections;
// then the count is a guess.
//
// The zero value is ready.
type inFlight struct {
	running   atomic.Int64 // requests under way
	abandoned atomic.Int64 // number of requests ever given up
	drained   atomic.Int64 // number of those that are known to have left their places
}

// directLimit is the number of requests that callers send themselves. The
// client has 256 places.
const directLimit = 200

// admit counts a request, if there is room for it. The caller passes the mark
// to done.
func (c *inFlight) admit() (mark int64, ok bool) {
	drained := c.drained.Load()
	mark = c.abandoned.Load()
	if c.running.Add(1)+mark-drained > directLimit {
		c.running.Add(-1)
		return 0, false
	}
	return mark, true
}

// add counts a request whether there is room or not.
func (c *inFlight) add() (mark int64) {
	c.running.Add(1)
	return c.abandoned.Load()
}

// done notes that a request was answered or given up.
func (c *inFlight) done(mark int64, answered bool) {
	if !answered {
		c.abandoned.Add(1)
	}
	for answered {
		drained := c.drained.Load()
		if drained >= mark || c.drained.CompareAndSwap(drained, mark) {
			break
		}
	}
	c.running.Add(-1)
}
