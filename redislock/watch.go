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
	w := &watch{life: &d.life, at: func() (*Driver, <-chan struct{}) { return d, nil }, moved: moved}
	return w.begin(ctx)
}

// watch is the subscription of a driver to its channel.
type watch struct {
	life  *life
	at    func() (d *Driver, replaced <-chan struct{}) // where to listen, until it is replaced
	moved func(string, driver.Place)
	ctx   context.Context // ends the subscription
	stop  context.CancelFunc
}

// begin returns once the pushes flow.
func (w *watch) begin(ctx context.Context) error {
	w.ctx, w.stop = context.WithCancel(ctx)
	first := make(chan error, 1) // what became of the first try
	if !w.life.begin(func() { w.run(first) }) {
		w.stop()
		return driver.ErrClosed
	}
	select {
	case err := <-first:
		return err
	case <-ctx.Done():
		return ended(ctx)
	case <-w.life.done:
		return driver.ErrClosed
	}
}

// run subscribes, and again whenever the subscription is lost. The first try
// has to succeed.
func (w *watch) run(first chan<- error) {
	defer w.stop()
	const least, most = 20 * time.Millisecond, time.Second
	wait := least
	for flows := false; !w.over(); {
		begun := time.Now()
		d, replaced := w.at()
		err := w.subscribe(d, replaced, func() {
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
			d.heal()
		}
		if time.Since(begun) > most {
			wait = least // it had worked for a while
		}
		select {
		case <-w.ctx.Done():
		case <-w.life.done:
		case <-time.After(wait):
			wait = min(2*wait, most)
		}
	}
}

func (w *watch) over() bool { return w.life.over() || w.ctx.Err() != nil }

// subscribe listens on the driver's channel until the connection is lost, the
// driver replaced, or the watch ends. An error says that it did not get so far;
// otherwise it has called flows.
func (w *watch) subscribe(d *Driver, replaced <-chan struct{}, flows func()) error {
	heard := func(message string) {
		if id, p, err := parsePush(message); err == nil {
			d.pushed(id, p, w.tell)
		}
	}
	e := d.listen(heard, func(string) {})
	defer e.Close()
	ctx, cancel := context.WithTimeout(w.ctx, subscribeLimit)
	err := e.Add(ctx, d.channel)
	cancel()
	if err != nil {
		return classify(err)
	}
	flows()
	select {
	case <-e.Lost():
	case <-replaced:
	case <-w.ctx.Done():
	case <-w.life.done:
	}
	return nil
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
