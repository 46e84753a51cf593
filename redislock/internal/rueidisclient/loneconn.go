package rueidisclient

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// loneConn is the connection for requests that meet no other one. The answer to
// such a request is read in its caller's goroutine, which takes a third off the
// time and the processor time of a lone request. Requests that meet share another
// connection, which is pipelined: writing and reading have goroutines there, and
// rueidis never goes back from this mode.
//
// The connection is opened, or tried anew, once enough requests have met no other
// one. It is closed to requests while many meet; after a pause, since nothing looks
// after an idle connection of this mode; and after an error. Then the shared
// connection serves all requests, so no request depends on this one.
//
// With two connections a join that was given up may arrive after the leave that
// follows it. The core gives each such ticket driver.Ref.JoinPending.
//
// The zero value is ready.
type loneConn struct {
	state atomic.Int32
	score atomic.Int32
	last  atomic.Int64 // the time since epoch of the last request that met no other one
	retry atomic.Int64 // the time since epoch before which the connection is not opened
}

// The states of a loneConn.
const (
	connClosed = iota
	connOpening
	connOpen
)

const (
	// loneFrom is the score from which the connection is opened. Each request that
	// meets no other one adds 1 to the score, up to loneFrom, and each that does
	// takes meetingCost off: the connection is for programs of whose requests at most one in
	// 17 meets another. With more, requests on two connections cost more than they save.
	loneFrom    = 256
	meetingCost = 16
	// loneUntil is the score below which the connection is closed.
	loneUntil = loneFrom * 3 / 4
	// lonePause is the longest pause between two requests in the connection. rueidis
	// looks after the shared connection as often.
	lonePause = time.Second
	// loneRetry is the time until a connection that failed to open is tried again.
	loneRetry = 10 * time.Second
)

// met notes that a request has met another one.
func (l *loneConn) met() {
	score := l.score.Add(-meetingCost)
	if score < 0 {
		l.score.Store(0)
	}
	if score < loneUntil {
		l.state.CompareAndSwap(connOpen, connClosed)
	}
}

// alone notes that a request has met no other one. It reports whether the request
// may use the connection, and whether the connection is to be opened.
func (l *loneConn) alone() (use, open bool) {
	now := int64(time.Since(epoch))
	if time.Duration(now-l.last.Swap(now)) > lonePause {
		l.close()
		return false, false
	}
	if l.score.Load() < loneFrom {
		l.score.Add(1)
		return l.state.Load() == connOpen, false
	}
	switch l.state.Load() {
	case connOpen:
		return true, false
	case connClosed:
		return false, now >= l.retry.Load() && l.state.CompareAndSwap(connClosed, connOpening)
	}
	return false, false
}

// opened notes whether the connection was opened.
func (l *loneConn) opened(ok bool) {
	if ok {
		l.state.Store(connOpen)
		return
	}
	l.score.Store(0)
	l.retry.Store(int64(time.Since(epoch) + loneRetry))
	l.state.Store(connClosed)
}

// close closes the connection to requests.
func (l *loneConn) close() {
	l.score.Store(0)
	l.state.CompareAndSwap(connOpen, connClosed)
}

// loneDial marks the context in which the connection's connection is made.
type loneDial struct{}

// openLoneConn makes the connection's connection, or finds out whether the present one still
// works, and makes another one if not. Only a driver with connections of its own
// has a connection.
func (c *Client) openLoneConn() {
	if !c.life.Begin(func() {
		ok := c.pingLoneConn()
		if !ok { // rueidis has given it up, and makes another one now
			ok = c.pingLoneConn()
		}
		c.loneConn.opened(ok)
	}) {
		c.loneConn.opened(false)
	}
}

// pingLoneConn reports whether the connection's connection works.
func (c *Client) pingLoneConn() bool {
	err := c.lib.Do(context.WithValue(context.Background(), loneDial{}, true), c.lib.B().Ping().Build()).Error()
	re, answered := rueidis.IsRedisErr(err)
	return err == nil || answered && strings.HasPrefix(re.Error(), "NOPERM")
}
