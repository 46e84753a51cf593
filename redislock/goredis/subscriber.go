package goredis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// idleLimit is the silence after which the server is asked whether it is still
// there; after twice that time the connection counts as lost.
const idleLimit = 5 * time.Second

// subscriber is a subscribed connection of go-redis as a [client.Subscriber].
//
// The mutex adding is taken before mu.
type subscriber struct {
	ps        *redis.PubSub
	sharded   bool
	onMessage func(message string)
	onDropped func(channel string)

	adding    sync.Mutex // one Add at a time, so that each gets its own answer
	addResult chan error // the result of that Add
	lost      chan struct{}
	once      sync.Once // closes lost
	read      sync.WaitGroup

	mu     sync.Mutex
	reads  bool
	closed bool
}

func newSubscriber(c *redis.Client, sharded bool, onMessage func(string), onDropped func(string)) *subscriber {
	e := &subscriber{sharded: sharded, onMessage: onMessage, onDropped: onDropped, addResult: make(chan error, 1), lost: make(chan struct{})}
	if sharded {
		e.ps = c.SSubscribe(bg)
	} else {
		e.ps = c.Subscribe(bg)
	}
	return e
}

var errLost = errors.New("the connection is lost")

// Add implements [client.Subscriber].
func (e *subscriber) Add(ctx context.Context, channel string) error {
	e.adding.Lock()
	defer e.adding.Unlock()
	subscribe := e.ps.Subscribe
	if e.sharded {
		subscribe = e.ps.SSubscribe
	}
	select {
	case <-e.addResult: // a late answer to an Add that was given up
	default:
	}
	if err := subscribe(ctx, channel); err != nil {
		return failure(err)
	}
	e.mu.Lock()
	if !e.reads && !e.closed {
		e.reads = true
		e.read.Go(e.run)
	}
	e.mu.Unlock()
	select {
	case err := <-e.addResult:
		return err
	case <-e.lost:
		return errLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run handles messages and answers until the connection is lost.
func (e *subscriber) run() {
	defer e.once.Do(func() { close(e.lost) })
	report := func(err error) {
		select {
		case e.addResult <- err:
		default:
		}
	}
	for asked := false; ; {
		v, err := e.ps.ReceiveTimeout(bg, idleLimit)
		var ne net.Error
		switch {
		case err == nil:
			asked = false
		case errors.As(err, &ne) && ne.Timeout() && !asked:
			if asked = e.ps.Ping(bg) == nil; !asked {
				return
			}
			continue
		default:
			answered, ok := failure(err).(wire.ServerError)
			if !ok {
				return
			}
			report(answered)
			continue
		}
		switch m := v.(type) {
		case *redis.Message:
			e.onMessage(m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				report(nil)
			case "sunsubscribe":
				e.onDropped(m.Channel)
			}
		}
	}
}

// Lost implements [client.Subscriber].
func (e *subscriber) Lost() <-chan struct{} { return e.lost }

// Close implements [client.Subscriber].
func (e *subscriber) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	_ = e.ps.Close()
	e.read.Wait()
	e.once.Do(func() { close(e.lost) })
}
