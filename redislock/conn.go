package redislock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// replyOf reads an answer as rueidis has it.
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
	if s, err := m.ToString(); err == nil { // a text with a format, such as INFO's
		return link.Text(s)
	}
	return link.Reply{}
}

// dedicated is a connection of rueidis as a [link.Conn].
type dedicated struct {
	c    rueidis.DedicatedClient
	open atomic.Bool // it has had an answer
}

// unopened is what a server answered instead of opening a connection: such as
// that it has no room for one more, or wants another password. rueidis gives it
// to every command from then on, like an answer.
type unopened struct{ error }

// Unwrap returns the server's words.
func (u *unopened) Unwrap() error { return u.error }

// judge tells what a server answered a command from an answer to nobody: until
// there was an answer it may be either, and a new connection is a small price.
func (d *dedicated) judge(err error) error {
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
	if err = d.judge(err); err != nil && !rueidis.IsRedisNil(err) {
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
		if err = d.judge(err); err != nil && !rueidis.IsRedisNil(err) {
			replies[i] = link.Failed(err)
			continue
		}
		replies[i] = replyOf(&m)
	}
	return replies
}

// Close implements [link.Conn].
func (d *dedicated) Close() { d.c.Close() }

// conn opens a connection of the driver's own.
func (d *Driver) conn() link.Conn {
	if d.via != nil {
		return d.via.Conn()
	}
	c, _ := d.client.Dedicate()
	return &dedicated{c: c}
}

// ear is a connection of rueidis that listens, as a [link.Ear].
type ear struct {
	c       rueidis.DedicatedClient
	sharded bool
	lost    chan struct{}
	lookout *lookout
}

// Add implements [link.Ear].
func (e *ear) Add(ctx context.Context, channel string) error {
	b := e.c.B()
	cmd := b.Subscribe().Channel(channel).Build()
	if e.sharded {
		cmd = b.Ssubscribe().Channel(channel).Build()
	}
	until := e.lookout.begin(ctx)
	defer e.lookout.end(until)
	return e.c.Do(until, cmd).Error()
}

// Lost implements [link.Ear].
func (e *ear) Lost() <-chan struct{} { return e.lost }

// Close implements [link.Ear].
func (e *ear) Close() { e.c.Close() }

// listen opens a connection that listens.
func (d *Driver) listen(heard func(message string), dropped func(channel string)) link.Ear {
	if d.via != nil {
		return d.via.Listen(d.lines.sharded, heard, dropped)
	}
	c, _ := d.client.Dedicate()
	e := &ear{c: c, sharded: d.lines.sharded, lost: make(chan struct{}), lookout: &d.lookout}
	ended := c.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) { heard(m.Message) },
		OnSubscription: func(s rueidis.PubSubSubscription) {
			if s.Kind == "sunsubscribe" {
				dropped(s.Channel)
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
