package zklock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/unanswered"
)

// unsentLimit is the longest time that a call waits without a connection. When
// a connection breaks, the client library answers the requests that it has
// sent, and keeps the rest until there is another connection, which may be
// never.
const unsentLimit = time.Second

// do runs f, which sends requests in the sessions in, on a goroutine, because
// the client library's calls take no context. It waits until f returns, until
// ctx ends, or for unsentLimit while one of the sessions has no connection.
// Close waits for f in any case. While a server is silent and many requests in
// one session are under way whose callers have given up, f does not run.
func (d *Driver) do(ctx context.Context, f func(), in ...*session) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return driver.ErrClosed
	}
	if slices.ContainsFunc(in, func(s *session) bool { return s.tap.givenUp.Full() }) {
		d.mu.Unlock()
		return errSilent
	}
	d.calls.Add(1)
	down := d.down
	d.mu.Unlock()
	c := &call{in: in, done: make(chan struct{})}
	go func() {
		defer d.calls.Done()
		f()
		c.end()
	}()
	away := func(s *session) bool { return !s.up() }
	for {
		var late <-chan time.Time
		if slices.ContainsFunc(in, away) {
			late = time.After(unsentLimit)
		}
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			c.giveUp()
			return ended(ctx)
		case <-down:
			d.mu.Lock()
			down = d.down
			d.mu.Unlock()
		case <-late:
			if i := slices.IndexFunc(in, away); i >= 0 {
				c.giveUp()
				return &driver.Error{Class: driver.Unknown, Err: in[i].unconnected()}
			}
		}
	}
}

// errSilent is the error of a request that was not sent.
var errSilent = driver.Errorf(driver.Unavailable, "the server does not answer, and %d requests that were given up are under way", unanswered.Most)

// call is a call of do that is under way in sessions.
type call struct {
	in   []*session
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	turns []int // of the sessions, once its caller has given up
}

// giveUp counts the call as given up, until it ends.
func (c *call) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	for _, s := range c.in {
		c.turns = append(c.turns, s.tap.givenUp.GiveUp())
	}
}

// end notes that the call has ended.
func (c *call) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.done)
	for i, turn := range c.turns {
		c.in[i].tap.givenUp.End(turn)
	}
}

// doFor is do for an f with a result. If do ends before f does, the result is
// discarded.
func doFor[T any](ctx context.Context, s *session, f func() (T, error)) (T, error) {
	var got, none T
	var err error
	if e := s.d.do(ctx, func() { got, err = f() }, s); e != nil {
		return none, e
	}
	return got, err
}

// request runs f in some session, for a request that belongs to no ticket.
func request[T any](ctx context.Context, d *Driver, f func(s *session) (T, error)) (none T, err error) {
	if err := d.checkOpen(ctx); err != nil {
		return none, err
	}
	s, err := d.any(ctx)
	if err != nil {
		return none, err
	}
	return doFor(ctx, s, func() (T, error) { return f(s) })
}

// disconnected notifies the calls under way that a session has lost its
// connection.
func (d *Driver) disconnected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.down)
	d.down = make(chan struct{})
}
