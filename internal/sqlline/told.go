package sqlline

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// deafMark begins the address of a client that hears nothing: nobody tells it,
// and only it itself needs the address, to find out which grants of its own are
// for itself.
const deafMark = "-"

// address is where pushes to this client are sent.
func (r *Remote) address() string {
	if r.Hears.Load() {
		return r.Name
	}
	return deafMark + r.Name
}

// Others returns those pushes that go to other clients who hear.
func (r *Remote) Others(pushes []Push) []Push {
	var out []Push
	for _, p := range pushes {
		if p.Wake != r.Name && !strings.HasPrefix(p.Wake, deafMark) {
			out = append(out, p)
		}
	}
	return out
}

// A client that hears nothing asks for the ticket that is n-th in line after
// n × PaceFirst, but at least every PaceLast.
const (
	PaceFirst = 25 * time.Millisecond
	PaceLast  = time.Second
)

// paced makes a waiting ticket of which nobody tells this client ask in time.
func (r *Remote) paced(t *driver.Ticket, p driver.Place) driver.Place {
	if p.State != driver.Waiting {
		if p.Err == nil {
			r.unheard.Delete(t.ID)
		}
		return p
	}
	if _, ok := r.unheard.Load(t.ID); !ok && r.Hears.Load() {
		return p
	}
	pace := min(PaceLast, PaceFirst*time.Duration(max(1, min(p.Ahead, 1000))))
	if p.Recheck == 0 || p.Recheck > pace {
		p.Recheck = pace
	}
	return p
}

// Watch takes the function of [driver.Driver.Watch], once.
func (r *Remote) Watch(moved func(string, driver.Place)) error {
	if !r.moved.CompareAndSwap(nil, &moved) {
		return driver.Errorf(driver.Refused, "this client watches already")
	}
	return nil
}

// Unwatch forgets the function: no push arrives any more.
func (r *Remote) Unwatch() {
	r.Hears.Store(false)
	r.moved.Store(nil)
}

// Moved hands a push to the core. An empty id says that pushes may have been
// missed.
func (r *Remote) Moved(id string, p driver.Place) {
	if moved := r.moved.Load(); moved != nil {
		(*moved)(id, p)
	}
}

// after delivers the pushes of a request to this client itself; the others are
// told by the server. When it is not known whether the request took effect,
// neither is it whom of this client's tickets it granted.
func (r *Remote) after(pushes []Push, err error) {
	for _, p := range pushes {
		if strings.TrimPrefix(p.Wake, deafMark) == r.Name {
			r.Moved(p.ID, p.Place)
		}
	}
	if err != nil && driver.ClassOf(err) == driver.Unknown {
		r.Moved("", driver.Place{})
	}
}
