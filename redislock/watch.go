package redislock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// subscribeLimit bounds one try to subscribe, once connected.
const subscribeLimit = 5 * time.Second

// Watch implements [driver.Driver], on a connection of its own.
func (d *Driver) Watch(ctx context.Context, moved func(id string, p driver.Place)) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	w := &watch{d: d, moved: moved}
	w.ctx, w.stop = context.WithCancel(ctx)
	first := make(chan error, 1) // what became of the first try
	if !d.begin(func() { w.run(first) }) {
		w.stop()
		return driver.ErrClosed
	}
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return ended(ctx)
	case <-d.done:
		return driver.ErrClosed
	}
}

// watch is the subscription of a driver.
type watch struct {
	d     *Driver
	moved func(string, driver.Place)
	ctx   context.Context // ends the subscription
	stop  context.CancelFunc
}

// run subscribes, and again whenever the subscription is lost. The first try
// has to succeed.
func (w *watch) run(first chan<- error) {
	defer w.stop()
	const least, most = 20 * time.Millisecond, time.Second
	wait := least
	for flows := false; !w.over(); {
		begun := time.Now()
		err := w.subscribe(func() {
			if !flows {
				flows = true
				first <- nil
			} else {
				w.tell("", driver.Place{})
			}
		})
		if !flows {
			first <- err
			return
		}
		if !w.over() {
			w.d.heal()
		}
		if time.Since(begun) > most {
			wait = least // it had worked for a while
		}
		select {
		case <-w.ctx.Done():
		case <-w.d.done:
		case <-time.After(wait):
			wait = min(2*wait, most)
		}
	}
}

func (w *watch) over() bool { return w.d.over() || w.ctx.Err() != nil }

// subscribe listens on the driver's channel until the connection is lost or
// the watch ends. An error says that it did not get so far; otherwise it has
// called flows.
func (w *watch) subscribe(flows func()) error {
	e := w.d.listen(w.heard, func(string) {})
	defer e.Close()
	ctx, cancel := context.WithTimeout(w.ctx, subscribeLimit)
	err := e.Add(ctx, w.d.channel)
	cancel()
	if err != nil {
		return classify(err)
	}
	flows()
	select {
	case <-e.Lost():
	case <-w.ctx.Done():
	case <-w.d.done:
	}
	return nil
}

// heard takes a message.
func (w *watch) heard(message string) {
	if id, p, err := parsePush(message); err == nil {
		w.tell(id, p)
	}
}

func (w *watch) tell(id string, p driver.Place) {
	if !w.over() {
		w.moved(id, p)
	}
}

// parsePush reads "held <token> <id>" and "gone 0 <id>".
func parsePush(s string) (id string, p driver.Place, err error) {
	word, rest, _ := strings.Cut(s, " ")
	text, id, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || id == "":
	case word == "held" && token > 0:
		return id, driver.Place{State: driver.Held, Token: token}, nil
	case word == "gone" && token == 0:
		return id, driver.Place{State: driver.Gone}, nil
	}
	return "", driver.Place{}, errors.New("not a push of Holdfast")
}
