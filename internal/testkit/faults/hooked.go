package faults

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
)

// Hooked is a driver whose requests and pushes pass hooks, which can watch, delay and lose
// them. Every kit that stands before a driver rests on it. The answer of Check and Identity
// is the driver's own.
type Hooked struct {
	driver.Driver
	// OnRequest returns the answer to a request, which it sends or loses; nil sends each.
	OnRequest func(ctx context.Context, r *Request) (any, error)
	// OnPush passes a push on, or loses it; nil passes each on.
	OnPush func(id string, s driver.Status, notify func(string, driver.Status))
}

var (
	_ driver.Identifier = (*Hooked)(nil)
	_ driver.Checker    = (*Hooked)(nil)
	_ driver.Marker     = (*Hooked)(nil)
)

// Passing returns a driver whose requests are sent when pass has returned nil. A request
// for which it returns an error fails with that.
func Passing(d driver.Driver, pass func(ctx context.Context, r *Request) error) *Hooked {
	return &Hooked{Driver: d, OnRequest: func(ctx context.Context, r *Request) (any, error) {
		if err := pass(ctx, r); err != nil {
			return nil, err
		}
		return r.Send(ctx)
	}}
}

// Request is a request on its way to a driver.
type Request struct {
	Op       Op
	Ticket   *driver.Ticket // of Join
	Refs     []driver.Ref   // of Renew and Leave
	Name     string         // of Inspect, Break, Mark and SetMark; the prefix of Names
	TicketID string         // of Break

	send func(context.Context, *Request) (any, error)
}

// Send carries the request out, and returns the answer of the driver's method.
func (r *Request) Send(ctx context.Context) (any, error) { return r.send(ctx, r) }

// Detached returns the request with tickets of its own, so that it can be sent when its
// caller has given up and changes them.
func (r *Request) Detached() *Request {
	c := *r
	if r.Ticket != nil {
		t := *r.Ticket
		c.Ticket = &t
	}
	c.Refs = append([]driver.Ref(nil), r.Refs...)
	for i := range c.Refs {
		t := *c.Refs[i].Ticket
		c.Refs[i].Ticket = &t
	}
	return &c
}

// subject names in a log what the request is about.
func (r *Request) subject() string {
	switch r.Op {
	case Join:
		return "of " + r.Ticket.ID
	case Renew, Leave:
		return ids(r.Refs)
	case Watch:
		return ""
	case Break:
		return "of " + r.TicketID
	}
	return fmt.Sprintf("%q", r.Name)
}

func ids(refs []driver.Ref) string {
	switch len(refs) {
	case 0:
		return "of nobody"
	case 1:
		return "of " + refs[0].ID
	}
	return fmt.Sprintf("of %s and %d more", refs[0].ID, len(refs)-1)
}

// through sends a request by way of the hook.
func through[A any](ctx context.Context, h *Hooked, r Request, send func(context.Context, *Request) (A, error)) (A, error) {
	if h.OnRequest == nil {
		return send(ctx, &r)
	}
	r.send = func(ctx context.Context, r *Request) (any, error) { return send(ctx, r) }
	a, err := h.OnRequest(ctx, &r)
	answer, _ := a.(A)
	return answer, err
}

// Join implements [driver.Driver].
func (h *Hooked) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	return through(ctx, h, Request{Op: Join, Ticket: t}, func(ctx context.Context, r *Request) (driver.Status, error) {
		return h.Driver.Join(ctx, r.Ticket, wait)
	})
}

// Renew implements [driver.Driver].
func (h *Hooked) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return through(ctx, h, Request{Op: Renew, Refs: refs}, func(ctx context.Context, r *Request) ([]driver.Status, error) {
		return h.Driver.Renew(ctx, r.Refs)
	})
}

// Leave implements [driver.Driver].
func (h *Hooked) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return through(ctx, h, Request{Op: Leave, Refs: refs}, func(ctx context.Context, r *Request) ([]driver.Status, error) {
		return h.Driver.Leave(ctx, r.Refs)
	})
}

// Watch implements [driver.Driver].
func (h *Hooked) Watch(ctx context.Context, notify func(string, driver.Status)) error {
	_, err := through(ctx, h, Request{Op: Watch}, func(ctx context.Context, _ *Request) (struct{}, error) {
		if h.OnPush == nil {
			return struct{}{}, h.Driver.Watch(ctx, notify)
		}
		return struct{}{}, h.Driver.Watch(ctx, func(id string, s driver.Status) { h.OnPush(id, s, notify) })
	})
	return err
}

// Inspect implements [driver.Driver].
func (h *Hooked) Inspect(ctx context.Context, name string) (driver.Queue, error) {
	return through(ctx, h, Request{Op: Inspect, Name: name}, func(ctx context.Context, _ *Request) (driver.Queue, error) {
		return h.Driver.Inspect(ctx, name)
	})
}

// Names implements [driver.Driver]. It reads all names before it yields one.
func (h *Hooked) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		names, err := through(ctx, h, Request{Op: Names, Name: prefix}, func(ctx context.Context, _ *Request) ([]string, error) {
			var names []string
			for name, err := range h.Driver.Names(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				names = append(names, name)
			}
			return names, nil
		})
		if err != nil {
			yield("", err)
			return
		}
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

// Break implements [driver.Driver].
func (h *Hooked) Break(ctx context.Context, name, ticketID string) error {
	_, err := through(ctx, h, Request{Op: Break, Name: name, TicketID: ticketID}, func(ctx context.Context, _ *Request) (struct{}, error) {
		return struct{}{}, h.Driver.Break(ctx, name, ticketID)
	})
	return err
}

// Mark implements [driver.Marker], when the driver does.
func (h *Hooked) Mark(ctx context.Context, name string) (driver.Mark, error) {
	d, ok := h.Driver.(driver.Marker)
	if !ok {
		return driver.Mark{}, driver.Errorf(driver.Refused, "the driver keeps no marks")
	}
	return through(ctx, h, Request{Op: Mark, Name: name}, func(ctx context.Context, _ *Request) (driver.Mark, error) { return d.Mark(ctx, name) })
}

// SetMark implements [driver.Marker], when the driver does.
func (h *Hooked) SetMark(ctx context.Context, name string, m driver.Mark) error {
	d, ok := h.Driver.(driver.Marker)
	if !ok {
		return driver.Errorf(driver.Refused, "the driver keeps no marks")
	}
	m.Value = bytes.Clone(m.Value) // the request may be carried out later
	_, err := through(ctx, h, Request{Op: SetMark, Name: name}, func(ctx context.Context, _ *Request) (struct{}, error) {
		return struct{}{}, d.SetMark(ctx, name, m)
	})
	return err
}

// Identity implements [driver.Identifier], when the driver does.
func (h *Hooked) Identity(ctx context.Context) (string, error) {
	if d, ok := h.Driver.(driver.Identifier); ok {
		return d.Identity(ctx)
	}
	return "", driver.Errorf(driver.Refused, "the driver has no identity")
}

// Check implements [driver.Checker], when the driver does.
func (h *Hooked) Check(ctx context.Context) ([]driver.Finding, error) {
	if d, ok := h.Driver.(driver.Checker); ok {
		return d.Check(ctx)
	}
	return nil, driver.Errorf(driver.Refused, "the driver cannot examine its store")
}
