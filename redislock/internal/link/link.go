// Package link has the interfaces through which redislock uses a client
// library of Redis, so that a driver can run on another library than its own.
// Only packages below redislock can import it.
package link

import (
	"context"
	"errors"
)

// Client is a client of one server. It is safe for concurrent use. Errors that
// the server answered are a [ServerError].
type Client interface {
	// Do sends a command on the client's shared connections and waits for the
	// answer until ctx ends.
	Do(ctx context.Context, words ...string) (Reply, error)
	// Conn returns a connection apart from the shared ones. It does not block.
	Conn() Conn
	// Listen returns a connection for subscriptions to channels, of the sharded
	// kind or of the plain one. It calls onMessage with each message, and
	// onDropped with each channel that the server stopped serving. Neither may
	// block.
	Listen(sharded bool, onMessage func(message string), onDropped func(channel string)) Subscriber
}

// Conn is one connection. It is made with the first command, and again after
// it broke. It is safe for concurrent use; commands wait for one another.
type Conn interface {
	// Do sends a command and waits for the answer, within the client's limits.
	Do(words ...string) (Reply, error)
	// Pipe sends commands at once and returns an answer for each, in order.
	// The error of each is in Reply.Err.
	Pipe(commands [][]string) []Reply
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
	Owner(ctx context.Context, key string) (name string, c Client, err error)
	// Primaries returns all primaries, by name.
	Primaries(ctx context.Context) (map[string]Client, error)
	// Reload makes the client look for the owners of the slots anew.
	Reload(ctx context.Context)
}

// ServerError is an error that a server answered, in its own words.
type ServerError string

// Error returns the server's words.
func (e ServerError) Error() string { return string(e) }

// ErrClosed is the error of a client that its owner has closed.
var ErrClosed = errors.New("the client is closed")

// Reply is a server's answer: a number, a text, a list, or nothing.
type Reply struct {
	kind kind
	n    int64
	text string
	list []Reply

	// Err is the error of this answer, in a list and from [Conn.Pipe].
	Err error
}

type kind uint8

const (
	nothing kind = iota
	number
	text
	list
)

// Number returns a Reply that is a number. The zero Reply is the absence of an
// answer.
func Number(n int64) Reply { return Reply{kind: number, n: n} }

// Text returns a Reply that is a text.
func Text(s string) Reply { return Reply{kind: text, text: s} }

// List returns a Reply of several. Pairs of names and values are a list, too.
func List(l []Reply) Reply { return Reply{kind: list, list: l} }

// Failed returns a Reply that is an error.
func Failed(err error) Reply { return Reply{Err: err} }

var errKind = errors.New("reply of another type")

// Int returns the answer as a number.
func (r *Reply) Int() (int64, error) {
	if r.kind != number || r.Err != nil {
		return 0, r.unlike()
	}
	return r.n, nil
}

// Text returns the answer as a text.
func (r *Reply) Text() (string, error) {
	if r.kind != text || r.Err != nil {
		return "", r.unlike()
	}
	return r.text, nil
}

// List returns the answer as a list.
func (r *Reply) List() ([]Reply, error) {
	if r.kind != list || r.Err != nil {
		return nil, r.unlike()
	}
	return r.list, nil
}

// Texts returns the answer as a list of texts.
func (r *Reply) Texts() ([]string, error) {
	l, err := r.List()
	if err != nil {
		return nil, err
	}
	texts := make([]string, len(l))
	for i := range l {
		if texts[i], err = l[i].Text(); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// Pairs returns the answer, a list of names and values, as a map.
func (r *Reply) Pairs() (map[string]string, error) {
	l, err := r.Texts()
	if err != nil {
		return nil, err
	}
	if len(l)%2 != 0 {
		return nil, errKind
	}
	m := make(map[string]string, len(l)/2)
	for i := 0; i < len(l); i += 2 {
		m[l[i]] = l[i+1]
	}
	return m, nil
}

func (r *Reply) unlike() error {
	if r.Err != nil {
		return r.Err
	}
	return errKind
}
