package goredis

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/redislock/internal/link"
)

// quiet is after how long without a message the server is asked whether it is
// still there; after twice that the connection counts as lost.
const quiet = 5 * time.Second

// ear is a connection that listens, as a [link.Ear].
type ear struct {
	ps      *redis.PubSub
	sharded bool
	heard   func(message string)
	dropped func(channel string)

	adding sync.Mutex // one Add at a time, so answers are told apart
	told   chan error // what became of it
	lost   chan struct{}
	once   sync.Once // closes lost
	read   sync.WaitGroup

	mu     sync.Mutex
	reads  bool
	closed bool
}

func newEar(c *redis.Client, sharded bool, heard func(string), dropped func(string)) *ear {
	e := &ear{sharded: sharded, heard: heard, dropped: dropped, told: make(chan error, 1), lost: make(chan struct{})}
	if sharded {
		e.ps = c.SSubscribe(bg)
	} else {
		e.ps = c.Subscribe(bg)
	}
	return e
}

var errLost = errors.New("the connection is lost")

// Add implements [link.Ear].
func (e *ear) Add(ctx context.Context, channel string) error {
	e.adding.Lock()
	defer e.adding.Unlock()
	subscribe := e.ps.Subscribe
	if e.sharded {
		subscribe = e.ps.SSubscribe
	}
	select {
	case <-e.told: // the answer to one that was given up
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
	case err := <-e.told:
		return err
	case <-e.lost:
		return errLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run takes what comes until the connection is lost.
func (e *ear) run() {
	defer e.once.Do(func() { close(e.lost) })
	tell := func(err error) {
		select {
		case e.told <- err:
		default:
		}
	}
	for asked := false; ; {
		v, err := e.ps.ReceiveTimeout(bg, quiet)
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
			answered, ok := failure(err).(link.ServerError)
			if !ok {
				return
			}
			tell(answered)
			continue
		}
		switch m := v.(type) {
		case *redis.Message:
			e.heard(m.Payload)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				tell(nil)
			case "sunsubscribe":
				e.dropped(m.Channel)
			}
		}
	}
}

// Lost implements [link.Ear].
func (e *ear) Lost() <-chan struct{} { return e.lost }

// Close implements [link.Ear].
func (e *ear) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	_ = e.ps.Close()
	e.read.Wait()
	e.once.Do(func() { close(e.lost) })
}
