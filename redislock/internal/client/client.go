// Package client has the interfaces through which redislock uses a client
// library of Redis: a driver knows only these. Only packages below redislock can
// import it.
package client

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Library is a client of one server as a library offers it.
type Library interface {
	// In returns the library as the client of one driver, in the driver's life.
	In(Life) Client
}

// Life is the life of a driver.
type Life struct {
	// Begin runs f on a goroutine that the end of the life waits for. It returns
	// false if the life has ended.
	Begin func(f func()) bool
	// Done is closed when the life ends.
	Done <-chan struct{}
}

// Client is a client of one server. It is safe for concurrent use. Errors that
// the server answered are a [wire.ServerError].
type Client interface {
	// Eval runs a script on the client's shared connections, and returns its
	// answer, or an error as soon as ctx or the driver's life ends. In that case
	// the request may stay under way.
	Eval(ctx context.Context, r wire.Request) (wire.Reply, error)
	// Conn returns a connection apart from the shared ones. It does not block.
	Conn() Conn
	// Listen returns a connection for subscriptions to channels, of the sharded
	// kind or of the plain one. It calls onMessage with each message, and
	// onDropped with each channel that the server stopped serving. Neither may
	// block.
	Listen(sharded bool, onMessage func(message string), onDropped func(channel string)) Subscriber
	// Heal makes the client find out whether its shared connections are broken,
	// after another one broke.
	Heal()
	// CloseSilent gives up the shared connections that have owed an answer for
	// too long, after a call that had the time limit gave up.
	CloseSilent(limit time.Duration)
	// Cut ends the connections, if the client is the driver's own.
	Cut()
	// Close closes the client, if it is the driver's own. The connections of Conn
	// were closed before.
	Close()
}

// Conn is one connection. It is made with the first command, and again after
// it broke. It is safe for concurrent use; commands wait for one another.
type Conn interface {
	// Do sends a command and waits for the answer, within the client's limits.
	Do(words ...string) (wire.Reply, error)
	// Pipe sends commands at once and returns an answer for each, in order.
	// The error of each is in Reply.Err.
	Pipe(commands [][]string) []wire.Reply
	// Close ends the connection without waiting for a command that is under
	// way.
	Close()
}

// Subscriber is a connection that is subscribed to channels.
type Subscriber interface {
	// Add subscribes to one more channel, and returns once messages flow.
	Add(ctx context.Context, channel string) error
	// Lost returns a channel that is closed when the connection is lost.
	Lost() <-chan struct{}
	// Close ends the connection.
	Close()
}

// Cluster is a client for the nodes of a cluster.
type Cluster interface {
	// Owner returns the primary that has the slot of a key, as far as the
	// client knows, and a name that distinguishes the primary from others.
	Owner(ctx context.Context, key string) (name string, l Library, err error)
	// Primaries returns all primaries, by name.
	Primaries(ctx context.Context) (map[string]Library, error)
	// Reload makes the client look for the owners of the slots anew.
	Reload(ctx context.Context)
}

var (
	// ErrClosed is the error of a client that its owner has closed.
	ErrClosed = errors.New("the client is closed")
	// ErrOver is the error of a call that begins after the driver's life.
	ErrOver = errors.New("the driver is closed")
	// ErrCut is the error of a call that was under way when the driver's life
	// ended.
	ErrCut = errors.New("the driver was closed during the call")
)

// Unopened is the server's answer to the opening of a connection, an error:
// for example, it has no room for one more, or wants another password.
type Unopened struct{ Err error }

// Error returns the server's words.
func (u *Unopened) Error() string { return u.Err.Error() }

// Unwrap returns the server's words.
func (u *Unopened) Unwrap() error { return u.Err }

// Refusal is the error of a connection on which the server answered with an
// error and then closed it: the server has no room for more clients, or for
// this one.
type Refusal struct{ Text string }

// Error returns the server's words.
func (r *Refusal) Error() string { return r.Text }

// Endless reports whether a context cannot end. The core's contexts have a
// deadline, and are not asked for the channel of Done, which they would have
// to make.
func Endless(ctx context.Context) bool {
	_, ends := ctx.Deadline()
	return !ends && ctx.Done() == nil
}

// Ended returns the error of a call whose context ended after the command was
// sent.
func Ended(ctx context.Context) error {
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// silenceLimit is the longest time that a connection may owe an answer before a
// call that gives up waiting gives up the connection, too.
const silenceLimit = time.Second

// Overdue reports whether a call that had the time limit is to give up a
// connection that has owed an answer for the time silence. It does after one
// and a half times the limit, so that a late answer costs no connection, and
// several tries fit in a lease.
func Overdue(silence, limit time.Duration) bool { return silence > min(silenceLimit, limit*3/2) }

// LastLook bounds the last read of a silent connection before it is closed. An
// answer may have arrived while this process got no processor to read it.
const LastLook = 20 * time.Millisecond
