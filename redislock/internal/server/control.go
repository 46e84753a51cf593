package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// minLimit is the least time that a call counts as having had: a call with
// hardly any time is no reason to give a connection up.
const minLimit = 20 * time.Millisecond

// ownConn is a connection of the driver's own, for renewals and for the
// requests of operators. The first such request opens it.
//
// No other mutex of this package is taken, and no connection is opened, under mu.
type ownConn struct {
	opening chan struct{} // capacity 1: taken while the connection is opened

	mu     sync.Mutex
	conn   client.Conn
	closed bool

	pending atomic.Int64 // requests without an answer
	since   atomic.Int64 // when it began to owe, or answered last, in nanoseconds since start
	start   time.Time
}

func (a *ownConn) init(start time.Time) { a.opening, a.start = make(chan struct{}, 1), start }

// get returns the connection, which it opens where there is none, or nil when the driver is
// closed or ended is closed. A silent server must not keep a goroutine for each request that
// was given up while another one opens the connection.
func (a *ownConn) get(ended <-chan struct{}, open func() client.Conn) client.Conn {
	if c, ok := a.opened(); ok {
		return c
	}
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-ended:
		return nil
	}
	if c, ok := a.opened(); ok {
		return c
	}
	c := open()
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.conn = c
		a.touch()
	}
	a.mu.Unlock()
	if closed {
		if c != nil {
			c.Close()
		}
		return nil
	}
	return c
}

// opened returns the connection. It reports false if it is to be opened.
func (a *ownConn) opened() (client.Conn, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn, a.conn != nil || a.closed
}

func (a *ownConn) touch() { a.since.Store(int64(time.Since(a.start))) }

// beginRequest notes that a request begins, and returns the function that notes
// its end.
func (a *ownConn) beginRequest() (ended func()) {
	if a.pending.Add(1) == 1 {
		a.touch()
	}
	return func() {
		a.touch()
		a.pending.Add(-1)
	}
}

// silence returns how long the connection has owed an answer.
func (a *ownConn) silence() time.Duration { return time.Since(a.start) - time.Duration(a.since.Load()) }

// drop closes a connection that failed, so that the next call opens another.
func (a *ownConn) drop(conn client.Conn) {
	a.mu.Lock()
	if a.conn != conn || conn == nil {
		a.mu.Unlock()
		return
	}
	a.conn = nil
	a.mu.Unlock()
	conn.Close()
}

// has reports whether conn is the connection of the driver's requests, and has
// not been dropped.
func (a *ownConn) has(conn client.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.conn == conn
}

// errGivenUp is the error of a call whose connection the driver has given up
// because of another call. The library names it as it names the end of its
// client, which is final.
var errGivenUp = driver.Errorf(driver.Unknown, "connection closed: the server was silent on it for too long")

// dropSilent drops a connection that still owes an answer after a moment, in
// which an answer that arrived while this process got no processor can be read.
func (a *ownConn) dropSilent(conn client.Conn, limit time.Duration, done <-chan struct{}) {
	select {
	case <-time.After(2 * client.LastLook):
	case <-done:
		return
	}
	if client.Overdue(a.silence(), limit) {
		a.drop(conn)
	}
}

func (a *ownConn) close() {
	a.mu.Lock()
	conn := a.conn
	a.conn, a.closed = nil, true
	a.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// onControl calls f with the control connection and returns its answer, or an
// error as soon as ctx ends. f returns the client library's errors.
func onControl[T any](ctx context.Context, d *Driver, f func(c client.Conn) (T, error)) (T, error) {
	return onOwnConn(ctx, d, &d.control, f)
}

// onOwnConn does the same as onControl, on any connection of the driver's own.
func onOwnConn[T any](ctx context.Context, d *Driver, on *ownConn, f func(c client.Conn) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	ch := make(chan answer, 1)
	begun := time.Now()
	var conn atomic.Value
	if !d.Begin(func() {
		defer on.beginRequest()()
		c := on.get(ctx.Done(), d.client.Conn)
		if c == nil {
			ch <- answer{err: d.cutErr()}
			return
		}
		conn.Store(&c)
		v, err := f(c)
		if errors.Is(err, client.ErrClosed) && !on.has(c) {
			err = errGivenUp
		}
		if Broken(err) {
			on.drop(c)
			d.client.Heal()
		}
		ch <- answer{v, d.classify(err)}
	}) {
		return none, d.overErr()
	}
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		deadline, bounded := ctx.Deadline()
		if !bounded || time.Now().Before(deadline) {
			return none, client.Ended(ctx) // the caller's context ended, which says nothing about the server
		}
		limit := max(deadline.Sub(begun), minLimit)
		if c, ok := conn.Load().(*client.Conn); ok && client.Overdue(on.silence(), limit) {
			d.Begin(func() { on.dropSilent(*c, limit, d.Done) })
		}
		d.client.CloseSilent(limit)
		return none, client.Ended(ctx)
	case <-d.Done:
		return none, d.cutErr()
	}
}

// Do sends one command on the control connection and returns its answer.
func (d *Driver) Do(ctx context.Context, words ...string) (wire.Reply, error) {
	return onControl(ctx, d, func(c client.Conn) (wire.Reply, error) { return c.Do(words...) })
}

// Broken reports whether an error is about the connection.
func Broken(err error) bool {
	if err == nil {
		return false
	}
	if _, never := errors.AsType[*client.Unopened](err); never {
		return true
	}
	_, answered := errors.AsType[wire.ServerError](err)
	return !answered && !errors.Is(err, wire.ErrAnswer)
}

// runOn runs a script on a connection, however long it takes.
func runOn(c client.Conn, s *wire.Script, keys []string, args ...string) (wire.Reply, error) {
	r, err := c.Do(s.Words(false, keys, args)...)
	if wire.IsNoScript(err) {
		r, err = c.Do(s.Words(true, keys, args)...)
	}
	return r, err
}

// runAll sends all scripts at once. Its error says that the connection broke;
// the error of one script is in its reply.
func runAll(c client.Conn, runs []wire.Run) ([]wire.Reply, error) {
	commands := make([][]string, len(runs))
	for i := range runs {
		commands[i] = runs[i].Words(false)
	}
	replies := c.Pipe(commands)
	for round := 0; ; round++ {
		var again []int
		for i := range runs {
			if wire.IsNoScript(replies[i].Err) {
				again = append(again, i)
			}
		}
		if len(again) == 0 {
			break
		}
		commands = commands[:0]
		for n, i := range again { // the server knows the script once the first of these has run
			commands = append(commands, runs[i].Words(n == 0 || round > 0))
		}
		for n, reply := range c.Pipe(commands) {
			replies[again[n]] = reply
		}
		if round > 0 {
			break
		}
	}
	for i := range replies {
		if Broken(replies[i].Err) {
			return replies, replies[i].Err
		}
	}
	return replies, nil
}
