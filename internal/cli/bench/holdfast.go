package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/anylock"
	"github.com/holdfast-go/holdfast/driver"
)

// Holdfast is the kind of a Spec whose server is a URL for anylock. It begins the kinds
// of Holdfast on a client of the user's.
const Holdfast = "holdfast"

// OpenHoldfast opens Holdfast's client of the store at s.Server. It is an
// [Open] that knows no other kind.
func OpenHoldfast(ctx context.Context, s Spec, _ Seat) (Client, error) {
	if s.Kind != Holdfast {
		return nil, fmt.Errorf("bench: there is no implementation %q", s.Kind)
	}
	d, err := anylock.OpenDriver(ctx, s.Server)
	if err != nil {
		return nil, err
	}
	return HoldfastOn(d, s)
}

// HoldfastOn returns Holdfast's client on a driver, which it closes.
func HoldfastOn(d driver.Driver, s Spec) (Client, error) {
	c := &counted{Driver: d}
	var opts []holdfast.ClientOption
	if s.TTL > 0 {
		opts = append(opts, holdfast.WithTTL(s.TTL))
	}
	locks, err := holdfast.New(c, opts...)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &holdfastClient{Client: locks, counted: c, handles: make(map[string]*holdfast.Mutex)}, nil
}

type holdfastClient struct {
	*holdfast.Client
	counted *counted

	mu      sync.RWMutex
	handles map[string]*holdfast.Mutex // programs keep those of locks they use often
}

const maxHandles = 64

// handle returns the handle that is kept for a name, or nil: then Lock makes one
// in the call, which does not outlive it.
func (o *holdfastClient) handle(name string) *holdfast.Mutex {
	o.mu.RLock()
	m, full := o.handles[name], len(o.handles) >= maxHandles
	o.mu.RUnlock()
	if m == nil && !full {
		m = o.Mutex(name)
		o.mu.Lock()
		if len(o.handles) < maxHandles {
			o.handles[name] = m
		}
		o.mu.Unlock()
	}
	return m
}

// Lock implements Client.
func (o *holdfastClient) Lock(ctx context.Context, name string) (Held, error) {
	var h *holdfast.Hold
	var err error
	if m := o.handle(name); m != nil {
		h, err = m.Lock(ctx)
	} else {
		h, err = o.Mutex(name).Lock(ctx)
	}
	if err != nil {
		return nil, err // a nil Hold in a Held would not be nil
	}
	return h, nil
}

// Counts implements Counter.
func (o *holdfastClient) Counts() Counts { return o.counted.counts() }

// counted counts what goes to a driver, and what it tells.
type counted struct {
	driver.Driver
	joins, renews, leaves, pushes, renewed atomic.Int64
}

func (c *counted) counts() Counts {
	renews := c.renews.Load()
	return Counts{Requests: float64(c.joins.Load() + renews + c.leaves.Load()), Wakes: float64(c.pushes.Load()),
		Renewals: float64(renews), Renewed: float64(c.renewed.Load())}
}

// Join implements driver.Driver.
func (c *counted) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	c.joins.Add(1)
	return c.Driver.Join(ctx, t, wait)
}

// Renew implements driver.Driver.
func (c *counted) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	c.renews.Add(1)
	c.renewed.Add(int64(len(refs)))
	return c.Driver.Renew(ctx, refs)
}

// Leave implements driver.Driver.
func (c *counted) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	c.leaves.Add(1)
	return c.Driver.Leave(ctx, refs)
}

// Watch implements driver.Driver.
func (c *counted) Watch(ctx context.Context, moved func(string, driver.Status)) error {
	return c.Driver.Watch(ctx, func(id string, p driver.Status) {
		if p.State == driver.Held {
			c.pushes.Add(1)
		}
		moved(id, p)
	})
}
