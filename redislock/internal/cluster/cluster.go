// Package cluster keeps queues in the primaries of a Redis Cluster: it knows which node has
// a slot, sends each request there, and listens where tickets wait.
package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Cluster keeps queues in a Redis Cluster. It has the methods of [driver.Driver] but
// Traits, Inspect and Break.
type Cluster struct {
	life    server.Life
	Keys    wire.KeyCache
	Channel string // begins the names of the push channels
	source  source
	Polls   atomic.Bool // see server.Driver

	watching      sync.Mutex     // guards subscriptions; no mutex is taken under it
	subscriptions *subscriptions // nil before Watch
}

// source finds the server that has a slot.
type source interface {
	// owner returns the driver of the primary that has a slot.
	owner(ctx context.Context, slot int) (*server.Driver, error)
	// primaries returns the drivers of all primaries.
	primaries(ctx context.Context) ([]*server.Driver, error)
	// refresh makes the source look for the slots anew, in the background: the
	// node of from does not serve as it should.
	refresh(from *server.Driver)
	// noteMoved notes that a slot is at another node.
	noteMoved(from *server.Driver, slot int, addr string)
	// askTarget returns the driver of a node by its address, or nil.
	askTarget(ctx context.Context, addr string) *server.Driver
	// DuringElection returns err, made one that passes if the cluster answers
	// while its primary cannot be reached.
	duringElection(err error) error
	// epoch returns a number that changes when the source learns of a change.
	epoch() uint64
	close()
}

// Config says how to reach the nodes of a cluster.
type Config struct {
	server.Settings
	Hosts []string // nodes, from which the others are learnt
	// Dial connects to a server and calls open to make a driver.
	Dial func(ctx context.Context, addr string, open func(client.Library) (*server.Driver, error)) (*server.Driver, error)
}

// Open connects to a cluster.
func (c *Cluster) Open(ctx context.Context, at Config) error {
	c.start(at.Prefix)
	s := newTopology(c, at)
	c.source = s
	err := s.askHosts(ctx)
	if err != nil {
		c.Close()
	}
	return err
}

// start makes a cluster that lacks its source.
func (c *Cluster) start(prefix string) {
	c.Channel = server.NewChannel()
	c.Keys.Init(prefix, c.Channel, true)
	c.life.Start()
}

// Close implements the method of [driver.Driver].
func (c *Cluster) Close() error {
	c.life.Finish(func() { c.source.close() })
	return nil
}

// Route calls f with the driver that has a queue, see onOwner.
func (c *Cluster) Route(ctx context.Context, name string, f func(*server.Driver) error) error {
	if err := c.life.CheckOpen(ctx); err != nil {
		return err
	}
	return c.onOwner(ctx, c.Keys.Get(name).Slot, f)
}

// onOwner calls f with the driver that has a slot, and calls it again if the
// answer redirects the request.
func (c *Cluster) onOwner(ctx context.Context, slot int, f func(d *server.Driver) error) error {
	for n := 0; ; n++ {
		d, err := c.source.owner(ctx, slot)
		if err != nil {
			return c.source.duringElection(err)
		}
		if err = f(d); err == nil || !c.shouldResend(d, err) || n == server.MaxHops {
			return c.source.duringElection(err)
		}
	}
}

// shouldResend notes why a request failed, and reports whether to send it
// again: it went to a node that named the right one, or to a node that is no
// longer used.
func (c *Cluster) shouldResend(d *server.Driver, err error) bool {
	if slot, addr, ok := wire.MovedTo(err); ok {
		c.source.noteMoved(d, slot, addr)
		return true
	}
	switch driver.ClassOf(err) {
	case driver.Unknown, driver.Unavailable:
		if !wire.IsMoving(err) {
			c.source.refresh(d)
		}
	}
	return errors.Is(err, server.ErrDropped)
}

