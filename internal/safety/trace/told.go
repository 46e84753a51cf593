package trace

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// call is one call of the core, from the sending of its request until the client has the
// answer.
type call struct {
	sent time.Time

	mu     sync.Mutex
	events []int // of the request that was carried out last
}

type callKey struct{}

// Sent notes that a request is sent, with the context that it returns. Its events learn
// when that was if heard is called: the answer has reached the client.
func (d *Driver) Sent(ctx context.Context) (_ context.Context, heard func()) {
	c := &call{sent: time.Now()}
	return context.WithValue(ctx, callKey{}, c), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		d.r.mu.Lock()
		defer d.r.mu.Unlock()
		for _, i := range c.events {
			at, e := d.r.at[i], &d.r.events[i]
			e.Sent, e.Heard = int64(at.Sub(c.sent)), int64(max(time.Since(at), 1))
		}
	}
}

// carry notes that n events, from first on, are of the call of ctx, if it has one. Of a
// request that arrives twice the client hears the latter answer.
func carry(ctx context.Context, first, n int) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = nil
	for i := range n {
		c.events = append(c.events, first+i)
	}
}

type holdKey struct{}

// Observer returns an Observer that notes which calls return a hold or fail, and which
// holds have ended.
func (d *Driver) Observer() *holdfast.Observer {
	return &holdfast.Observer{
		LockDone: func(ctx context.Context, e holdfast.LockDoneInfo) context.Context {
			if e.Err != nil {
				failed := Event{Kind: Failed, Client: d.client, Name: e.Name, Waited: int64(e.Waited)}
				failed.end(e.Err)
				d.r.add(failed)
				return ctx
			}
			d.r.mu.Lock()
			d.r.holds++
			n := d.r.holds
			d.r.mu.Unlock()
			d.r.add(Event{Kind: LockDone, Client: d.client, Name: e.Name, Hold: n, Token: e.Token})
			return context.WithValue(ctx, holdKey{}, n)
		},
		HoldDone: func(ctx context.Context, e holdfast.HoldDoneInfo) {
			n, _ := ctx.Value(holdKey{}).(int)
			event := Event{Kind: HoldDone, Client: d.client, Name: e.Name, Hold: n, Token: e.Token}
			event.end(e.Err)
			d.r.add(event)
		},
	}
}

// Got notes that a lock call returned h, which is not nested.
func (d *Driver) Got(h *holdfast.Hold) {
	d.note(Got, h, nil)
}

// Out notes that the user is about to unlock h, and what h.Err returned.
func (d *Driver) Out(h *holdfast.Hold, err error) {
	d.note(Out, h, err)
}

// Told notes that the context of h has ended with a loss.
func (d *Driver) Told(h *holdfast.Hold, lost error) {
	d.note(Told, h, lost)
}

// Heard notes that a push has reached the client, which acts on it at once.
func (d *Driver) Heard(id string, s driver.Status) {
	e := Event{Kind: Heard, Client: d.client, ID: id}
	e.answer(s, nil)
	d.r.add(e)
}

// Ended notes that the client has closed without an error: it has left all its places.
func (d *Driver) Ended() { d.r.add(Event{Kind: Ended, Client: d.client}) }

func (d *Driver) note(kind Kind, h *holdfast.Hold, err error) {
	n, _ := h.Context().Value(holdKey{}).(int)
	e := Event{Kind: kind, Client: d.client, Name: h.Name(), ID: h.Ticket(), Hold: n, Token: h.Token()}
	e.end(err)
	d.r.add(e)
}

// The ends of a hold, beside its release, as an event has them in Err.
const (
	endLost    = "lost"
	endClosed  = "closed"
	endUnknown = "outcome unknown" // the store did not confirm the release
)

// end notes why a hold has ended.
func (e *Event) end(err error) {
	if err == nil {
		return
	}
	e.Text = err.Error()
	switch {
	case errors.Is(err, holdfast.ErrLost):
		e.Err = endLost
	case errors.Is(err, holdfast.ErrClosed):
		e.Err = endClosed
	default:
		e.Err = endUnknown
	}
}

// ofCore reports whether the event is what the core told its user.
func (e *Event) ofCore() bool {
	switch e.Kind {
	case LockDone, Got, Out, Told, HoldDone:
		return true
	}
	return false
}

// storeToken returns the part of the event's token that is the store's.
func (e *Event) storeToken() uint64 {
	if e.ofCore() {
		return e.Token >> 8
	}
	return e.Token
}
