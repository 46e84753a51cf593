package rueidisclient

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/redislock/internal/client"
)

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
// Under mu, only the mutex of the driver's life is taken.
type senders struct {
	mu     sync.Mutex
	idle   []*sender
	closed bool
}

// callViaSender sends a command by way of a sender, and watches the context
// meanwhile.
func (c *Client) callViaSender(ctx context.Context, cmd rueidis.Completed) (rueidis.RedisResult, error) {
	s, err := c.sender()
	if err != nil {
		return rueidis.RedisResult{}, err
	}
	b := c.poller.Begin(ctx)
	defer c.poller.End(b)
	s.asked.Store(true)
	s.mark = c.inFlight.add()
	s.cmd <- cmd
	select {
	case res := <-s.res:
		c.senders.park(s)
		return res, nil
	case <-b.Done():
		err = client.Ended(ctx)
	case <-c.life.Done:
		err = client.ErrCut
	}
	if s.asked.CompareAndSwap(true, false) {
		return rueidis.RedisResult{}, err // the sender returns to the stock by itself
	}
	res := <-s.res
	c.senders.park(s)
	return res, nil
}

func (c *Client) sender() (*sender, error) {
	p := &c.senders
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, client.ErrOver
	}
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s, nil
	}
	s := &sender{cmd: make(chan rueidis.Completed), res: make(chan rueidis.RedisResult, 1)}
	if !c.life.Begin(func() {
		for cmd := range s.cmd {
			res := c.do(context.Background(), cmd)
			c.inFlight.done(s.mark, true)
			if s.asked.CompareAndSwap(true, false) {
				s.res <- res
			} else {
				p.park(s)
			}
		}
	}) {
		return nil, client.ErrOver
	}
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