// Join implements the method of [driver.Driver].
func (c *Cluster) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := c.life.CheckOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	l := c.Keys.Get(t.Name)
	hasPush := true
	join := func() (p driver.Status, err error) {
		err = c.onOwner(ctx, l.Slot, func(d *server.Driver) error {
			hasPush = !d.Polls.Load()
			p, err = d.Join(ctx, t, wait)
			return err
		})
		return p, err
	}
	p, err := join()
	if err != nil || p.State != driver.Waiting {
		return p, err
	}
	if hasPush && c.awaitPushes(ctx, l.Slot) {
		// From here on the ticket's grant is pushed. The second join finds an
		// earlier one.
		again, err := join()
		if err == nil {
			p = again
		} else if driver.ClassOf(err) == driver.Unknown {
			return driver.Status{}, err // it may yet be carried out, after a leave too
		}
	}
	return p, nil
}

// Renew implements the method of [driver.Driver].
func (c *Cluster) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	places, err := c.each(ctx, refs, (*server.Driver).Renew)
	for i := range places {
		if addr, ok := wire.AskAt(places[i].Err); ok && wire.IsMutex(refs[i].Ticket) && refs[i].State != driver.Waiting {
			if d := c.source.askTarget(ctx, addr); d != nil {
				places[i] = d.RenewAhead(ctx, refs[i])
			}
		}
	}
	return places, err
}

// Leave implements the method of [driver.Driver].
func (c *Cluster) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return c.each(ctx, refs, (*server.Driver).Leave)
}

// each passes every ticket to the driver that has its slot, to all drivers at
// once. It passes the redirected tickets on to the drivers named.
func (c *Cluster) each(ctx context.Context, refs []driver.Ref, f func(*server.Driver, context.Context, []driver.Ref) ([]driver.Status, error)) ([]driver.Status, error) {
	if err := c.life.CheckOpen(ctx); err != nil {
		return nil, err
	}
	places := make([]driver.Status, len(refs))
	todo := make([]int, len(refs))
	for i := range todo {
		todo[i] = i
	}
	for n := 0; len(todo) > 0; n++ {
		by := make(map[*server.Driver][]int)
		for _, i := range todo {
			d, err := c.source.owner(ctx, c.Keys.Get(refs[i].Name).Slot)
			if err != nil {
				places[i] = driver.Status{Err: err}
				continue
			}
			by[d] = append(by[d], i)
		}
		var wg sync.WaitGroup
		for d, is := range by {
			call := func() {
				some := make([]driver.Ref, len(is))
				for k, i := range is {
					some[k] = refs[i]
				}
				ps, err := f(d, ctx, some)
				for k, i := range is {
					if places[i] = (driver.Status{Err: err}); err == nil {
						places[i] = ps[k]
					}
				}
			}
			if len(by) == 1 {
				call()
			} else {
				wg.Go(call)
			}
		}
		wg.Wait()
		todo = todo[:0]
		for d, is := range by {
			for _, i := range is {
				if err := places[i].Err; err != nil && c.shouldResend(d, err) && n < server.MaxHops {
					todo = append(todo, i)
				}
			}
		}
	}
	return places, nil
}

// Watch implements the method of [driver.Driver].
func (c *Cluster) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	if err := c.life.CheckOpen(ctx); err != nil {
		return err
	}
	if c.Polls.Load() {
		return nil
	}
	c.watching.Lock()
	defer c.watching.Unlock()
	c.subscriptions = newSubscriptions(ctx, c, notify)
	return nil
}

// changed makes the subscriptions follow the slots, after the source has
// learnt that some have moved.
func (c *Cluster) changed() {
	c.life.Begin(func() {
		c.watching.Lock()
		e := c.subscriptions
		c.watching.Unlock()
		if e != nil {
			e.recheckOwners()
		}
	})
}

// awaitPushes makes sure that pushes of a slot flow, and reports whether they
// flow now and did not before.
func (c *Cluster) awaitPushes(ctx context.Context, slot int) bool {
	c.watching.Lock()
	e := c.subscriptions
	c.watching.Unlock()
	return e != nil && e.await(ctx, slot)
}
