package rueidisclient

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// replyOf converts a reply of rueidis.
func replyOf(m *rueidis.RedisMessage) wire.Reply {
	switch {
	case m.IsInt64():
		n, _ := m.ToInt64()
		return wire.Number(n)
	case m.IsString():
		s, _ := m.ToString()
		return wire.Text(s)
	case m.IsNil():
		return wire.Reply{}
	case m.IsArray():
		l, _ := m.ToArray()
		list := make([]wire.Reply, len(l))
		for i := range l {
			list[i] = replyOf(&l[i])
		}
		return wire.List(list)
	case m.IsMap():
		pairs, _ := m.ToMap()
		list := make([]wire.Reply, 0, 2*len(pairs))
		for name, v := range pairs {
			list = append(list, wire.Text(name), replyOf(&v))
		}
		return wire.List(list)
	}
	if err := m.Error(); err != nil {
		return wire.Failed(failure(err))
	}
	if s, err := m.ToString(); err == nil { // a text with a format of its own, such as INFO's
		return wire.Text(s)
	}
	return wire.Reply{}
}

// dedicated is a dedicated connection of rueidis as a [client.Conn].
type dedicated struct {
	c    rueidis.DedicatedClient
	open atomic.Bool // a command was answered
}

// classify distinguishes the answer to a command from an error of the opening.
// Until a command was answered, an error may be either; it counts as one of
// the opening, because a new connection costs little.
func (d *dedicated) classify(err error) error {
	re, refused := errors.AsType[*rueidis.RedisError](err)
	switch {
	case err == nil || rueidis.IsRedisNil(err) || refused && re.IsNoScript():
		d.open.Store(true)
	case refused && !d.open.Load():
		return &client.Unopened{Err: failure(err)}
	}
	return failure(err)
}

// Do implements [client.Conn].
func (d *dedicated) Do(words ...string) (wire.Reply, error) {
	m, err := d.c.Do(context.Background(), d.c.B().Arbitrary(words...).Build()).ToMessage()
	if err = d.classify(err); err != nil && !rueidis.IsRedisNil(err) {
		return wire.Reply{}, err
	}
	return replyOf(&m), nil
}

// Pipe implements [client.Conn].
func (d *dedicated) Pipe(commands [][]string) []wire.Reply {
	cmds := make([]rueidis.Completed, len(commands))
	for i, words := range commands {
		cmds[i] = d.c.B().Arbitrary(words...).Build()
	}
	replies := make([]wire.Reply, len(commands))
	for i, r := range d.c.DoMulti(context.Background(), cmds...) {
		m, err := r.ToMessage()
		if err = d.classify(err); err != nil && !rueidis.IsRedisNil(err) {
			replies[i] = wire.Failed(err)
			continue
		}
		replies[i] = replyOf(&m)
	}
	return replies
}

// Close implements [client.Conn].
func (d *dedicated) Close() { d.c.Close() }

// dedicate returns a connection that is not shared.
func (c *Client) dedicate() rueidis.DedicatedClient {
	c.loneCall.dedicating.Add(1)
	defer c.loneCall.dedicating.Add(-1)
	conn, _ := c.lib.Dedicate()
	return conn
}

// Conn implements [client.Client].
func (c *Client) Conn() client.Conn {
	return &dedicated{c: c.dedicate()}
}

// subscriber is a subscribed connection of rueidis as a [client.Subscriber].
type subscriber struct {
	c       rueidis.DedicatedClient
	sharded bool
	lost    chan struct{}
	poller  *client.Poller
}

// Add implements [client.Subscriber].
func (e *subscriber) Add(ctx context.Context, channel string) error {
	b := e.c.B()
	cmd := b.Subscribe().Channel(channel).Build()
	if e.sharded {
		cmd = b.Ssubscribe().Channel(channel).Build()
	}
	until := e.poller.Begin(ctx)
	defer e.poller.End(until)
	return failure(e.c.Do(until, cmd).Error())
}

// Lost implements [client.Subscriber].
func (e *subscriber) Lost() <-chan struct{} { return e.lost }

// Close implements [client.Subscriber].
func (e *subscriber) Close() { e.c.Close() }

// Listen implements [client.Client].
func (c *Client) Listen(sharded bool, onMessage func(message string), onDropped func(channel string)) client.Subscriber {
	conn := c.dedicate()
	e := &subscriber{c: conn, sharded: sharded, lost: make(chan struct{}), poller: &c.poller}
	ended := conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { onMessage(m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "sunsubscribe" {
				onDropped(s.Channel)
			}
		},
	})
	if !c.life.Begin(func() {
		<-ended
		close(e.lost)
	}) {
		conn.Close()
		close(e.lost)
	}
	return e
}
