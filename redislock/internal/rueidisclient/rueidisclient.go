// Package rueidisclient runs the drivers of redislock on rueidis. Where that
// library behaves otherwise than a driver needs, a file of this package makes up
// for it:
//
//   - The only caller of a connection reads the answer in its own goroutine, and
//     its context is ignored: lonecall.go, and sender.go (TestF7_SilentServer).
//   - A connection goes from reading in the caller to pipelining when two callers
//     meet, which takes longer for each of them, and never goes back: loneconn.go
//     (TestLoneRequestsAfterACrowd).
//   - A connection has 256 places for unanswered requests, and a caller without a
//     place blocks, whatever its context: inflight.go
//     (TestFullConnectionEndsCallsInTime).
//   - The deadline of the only caller's context becomes the connection's, so that
//     a late answer costs the connection: the contexts of client.Poller.
//   - Memory is allocated for the length that a reply announces, before the data
//     arrive: lengths.go (TestLengths, TestF11_GarbledAnswers).
//   - The error that a server answers while a connection is opened is returned
//     for every later command: dedicated.classify
//     (TestF35_RenewalsWorkAfterRefusal).
//   - A connection that is silent is kept until the client's time-out, though the
//     server answers on others: silentconn.go (TestF115_LockBesideSilentConnections).
//   - A connection with a single caller shows only at the next request that it
//     is broken: Heal.
//   - Requests are repeated, and answers cached, unless that is turned off:
//     dial.go (TestF1_F2_F4_LostRequestIsUnknown).
package rueidisclient

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Library is a client of rueidis for one server.
type Library struct {
	client   rueidis.Client
	loneCall *loneCall // without ownConns when the client is the user's
	end      func()    // ends the connections of Dial; nil when the client is the user's
}

// Of returns the user's own client as a Library.
func Of(c rueidis.Client) *Library { return &Library{client: c, loneCall: new(loneCall)} }

// In implements [client.Library].
func (l *Library) In(life client.Life) client.Client {
	l.loneCall.doubt.life.Store(&life)
	c := &Client{lib: l.client, loneCall: l.loneCall, end: l.end, life: life}
	c.poller.Look = l.loneCall.look
	return c
}

// Client is a client of rueidis, as one driver has it.
type Client struct {
	lib  rueidis.Client
	end  func() // see Library
	life client.Life

	loneConn  loneConn
	contended atomic.Bool // of the user's client: two requests have been under way at once
	loneCall  *loneCall
	poller    client.Poller
	inFlight  inFlight
	senders   senders
}

// Eval implements [client.Client].
func (c *Client) Eval(ctx context.Context, r wire.Request) (wire.Reply, error) {
	verb, text := "EVALSHA", r.Script.SHA
	if r.Full {
		verb, text = "EVAL", r.Script.Text
	}
	cmd := c.lib.B().Arbitrary(verb, text, strconv.Itoa(r.NumKeys)).Keys(r.Keys[:r.NumKeys]...).Args(r.Args[:r.NumArgs]...).Build()
	res, err := c.send(ctx, cmd)
	if err != nil {
		c.loneCall.noteSlow()
		return wire.Reply{}, err
	}
	m, err := res.ToMessage()
	if err != nil {
		if res.NonRedisError() != nil {
			c.loneCall.noteSlow()
			if ctx.Err() != nil {
				return wire.Reply{}, client.Ended(ctx)
			}
		}
		return wire.Reply{}, failure(err)
	}
	return replyOf(&m), nil
}

// send sends one command on the shared connections and returns its result, or an
// error as soon as ctx ends.
func (c *Client) send(ctx context.Context, cmd rueidis.Completed) (res rueidis.RedisResult, err error) {
	if client.Endless(ctx) {
		return c.do(context.Background(), cmd), nil
	}
	if c.loneCall.detour() {
		return c.callViaSender(ctx, cmd)
	}
	if c.loneCall.underWay.Add(1) > 1 {
		c.loneConn.met()
		c.contended.Store(true)
		res, err = c.callShared(ctx, cmd)
	} else if c.loneCall.ownConns {
		res, err = c.callAlone(ctx, cmd)
	} else if c.contended.Load() {
		res, err = c.callShared(ctx, cmd)
	} else {
		res, err = c.callViaSender(ctx, cmd)
	}
	c.loneCall.underWay.Add(-1)
	return res, err
}

// do sends a command on the shared connection.
func (c *Client) do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if c.loneCall.ownConns {
		cmd = cmd.ToPipe()
	}
	return c.lib.Do(ctx, cmd)
}

// callAlone sends a command that meets no other one. It goes in the lone connection, if
// this is open, and otherwise on the shared connection, where the caller reads the
// answer, too, until two commands have met there.
func (c *Client) callAlone(ctx context.Context, cmd rueidis.Completed) (res rueidis.RedisResult, err error) {
	use, open := c.loneConn.alone()
	if open {
		c.openLoneConn()
	}
	c.loneCall.begin(ctx)
	defer c.loneCall.end()
	if !use {
		return c.callSharedIn(ctx, cmd, inCaller)
	}
	res = c.lib.Do(context.Background(), cmd)
	if res.NonRedisError() != nil {
		c.loneConn.close()
	}
	return res, nil
}

// callShared sends a command on a connection that has other callers.
func (c *Client) callShared(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	return c.callSharedIn(ctx, cmd, func(b *client.PollContext) context.Context { return b })
}

// callSharedIn sends a command on the shared connection, in the context that
// within returns.
func (c *Client) callSharedIn(ctx context.Context, cmd rueidis.Completed, within func(*client.PollContext) context.Context) (rueidis.RedisResult, error) {
	mark, ok := c.inFlight.admit()
	if !ok {
		return c.callViaSender(ctx, cmd)
	}
	b := c.poller.Begin(ctx)
	defer c.poller.End(b)
	res := c.do(within(b), cmd)
	c.inFlight.done(mark, res.NonRedisError() == nil || ctx.Err() == nil)
	return res, nil
}

// inCaller returns a context in which rueidis reads the answer in the caller's
// goroutine while a connection has one caller. The context has a deadline, but too
// late a one to become the connection's: late answers would cost the connection.
func inCaller(b *client.PollContext) context.Context { return patient{b} }

// patient is a context for inCaller.
type patient struct{ *client.PollContext }

// Deadline returns a deadline beyond all time limits.
func (patient) Deadline() (time.Time, bool) { return beyond, true }

// beyond is an instant after every time limit.
var beyond = time.Now().AddDate(100, 0, 0)

// Heal implements [client.Client]: if one connection broke, others often have. A
// connection with a single caller otherwise notices only when the next request
// fails.
func (c *Client) Heal() {
	healed := make(chan struct{})
	if !c.life.Begin(func() {
		c.loneConn.close()
		c.do(context.Background(), c.lib.B().Ping().Build())
		close(healed)
	}) {
		return
	}
	select {
	case <-healed: // at once, if the connection is broken
	case <-time.After(client.PollEvery):
	}
}

// CloseSilent implements [client.Client].
func (c *Client) CloseSilent(limit time.Duration) { c.loneCall.closeSilent(limit) }

// Cut implements [client.Client].
func (c *Client) Cut() {
	c.senders.close()
	if c.end != nil {
		c.end()
	}
}

// Close implements [client.Client].
func (c *Client) Close() {
	if c.end != nil {
		c.lib.Close()
	}
}
