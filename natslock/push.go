package natslock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/nats-io/nats.go"
)

// watcher receives the pushes of one Watch.
type watcher struct {
	ctx    context.Context
	notify func(string, driver.Status)
	sub    *nats.Subscription
}

// pushes are the notifications between clients.
type pushes struct {
	bucket  *bucket
	address string // of this client
	watch   atomic.Pointer[watcher]
}

func (p *pushes) subject(address string) string {
	return "holdfast.push." + p.bucket.name + "." + address
}

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	d.pushes.end()
	w := &watcher{ctx: ctx, notify: notify}
	subject := d.pushes.subject(d.pushes.address)
	sub, err := d.bucket.nc.Subscribe(subject, func(m *nats.Msg) { w.receive(string(m.Data)) })
	if err != nil {
		return driver.Wrap(driver.Unavailable, fmt.Errorf("NATS: subscribe to pushes: %w", err))
	}
	w.sub = sub
	_ = sub.SetPendingLimits(-1, -1) // a notification costs little, and must not be dropped
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err = d.bucket.nc.FlushWithContext(limited); err == nil {
		if last := d.bucket.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), subject) {
			err = driver.Errorf(driver.Refused, "NATS: the user lacks the right to subscribe to %s", subject)
		}
	}
	if err != nil {
		_ = sub.Unsubscribe()
		return driver.Wrap(driver.Unavailable, err)
	}
	d.pushes.watch.Store(w)
	context.AfterFunc(ctx, func() {
		if d.pushes.watch.CompareAndSwap(w, nil) {
			_ = sub.Unsubscribe()
		}
	})
	return nil
}

func (p *pushes) end() {
	if w := p.watch.Swap(nil); w != nil {
		_ = w.sub.Unsubscribe()
	}
}

// send notifies the clients of tickets that a request granted or broke.
func (p *pushes) send(all []push) {
	for _, one := range all {
		if one.address == p.address {
			if w := p.watch.Load(); w != nil && w.ctx.Err() == nil {
				w.notify(one.id, one.status)
			}
			continue
		}
		// Its loss delays the grant until the waiter's next renewal.
		_ = p.bucket.nc.Publish(p.subject(one.address), []byte(one.encode()))
	}
}

// encode writes the notification: state, token, and the id of the ticket.
func (p *push) encode() string {
	return p.status.State.String() + " " + strconv.FormatUint(p.status.Token, 10) + " " + p.id
}

// receive reports a notification. It ignores messages of other programs.
func (w *watcher) receive(text string) {
	if w.ctx.Err() != nil {
		return
	}
	state, rest, _ := strings.Cut(text, " ")
	number, id, ok := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil || id == "" {
		return
	}
	switch {
	case state == driver.Held.String() && token > 0:
		w.notify(id, driver.Status{State: driver.Held, Token: token})
	case state == driver.Gone.String():
		w.notify(id, driver.Status{State: driver.Gone})
	}
}

// followConnection ends the requests under way whenever the connection breaks. Whenever it
// was opened anew, it ends the waits for it and reports a gap: the client library has
// subscribed again by then.
func (d *Driver) followConnection() {
	defer close(d.stopped)
	for status := range d.events {
		if status == nats.RECONNECTING {
			d.bucket.calls.broke()
			continue
		}
		again := make(chan struct{})
		close(*d.bucket.connected.Swap(&again))
		if w := d.pushes.watch.Load(); w != nil && w.ctx.Err() == nil {
			w.notify("", driver.Status{})
		}
	}
}
