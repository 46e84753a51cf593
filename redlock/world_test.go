package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/internal/testkit/faults"
	"github.com/holdfast-go/holdfast/memlock"
)

// A world is a number of stores in memory, on which clients open their drivers,
// with the faults of these stores.
type world struct {
	nodes []*store
}

// store is a store of a world. It has a gate at which requests wait while the
// store is silent, a delay for each request, and a restart guard.
type store struct {
	*memlock.Store
	faults.Gate
	slow    atomic.Int64 // the longest delay of a request
	dead    atomic.Bool  // connections are refused
	guarded atomic.Int64 // joins are refused until then, in Unix nanoseconds
	unsure  atomic.Int64 // tickets that left with JoinPending
	deaf    atomic.Bool  // Watch fails
}

func newWorld(n int) *world {
	w := new(world)
	for range n {
		s := &store{Store: memlock.NewStore()}
		s.StepClock(30 * 365 * 24 * time.Hour) // bubbles begin in 2000, tokens in 2025
		w.nodes = append(w.nodes, s)
	}
	return w
}

// restart brings a store back without its data, under the restart guard.
func (s *store) restart(ttl time.Duration) {
	s.guarded.Store(time.Now().Add(ttl).UnixNano())
	s.LoseData()
}

// drivers returns a client's drivers of the stores.
func (w *world) drivers() []driver.Driver {
	var ds []driver.Driver
	for _, s := range w.nodes {
		ds = append(ds, newWire(s))
	}
	return ds
}

func (w *world) open(t drivertest.T) *Driver {
	t.Helper()
	d, err := New(w.drivers(), nil)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return d
}

// client opens a client of the core, which is closed with the test.
func (w *world) client(t *testing.T, ttl time.Duration) (*holdfast.Client, *Driver) {
	t.Helper()
	d := w.open(t)
	return clientOf(t, d, ttl), d
}

func clientOf(t *testing.T, d driver.Driver, ttl time.Duration) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(d, holdfast.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("Close: %v", err)
		}
	})
	return c
}

// wireTo returns the wire between a driver's client and a node.
func wireTo(d *Driver, at int) *wire { return d.nodes.all[at].d.(*wire) }

// wire is the way between one client and one store; its own gate cuts off this
// client alone.
type wire struct {
	*faults.Hooked
	s    *store
	own  faults.Gate
	late faults.Gate // answers to joins wait at it
}

func newWire(s *store) *wire {
	d := &wire{s: s}
	d.Hooked = &faults.Hooked{Driver: memlock.New(s.Store), OnRequest: d.request}
	return d
}

func (d *wire) pass(ctx context.Context) error {
	if d.s.dead.Load() {
		return driver.Errorf(driver.Unavailable, "connection refused")
	}
	for _, g := range []*faults.Gate{&d.s.Gate, &d.own} {
		if err := g.Pass(ctx); err != nil {
			return err
		}
	}
	if most := d.s.slow.Load(); most > 0 {
		select {
		case <-time.After(rand.N(time.Duration(most))):
		case <-ctx.Done():
			return driver.Wrap(driver.Unknown, context.Cause(ctx))
		}
	}
	return nil
}

func (d *wire) request(ctx context.Context, r *faults.Request) (any, error) {
	if err := d.pass(ctx); err != nil {
		return nil, err
	}
	switch r.Op {
	case faults.Join:
		if left := d.s.guarded.Load() - time.Now().UnixNano(); left > 0 {
			return nil, driver.NotReady(time.Duration(left), "restarted without its data")
		}
		p, err := r.Send(ctx)
		if late := d.late.Pass(ctx); late != nil {
			return nil, late
		}
		return p, err
	case faults.Leave:
		for _, ref := range r.Refs {
			if ref.JoinPending {
				d.s.unsure.Add(1)
			}
		}
	case faults.Watch:
		if d.s.deaf.Load() {
			return nil, driver.Errorf(driver.Unavailable, "no connection to listen on")
		}
	}
	return r.Send(ctx)
}

// Identity implements [driver.Identifier].
func (d *wire) Identity(ctx context.Context) (string, error) {
	if err := d.pass(ctx); err != nil {
		return "", err
	}
	return d.Hooked.Identity(ctx)
}

// A record checks the holds of one lock: that none overlaps with another, and
// that tokens grow.
type record struct {
	mu     sync.Mutex
	holder string
	last   uint64
	count  int
}

// turn takes the lock, holds it for a while, and releases it. It returns false
// when it did not get the lock.
func (r *record) turn(t *testing.T, ctx context.Context, who string, c *holdfast.Client, name string, work time.Duration) bool {
	t.Helper()
	h, err := c.Mutex(name).Lock(ctx)
	if err != nil {
		return false
	}
	r.mu.Lock()
	if r.holder != "" {
		t.Errorf("%s holds beside %s", who, r.holder)
	}
	if h.Token() <= r.last {
		t.Errorf("%s has token %d after %d", who, h.Token(), r.last)
	}
	r.holder, r.last = who, h.Token()
	r.count++
	r.mu.Unlock()
	end := make(chan struct{})
	timer := time.AfterFunc(work, func() { close(end) })
	select {
	case <-end:
	case <-h.Context().Done(): // lost: from now on another client may hold
	}
	timer.Stop()
	r.mu.Lock()
	if r.holder == who {
		r.holder = ""
	}
	r.mu.Unlock()
	_ = h.Unlock()
	return true
}
