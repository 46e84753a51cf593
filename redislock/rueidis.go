package redislock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// This file adapts rueidis to package link. Where the library behaves otherwise
// than the driver needs, another file makes up for it:
//
//   - The only caller of a connection reads the answer in its own goroutine, and
//     its context is ignored: lonecall.go, and the senders of call.go
//     (TestF7_SilentServer).
//   - A connection has 256 places for unanswered requests, and a caller without a
//     place blocks, whatever its context: inflight.go
//     (TestFullConnectionEndsCallsInTime).
//   - The deadline of the only caller's context becomes the connection's, so that
//     a late answer costs the connection: ctxpoller.go.
//   - Memory is allocated for the length that a reply announces, before the data
//     arrive: lengths.go (TestLengths, TestF11_GarbledAnswers).
//   - The error that a server answers while a connection is opened is returned
//     for every later command: unopened, below
//     (TestF35_RenewalsWorkAfterRefusal).
//   - A connection with a single caller shows only at the next request that it
//     is broken: heal, in control.go.
//   - Requests are repeated, and answers cached, unless that is turned off:
//     open.go (TestF1_F2_F4_LostRequestIsUnknown).

// replyOf converts a reply of rueidis.
func replyOf(m *rueidis.RedisMessage) link.Reply {
	switch {
	case m.IsInt64():
		n, _ := m.ToInt64()
		return link.Number(n)
	case m.IsString():
		s, _ := m.ToString()
		return link.Text(s)
	case m.IsNil():
		return link.Reply{}
	case m.IsArray():
		l, _ := m.ToArray()
		list := make([]link.Reply, len(l))
		for i := range l {
			list[i] = replyOf(&l[i])
		}
		return link.List(list)
	case m.IsMap():
		pairs, _ := m.ToMap()
		list := make([]link.Reply, 0, 2*len(pairs))
		for name, v := range pairs {
			list = append(list, link.Text(name), replyOf(&v))
		}
		return link.List(list)
	}
	if err := m.Error(); err != nil {
		return link.Failed(err)
	}
	if s, err := m.ToString(); err == nil { // a text with a format of its own, such as INFO's
		return link.Text(s)
	}
	return link.Reply{}
}

// dedicated is a dedicated connection of rueidis as a [link.Conn].
type dedicated struct {
	c    rueidis.DedicatedClient
	open atomic.Bool // a command was answered
}

// unopened is the server's answer to the opening of a connection, an error:
// for example, it has no room for one more, or wants another password. From
// then on rueidis returns that error for every command, like an answer.
type unopened struct{ error }

// Unwrap returns the server's words.
func (u *unopened) Unwrap() error { return u.error }

// classify distinguishes the answer to a command from an error of the opening.
// Until a command was answered, an error may be either; it counts as one of
// the opening, because a new connection costs little.
func (d *dedicated) classify(err error) error {
	_, refused := errors.AsType[*rueidis.RedisError](err)
	switch {
	case err == nil || rueidis.IsRedisNil(err) || noScript(err):
		d.open.Store(true)
	case refused && !d.open.Load():
		return &unopened{err}
	}
	return err
}

// Do implements [link.Conn].
func (d *dedicated) Do(words ...string) (link.Reply, error) {
	m, err := d.c.Do(context.Background(), d.c.B().Arbitrary(words...).Build()).ToMessage()
	if err = d.classify(err); err != nil && !rueidis.IsRedisNil(err) {
		return link.Reply{}, err
	}
	return replyOf(&m), nil
}

// Pipe implements [link.Conn].
func (d *dedicated) Pipe(commands [][]string) []link.Reply {
	cmds := make([]rueidis.Completed, len(commands))
	for i, words := range commands {
		cmds[i] = d.c.B().Arbitrary(words...).Build()
	}
	replies := make([]link.Reply, len(commands))
	for i, r := range d.c.DoMulti(context.Background(), cmds...) {
		m, err := r.ToMessage()
		if err = d.classify(err); err != nil && !rueidis.IsRedisNil(err) {
			replies[i] = link.Failed(err)
			continue
		}
		replies[i] = replyOf(&m)
	}
	return replies
}

// Close implements [link.Conn].
func (d *dedicated) Close() { d.c.Close() }

// conn returns a new connection of the driver's own.
func (d *Driver) conn() link.Conn {
	if d.adapter != nil {
		return d.adapter.Conn()
	}
	c, _ := d.client.Dedicate()
	return &dedicated{c: c}
}

// subscriber is a subscribed connection of rueidis as a [link.Subscriber].
type subscriber struct {
	c       rueidis.DedicatedClient
	sharded bool
	lost    chan struct{}
	poller  *ctxPoller
}

// Add implements [link.Subscriber].
func (e *subscriber) Add(ctx context.Context, channel string) error {
	b := e.c.B()
	cmd := b.Subscribe().Channel(channel).Build()
	if e.sharded {
		cmd = b.Ssubscribe().Channel(channel).Build()
	}
	until := e.poller.begin(ctx)
	defer e.poller.end(until)
	return e.c.Do(until, cmd).Error()
}

// Lost implements [link.Subscriber].
func (e *subscriber) Lost() <-chan struct{} { return e.lost }

// Close implements [link.Subscriber].
func (e *subscriber) Close() { e.c.Close() }

// listen opens a connection for subscriptions.
func (d *Driver) listen(onMessage func(message string), onDropped func(channel string)) link.Subscriber {
	if d.adapter != nil {
		return d.adapter.Listen(d.keys.sharded, onMessage, onDropped)
	}
	c, _ := d.client.Dedicate()
	e := &subscriber{c: c, sharded: d.keys.sharded, lost: make(chan struct{}), poller: &d.poller}
	ended := c.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { onMessage(m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "sunsubscribe" {
				onDropped(s.Channel)
			}
		},
	})
	if !d.begin(func() {
		<-ended
		close(e.lost)
	}) {
		c.Close()
		close(e.lost)
	}
	return e
}
