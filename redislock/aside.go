package redislock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// suspect is how long a connection may owe an answer before a call that gives
// up waiting gives up the connection too.
const suspect = time.Second

// aside is the driver's own connection, for renewals and for what people ask
// for. It is opened with the first of them.
type aside struct {
	mu     sync.Mutex // held while the connection is opened
	conn   link.Conn
	spoke  atomic.Int64 // when it answered last, in nanoseconds since start
	start  time.Time
	closed bool
}

func (a *aside) get(open func() link.Conn) link.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil && !a.closed {
		a.conn = open()
		a.answered()
	}
	return a.conn
}

func (a *aside) answered() { a.spoke.Store(int64(time.Since(a.start))) }

// drop closes a connection that failed, so that the next call opens another.
func (a *aside) drop(conn link.Conn) {
	a.mu.Lock()
	if a.conn != conn || conn == nil {
		a.mu.Unlock()
		return
	}
	a.conn = nil
	a.mu.Unlock()
	conn.Close()
}

func (a *aside) close() {
	a.mu.Lock()
	conn := a.conn
	a.conn, a.closed = nil, true
	a.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// beside calls f with the driver's own connection and returns its answer, or
// the context's end if that is first. f returns the client library's errors.
func beside[T any](ctx context.Context, d *Driver, f func(c link.Conn) (T, error)) (T, error) {
	return besideOn(ctx, d, &d.aside, f)
}

// besideOn is beside on one of the driver's own connections.
func besideOn[T any](ctx context.Context, d *Driver, on *aside, f func(c link.Conn) (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	ch := make(chan answer, 1)
	begun := time.Since(on.start)
	var conn atomic.Value
	if !d.begin(func() {
		c := on.get(d.conn)
		if c == nil {
			ch <- answer{err: d.cutErr()}
			return
		}
		conn.Store(&c)
		v, err := f(c)
		if broken(err) {
			on.drop(c)
			d.heal()
		} else {
			on.answered()
		}
		ch <- answer{v, d.classify(err)}
	}) {
		return none, d.overErr()
	}
	select {
	case a := <-ch:
		return a.v, a.err
	case <-ctx.Done():
		silence := time.Since(on.start) - max(begun, time.Duration(on.spoke.Load()))
		if c, ok := conn.Load().(*link.Conn); ok && silence > suspect {
			d.begin(func() { on.drop(*c) })
		}
		return none, ended(ctx)
	case <-d.done:
		return none, d.cutErr()
	}
}

// heal lets the client find out whether its shared connections are broken too,
// which one that has a single caller otherwise only finds out by failing the
// next request. One connection that broke is seldom alone.
func (d *Driver) heal() {
	if d.client == nil {
		return // its library looks after that
	}
	healed := make(chan struct{})
	if !d.begin(func() {
		d.client.Do(context.Background(), d.client.B().Ping().Build())
		close(healed)
	}) {
		return
	}
	select {
	case <-healed: // at once, if it is broken
	case <-time.After(glance):
	}
}

// broken says whether an error is about the connection.
func broken(err error) bool {
	if err == nil {
		return false
	}
	if _, never := errors.AsType[*unopened](err); never {
		return true
	}
	if _, answered := errors.AsType[link.ServerError](err); answered {
		return false
	}
	_, answered := errors.AsType[*rueidis.RedisError](err)
	return !answered && !errors.Is(err, errAnswer)
}

// errAnswer is in the errors of answers that cannot be read.
var errAnswer = errors.New("answer not understood")

// runOn runs a script on a connection, however long it takes.
func runOn(c link.Conn, s *script, keys []string, args ...string) (link.Reply, error) {
	r, err := c.Do(s.words(false, keys, args)...)
	if noScript(err) {
		r, err = c.Do(s.words(true, keys, args)...)
	}
	return r, err
}

// A run is one script to be run among others.
type run struct {
	script     *script
	keys, args []string
}

// runAll sends all at once. An error says that the connection broke; those of
// the answers are theirs.
func runAll(c link.Conn, runs []run) ([]link.Reply, error) {
	commands := make([][]string, len(runs))
	for i, r := range runs {
		commands[i] = r.script.words(false, r.keys, r.args)
	}
	replies := c.Pipe(commands)
	for round := 0; ; round++ {
		var again []int
		for i := range runs {
			if noScript(replies[i].Err) {
				again = append(again, i)
			}
		}
		if len(again) == 0 {
			break
		}
		commands = commands[:0]
		for n, i := range again { // the server knows the script after the first
			r := runs[i]
			commands = append(commands, r.script.words(n == 0 || round > 0, r.keys, r.args))
		}
		for n, reply := range c.Pipe(commands) {
			replies[again[n]] = reply
		}
		if round > 0 {
			break
		}
	}
	for i := range replies {
		if broken(replies[i].Err) {
			return replies, replies[i].Err
		}
	}
	return replies, nil
}
