package natslock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/nats-io/nats.go"
)

// watcher receives the pushes of one Watch.
type watcher struct {
	ctx    context.Context
	notify func(string, driver.Status)
	sub    *nats.Subscription
}

func (d *Driver) pushSubject(address string) string {
	return "holdfast.push." + d.bucket + "." + address
}

// Watch implements [driver.Driver].
func (d *Driver) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	if err := d.checkOpen(ctx); err != nil {
		return err
	}
	d.endWatch()
	w := &watcher{ctx: ctx, notify: notify}
	subject := d.pushSubject(d.address)
	sub, err := d.nc.Subscribe(subject, func(m *nats.Msg) { w.receive(string(m.Data)) })
	if err != nil {
		return driver.Wrap(driver.Unavailable, fmt.Errorf("NATS: subscribe to pushes: %w", err))
	}
	w.sub = sub
	_ = sub.SetPendingLimits(-1, -1) // a notification costs little, and must not be dropped
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err = d.nc.FlushWithContext(limited); err == nil {
		if last := d.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), subject) {
			err = driver.Errorf(driver.Refused, "NATS: the user lacks the right to subscribe to %s", subject)
		}
	}
	if err != nil {
		_ = sub.Unsubscribe()
		return driver.Wrap(driver.Unavailable, err)
	}
	d.watch.Store(w)
	context.AfterFunc(ctx, func() {
		if d.watch.CompareAndSwap(w, nil) {
			_ = sub.Unsubscribe()
		}
	})
	return nil
}

func (d *Driver) endWatch() {
	if w := d.watch.Swap(nil); w != nil {
		_ = w.sub.Unsubscribe()
	}
}

// send notifies the clients of tickets that a request granted or broke.
func (d *Driver) send(pushes []push) {
	for _, p := range pushes {
		if p.address == d.address {
			if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
				w.notify(p.id, p.status)
			}
			continue
		}
		// Its loss delays the grant until the waiter's next renewal.
		_ = d.nc.Publish(d.pushSubject(p.address), []byte(p.encode()))
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

// followConnection ends the waits for a connection, and reports a gap, whenever the connection was opened anew. The
// client library has subscribed again by then.
func (d *Driver) followConnection() {
	defer close(d.stopped)
	for range d.events {
		again := make(chan struct{})
		close(*d.connected.Swap(&again))
		if w := d.watch.Load(); w != nil && w.ctx.Err() == nil {
			w.notify("", driver.Status{})
		}
	}
}
