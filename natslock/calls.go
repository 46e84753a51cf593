package natslock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/nats-io/nats.go"
)

// calls are the requests under way. Those whose connection breaks are ended: an answer
// to them may never come. The server answers a request without the right
// to it by a message of its own, which does not say which request it is about: all
// those on that subject are refused.
type calls struct {
	mu   sync.Mutex
	open map[*call]struct{}
}

type call struct {
	subject string
	end     context.CancelCauseFunc
}

var errSilent = fmt.Errorf("no answer within %v", requestLimit)

// send sends a request and returns its answer, or an error with its class.
func (c *calls) send(ctx context.Context, b *bucket, m *nats.Msg) (*nats.Msg, error) {
	if err := b.awaitConnection(ctx); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, requestLimit, errSilent)
	defer stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	mine := &call{m.Subject, end}
	c.mu.Lock()
	if c.open == nil {
		c.open = make(map[*call]struct{})
	}
	c.open[mine] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.open, mine)
		c.mu.Unlock()
	}()
	reply, err := b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return nil, classify(ctx, err)
	}
	return reply, nil
}

// connectWait is the time for which a request waits for a connection that is being
// opened anew: a server that was started again serves the next request.
const connectWait = 500 * time.Millisecond

// awaitConnection returns nil once there is a connection.
func (b *bucket) awaitConnection(ctx context.Context) error {
	again := *b.connected.Load() // before the state is read
	if b.nc.IsConnected() {
		return nil
	}
	timer := time.NewTimer(connectWait)
	defer timer.Stop()
	select {
	case <-again:
		return nil
	case <-ctx.Done():
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	case <-timer.C:
	}
	err := b.nc.LastError()
	if err == nil {
		err = errors.New(strings.ToLower(b.nc.Status().String()))
	}
	return driver.Errorf(driver.Unavailable, "NATS: not connected: %w", err)
}

// classify gives the error of a request its class.
func classify(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return driver.NotReady(0, "NATS: JetStream does not answer: is it enabled on the server and for the account?")
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return driver.Errorf(driver.Unavailable, "NATS: not connected")
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrHeadersNotSupported):
		return driver.Wrap(driver.Refused, err)
	case ctx.Err() != nil:
		return driver.Wrap(driver.Unknown, context.Cause(ctx))
	}
	return driver.Wrap(driver.Unknown, err)
}

var errBroken = errors.New("NATS: the connection broke")

// broke ends all requests: their connection broke, and each may have arrived or not.
func (c *calls) broke() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		one.end(errBroken)
	}
}

// refuse ends the requests that the server refuses by a message of its own. The
// subject pushes is not one of a request: Watch reports its refusal.
func (c *calls) refuse(err error, pushes string) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	_, quoted, _ := strings.Cut(err.Error(), `"`)
	subject, _, _ := strings.Cut(quoted, `"`)
	answers := strings.Contains(strings.ToLower(err.Error()), "subscription to")
	if answers && subject == pushes {
		return
	}
	refused := driver.Errorf(driver.Refused, "NATS: the user lacks the right to publish to %s", subject)
	if answers {
		refused = driver.Errorf(driver.Refused, "NATS: the user lacks the right to subscribe to %s, for answers", subject)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		if answers || one.subject == subject {
			one.end(refused)
		}
	}
}
