package redislock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// call runs a script on a queue and returns its answer, or an error as soon as
// ctx ends. In that case the command stays under way.
func (d *Driver) call(ctx context.Context, s *script, full bool, l *queueKeys, args ...string) (link.Reply, error) {
	if d.adapter != nil {
		return d.callAdapter(ctx, s.words(full, l.all(), args))
	}
	return d.do(ctx, s.command(d.client.B(), full, l, args...))
}

// callAdapter does the same as do, on another client library. It uses a
// goroutine because libraries differ in how they heed a context.
func (d *Driver) callAdapter(ctx context.Context, words []string) (link.Reply, error) {
	bg := context.Background()
	if endless(ctx) {
		r, err := d.adapter.Do(bg, words...)
		return r, d.classify(err)
	}
	b := d.poller.begin(ctx)
	defer d.poller.end(b)
	type answer struct {
		r   link.Reply
		err error
	}
	ch := make(chan answer, 1)
	if !d.begin(func() {
		r, err := d.adapter.Do(bg, words...)
		ch <- answer{r, d.classify(err)}
	}) {
		return link.Reply{}, d.overErr()
	}
	select {
	case a := <-ch:
		return a.r, a.err
	case <-b.done:
		return link.Reply{}, ended(ctx)
	case <-d.done:
		return link.Reply{}, d.cutErr()
	}
}

// do sends one command on the client's shared connections and returns its
// answer, or an error as soon as ctx ends. In that case the command stays
// under way.
func (d *Driver) do(ctx context.Context, cmd rueidis.Completed) (link.Reply, error) {
	var res rueidis.RedisResult
	var err error
	switch {
	case endless(ctx):
		res = d.client.Do(context.Background(), cmd)
	case d.loneCall.detour():
		res, err = d.callViaSender(ctx, cmd)
	case d.contended.Load():
		res, err = d.callShared(ctx, cmd)
	case d.loneCalls.Add(1) > 1:
		d.loneCalls.Add(-1)
		d.contended.Store(true)
		res, err = d.callShared(ctx, cmd)
	case d.loneCall.ownConns:
		d.loneCall.begin(ctx)
		res = d.client.Do(context.Background(), cmd)
		d.loneCall.end()
		d.loneCalls.Add(-1)
	default:
		res, err = d.callViaSender(ctx, cmd)
		d.loneCalls.Add(-1)
	}
	if err != nil {
		d.loneCall.noteSlow()
		return link.Reply{}, err
	}
	m, err := res.ToMessage()
	if err != nil {
		if broken(err) {
			d.loneCall.noteSlow()
			if ctx.Err() != nil {
				return link.Reply{}, ended(ctx)
			}
		}
		return link.Reply{}, d.classify(err)
	}
	return replyOf(&m), nil
}

// endless reports whether a context cannot end. The core's contexts have a
// deadline, and are not asked for the channel of Done, which they would have
// to make.
func endless(ctx context.Context) bool {
	_, ends := ctx.Deadline()
	return !ends && ctx.Done() == nil
}

// callShared sends a command on a connection that has other callers.
func (d *Driver) callShared(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	mark, ok := d.inFlight.admit()
	if !ok {
		return d.callViaSender(ctx, cmd)
	}
	b := d.poller.begin(ctx)
	defer d.poller.end(b)
	res := d.client.Do(b, cmd)
	d.inFlight.done(mark, res.NonRedisError() == nil || ctx.Err() == nil)
	return res, nil
}

// ended returns the error of a call whose context ended after the command was
// sent.
func ended(ctx context.Context) error {
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// errClosing is the error of a call during which the driver was closed.
var errClosing = &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}

var (
	// errDropped is the error of a call on a driver whose server is no longer
	// used.
	errDropped = driver.Errorf(driver.NotDone, "server is no longer the primary")
	// errCut is the error of a call that was under way when its server was
	// dropped.
	errCut = driver.Errorf(driver.Unknown, "connection closed: the server is no longer the primary")
)

// overErr returns the error of a call that begins after the driver's end.
func (d *Driver) overErr() error {
	if d.replaceable {
		return errDropped
	}
	return driver.ErrClosed
}

// classify gives an error its class. That the client is closed is its owner's
// doing, except at a replaceable driver, which closes its client itself.
func (d *Driver) classify(err error) error {
	if d.replaceable && (errors.Is(err, rueidis.ErrClosing) || errors.Is(err, link.ErrClosed)) {
		return errCut
	}
	return classify(err)
}

// cutErr returns the error of a call that was under way when the driver ended.
func (d *Driver) cutErr() error {
	if d.replaceable {
		return errCut
	}
	return errClosing
}

// A sender is a goroutine that waits for the answers to the commands that it
// is given one by one.
type sender struct {
	cmd   chan rueidis.Completed
	res   chan rueidis.RedisResult
	asked atomic.Bool // a caller wants the answer
	mark  int64       // of the command, see inFlight
}

const maxIdle = 2 // spare senders

// senders is the stock of idle senders.
//
// No mutex is taken under mu.
type senders struct {
	mu     sync.Mutex
	idle   []*sender
	closed bool
}

// callViaSender sends a command by way of a sender, and watches the context
// meanwhile.
func (d *Driver) callViaSender(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	s, err := d.sender()
	if err != nil {
		return rueidis.RedisResult{}, err
	}
	b := d.poller.begin(ctx)
	defer d.poller.end(b)
	s.asked.Store(true)
	s.mark = d.inFlight.add()
	s.cmd <- cmd
	select {
	case res := <-s.res:
		d.senders.park(s)
		return res, nil
	case <-b.done:
		err = ended(ctx)
	case <-d.done:
		err = d.cutErr()
	}
	if s.asked.CompareAndSwap(true, false) {
		return rueidis.RedisResult{}, err // the sender returns to the stock by itself
	}
	res := <-s.res
	d.senders.park(s)
	return res, nil
}

func (d *Driver) sender() (*sender, error) {
	p := &d.senders
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, d.overErr()
	}
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s, nil
	}
	s := &sender{cmd: make(chan rueidis.Completed), res: make(chan rueidis.RedisResult, 1)}
	d.running.Go(func() {
		for cmd := range s.cmd {
			res := d.client.Do(context.Background(), cmd)
			d.inFlight.done(s.mark, true)
			if s.asked.CompareAndSwap(true, false) {
				s.res <- res
			} else {
				p.park(s)
			}
		}
	})
	return s, nil
}

func (p *senders) park(s *sender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		close(s.cmd)
		return
	}
	p.idle = append(p.idle, s)
}

// close ends the idle senders, and makes the busy ones end after their
// command.
func (p *senders) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		close(s.cmd)
	}
	p.idle = nil
}
