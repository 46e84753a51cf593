package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/server"
	"github.com/holdfast-go/holdfast/redislock/internal/wire"
)

// Cluster keeps queues in a Redis Cluster, each in one slot of the cluster. It
// implements [driver.Driver], [driver.Identifier] and [driver.Checker].
//
// Cluster speaks to each primary as a [Driver] does to its server, and follows
// the slots when they move. A grant is pushed to its waiter by a message in
// the queue's slot. Clusters before Redis 7 have no such messages, and waiters
// poll.
type Cluster struct {
	router
	life    server.Life
	keys    wire.KeyCache
	channel string // begins the names of the push channels
	source  source
	polls   atomic.Bool // see Driver

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

var (
	_ driver.Driver     = (*Cluster)(nil)
	_ driver.Identifier = (*Cluster)(nil)
	_ driver.Checker    = (*Cluster)(nil)
	_ driver.Noticer    = (*Cluster)(nil)
	_ driver.Marker     = (*Cluster)(nil)
)

// OpenCluster returns a driver for the cluster at a URL, with connections of
// its own:
//
//	redis-cluster://[user[:password]@]host[:port][,host[:port]...][?option=value&...]
//
// The scheme rediss-cluster is the same over TLS. The hosts are some of the
// nodes, from which the others are learnt; one that answers is enough. The
// options are those of [Open], confirmed grants included, but not
// restart_guard. User, password and options hold for all nodes.
//
// OpenCluster blocks until a node has returned the owners of the slots. Errors
// are as in [Open].
func OpenCluster(ctx context.Context, url string) (*Cluster, error) {
	m, err := parseCluster(url)
	if err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	if err := driver.Before(ctx); err != nil {
		return nil, fmt.Errorf("redislock: open: %w", err)
	}
	c := newCluster(m.Prefix)
	s := newTopology(c, m)
	c.source = s
	if err := s.askHosts(ctx); err != nil {
		c.Close()
		return nil, openErr(ctx, m.address.addr, err)
	}
	examined := func(*server.Driver) error { return nil } // when they were connected
	if err := c.checkPrimaries(ctx, examined); err != nil {
		c.Close()
		return nil, fmt.Errorf("redislock: %s: %w", m.address.addr, err)
	}
	return c, nil
}

// newCluster makes a cluster that lacks its source.
func newCluster(prefix string) *Cluster {
	c := &Cluster{channel: server.NewChannel()}
	c.keys.Init(prefix, c.channel, true)
	c.router = router{func(ctx context.Context, name string, f func(*server.Driver) error) error {
		if err := c.life.CheckOpen(ctx); err != nil {
			return err
		}
		return c.onOwner(ctx, c.keys.Get(name).Slot, f)
	}}
	c.life.Start()
	return c
}

// Traits implements [driver.Driver].
func (c *Cluster) Traits() driver.Traits {
	t := traits
	t.Scheme = "redis-cluster"
	t.Push = !c.polls.Load()
	// Slots are assigned in ranges, so names of one lane mostly share a node;
	// each slot has a script of its own in the requests to that node.
	t.Lane = func(name string) uint64 { return uint64(wire.Slot(wire.HoldersKey(c.keys.Prefix, name)) / 256) }
	return t
}

// Close implements [driver.Driver], as [Driver.Close] does.
func (c *Cluster) Close() error {
	c.life.Finish(func() { c.source.close() })
	return nil
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

// Join implements [driver.Driver].
func (c *Cluster) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	if err := c.life.CheckOpen(ctx); err != nil {
		return driver.Status{}, err
	}
	l := c.keys.Get(t.Name)
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

// Renew implements [driver.Driver]: for each node, what is in its slots.
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

// Leave implements [driver.Driver].
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
			d, err := c.source.owner(ctx, c.keys.Get(refs[i].Name).Slot)
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

// Watch implements [driver.Driver]. Subscriptions are made with the first wait
// in a slot.
func (c *Cluster) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	if err := c.life.CheckOpen(ctx); err != nil {
		return err
	}
	if c.polls.Load() {
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
