package server

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// subscribeLimit bounds one attempt to subscribe on an open connection.
const subscribeLimit = 5 * time.Second

// The bounds of the pauses between attempts to subscribe.
const (
	SubscribeRetryMin = 20 * time.Millisecond
	SubscribeRetryMax = time.Second
)

// Watch implements the method of [driver.Driver].
func (d *Driver) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	if err := d.CheckOpen(ctx); err != nil {
		return err
	}
	return WatchAt(ctx, &d.Life, func() (*Driver, <-chan struct{}) { return d, nil }, notify)
}

// WatchAt subscribes to the channel of the driver that at returns, until that driver is
// replaced, in a life that includes the drivers'. It returns once the pushes flow.
func WatchAt(ctx context.Context, l *Life, at func() (d *Driver, replaced <-chan struct{}), notify func(string, driver.Status)) error {
	w := &watch{life: l, at: at, notifyCore: notify}
	return w.begin(ctx)
}

// Listen returns a connection for subscriptions to channels of the server's kind, as
// [client.Client] does.
func (d *Driver) Listen(onMessage, onDropped func(string)) client.Subscriber {
	return d.client.Listen(d.requests.Sharded, onMessage, onDropped)
}

// ListenPushes returns such a connection for channels of pushes, which it passes to notify.
func (d *Driver) ListenPushes(notify func(string, driver.Status), onDropped func(channel string)) client.Subscriber {
	return d.Listen(func(message string) {
		if id, p, err := wire.ParsePush(message); err == nil {
			d.Confirms.onPush(d, id, p, notify)
		}
	}, onDropped)
}

// watch is the subscription of a driver to its channel.
type watch struct {
	life       *Life
	at         func() (d *Driver, replaced <-chan struct{}) // the driver to listen at, until it is replaced
	notifyCore func(string, driver.Status)
	ctx        context.Context // ends the subscription
	stop       context.CancelFunc
}

// begin returns once the pushes flow.
func (w *watch) begin(ctx context.Context) error {
	w.ctx, w.stop = context.WithCancel(ctx)
	first := make(chan error, 1) // the result of the first attempt
	if !w.life.Begin(func() { w.run(first) }) {
		w.stop()
		return driver.ErrClosed
	}
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return client.Ended(ctx)
	case <-w.life.Done:
		return driver.ErrClosed
	}
}

// run subscribes, and subscribes again whenever the subscription is lost. The
// first attempt has to succeed.
func (w *watch) run(first chan<- error) {
	defer w.stop()
	retry := backoff.Backoff{First: SubscribeRetryMin, Last: SubscribeRetryMax}
	for flows := false; !w.over(); {
		begun := time.Now()
		d, replaced := w.at()
		err := w.subscribe(d, replaced, func() {
			if !flows {
				flows = true
				first <- nil
			} else {
				w.notify("", driver.Status{})
			}
		})
		if !flows {
			first <- err
			return
		}
		if !w.over() {
			d.client.Heal()
		}
		if time.Since(begun) > SubscribeRetryMax {
			retry.Reset() // the subscription had worked for a while
		}
		w.life.Sleep(w.ctx, retry.Next())
	}
}

func (w *watch) over() bool { return w.life.Over() || w.ctx.Err() != nil }

// subscribe listens on the driver's channel until the connection is lost, the
// driver replaced, or the watch ended. An error means that the subscription
// failed; otherwise subscribe has called flows.
func (w *watch) subscribe(d *Driver, replaced <-chan struct{}, flows func()) error {
	e := d.ListenPushes(w.notify, func(string) {})
	defer e.Close()
	ctx, cancel := context.WithTimeout(w.ctx, subscribeLimit)
	err := e.Add(ctx, d.Channel)
	cancel()
	if err != nil {
		return Classify(err)
	}
	flows()
	select {
	case <-e.Lost():
	case <-replaced:
	case <-w.ctx.Done():
	case <-w.life.Done:
	}
	return nil
}

func (w *watch) notify(id string, p driver.Status) {
	if !w.over() {
		w.notifyCore(id, p)
	}
}
