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

// call runs a script about a line and returns its answer, or the context's end
// if that is first. The command then stays under way.
func (d *Driver) call(ctx context.Context, s *script, full bool, l *line, args ...string) (link.Reply, error) {
	if d.via != nil {
		return d.detour(ctx, s.words(full, l.all(), args))
	}
	return d.do(ctx, s.command(d.client.B(), full, l, args...))
}

// detour is do on another client library, on a goroutine because libraries
// differ in how they heed a context.
func (d *Driver) detour(ctx context.Context, words []string) (link.Reply, error) {
	bg := context.Background()
	if endless(ctx) {
		r, err := d.via.Do(bg, words...)
		return r, d.classify(err)
	}
	b := d.lookout.begin(ctx)
	defer d.lookout.end(b)
	type answer struct {
		r   link.Reply
		err error
	}
	ch := make(chan answer, 1)
	if !d.begin(func() {
		r, err := d.via.Do(bg, words...)
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
// answer, or the context's end if that is first. The command then stays under
// way.
func (d *Driver) do(ctx context.Context, cmd rueidis.Completed) (link.Reply, error) {
	var res rueidis.RedisResult
	var err error
	switch {
	case endless(ctx):
		res = d.client.Do(context.Background(), cmd)
	case d.alone.detour():
		res, err = d.lone(ctx, cmd)
	case d.crowded.Load():
		res, err = d.among(ctx, cmd)
	case d.calling.Add(1) > 1:
		d.calling.Add(-1)
		d.crowded.Store(true)
		res, err = d.among(ctx, cmd)
	case d.alone.tied:
		d.alone.begin(ctx)
		res = d.client.Do(context.Background(), cmd)
		d.alone.end()
		d.calling.Add(-1)
	default:
		res, err = d.lone(ctx, cmd)
		d.calling.Add(-1)
	}
	if err != nil {
		d.alone.found()
		return link.Reply{}, err
	}
	m, err := res.ToMessage()
	if err != nil {
		if broken(err) {
			d.alone.found()
			if ctx.Err() != nil {
				return link.Reply{}, ended(ctx)
			}
		}
		return link.Reply{}, d.classify(err)
	}
	return replyOf(&m), nil
}

// endless says whether a context cannot end. The core's have a deadline, and
// are not asked for the channel, which they would have to make.
func endless(ctx context.Context) bool {
	_, ends := ctx.Deadline()
	return !ends && ctx.Done() == nil
}

// among sends a command on a connection that has other callers.
func (d *Driver) among(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	mark, ok := d.crowd.admit()
	if !ok {
		return d.lone(ctx, cmd)
	}
	b := d.lookout.begin(ctx)
	defer d.lookout.end(b)
	res := d.client.Do(b, cmd)
	d.crowd.over(mark, res.NonRedisError() == nil || ctx.Err() == nil)
	return res, nil
}

// ended is the error of a call that its context ended after it was sent.
func ended(ctx context.Context) error {
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// errClosing is the error of a call during which the driver was closed.
var errClosing = &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}

var (
	// errDropped is the error of a call at a server that is not used any more.
	errDropped = driver.Errorf(driver.NotDone, "the server is not the one to ask any more")
	// errCut is that of a call that it got meanwhile.
	errCut = driver.Errorf(driver.Unknown, "the connection was given up for another server")
)

// overErr is the error of a call that comes too late.
func (d *Driver) overErr() error {
	if d.replaceable {
		return errDropped
	}
	return driver.ErrClosed
}

// classify gives an error its class. That a client is closed says something of
// its owner, unless that is us.
func (d *Driver) classify(err error) error {
	if d.replaceable && (errors.Is(err, rueidis.ErrClosing) || errors.Is(err, link.ErrClosed)) {
		return errCut
	}
	return classify(err)
}

// cutErr is the error of a call that was under way.
func (d *Driver) cutErr() error {
	if d.replaceable {
		return errCut
	}
	return errClosing
}

// A sender waits, on a goroutine of its own, for the answers to the commands
// that it is given one by one.
type sender struct {
	cmd   chan rueidis.Completed
	res   chan rueidis.RedisResult
	asked atomic.Bool // somebody wants the answer
	mark  int64       // of the command, see crowd
}

const maxIdle = 2 // spare senders

// senders are the idle ones.
type senders struct {
	mu     sync.Mutex
	idle   []*sender
	closed bool
}

// lone sends a command by a sender and watches the context meanwhile.
func (d *Driver) lone(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	s, err := d.sender()
	if err != nil {
		return rueidis.RedisResult{}, err
	}
	b := d.lookout.begin(ctx)
	defer d.lookout.end(b)
	s.asked.Store(true)
	s.mark = d.crowd.add()
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
		return rueidis.RedisResult{}, err // the sender parks itself
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
			d.crowd.over(s.mark, true)
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

// close ends the idle senders, and makes the others end when they are done.
func (p *senders) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		close(s.cmd)
	}
	p.idle = nil
}
