package redislock

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/redislock/internal/client"
	"github.com/holdfast-go/holdfast/redislock/internal/cluster"
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
	nodes cluster.Cluster
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
	c := newCluster()
	err = c.nodes.Open(ctx, cluster.Config{
		Settings: m.Settings, Hosts: m.hosts,
		Dial: func(ctx context.Context, addr string, open func(client.Library) (*server.Driver, error)) (*server.Driver, error) {
			return m.to(addr).dial(ctx, open)
		},
	})
	if err != nil {
		return nil, openErr(ctx, m.address.addr, err)
	}
	examined := func(*server.Driver) error { return nil } // when they were connected
	if err := c.nodes.CheckPrimaries(ctx, examined); err != nil {
		c.Close()
		return nil, fmt.Errorf("redislock: %s: %w", m.address.addr, err)
	}
	return c, nil
}

// ViaCluster does the same as Via for a cluster.
func ViaCluster(of client.Cluster, o *Options) (*Cluster, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	if s.RestartGuard != nil {
		return nil, errors.New("redislock: RestartGuard is for a single server")
	}
	ctx, cancel := context.WithTimeout(context.Background(), server.OpenLimit)
	defer cancel()
	c := newCluster()
	if err := c.nodes.Adapt(ctx, of, s); err != nil {
		return nil, fmt.Errorf("redislock: %w", err)
	}
	return c, nil
}

func newCluster() *Cluster {
	c := new(Cluster)
	c.router = router{c.nodes.Route}
	return c
}

// Traits implements [driver.Driver].
func (c *Cluster) Traits() driver.Traits {
	t := traits
	t.Scheme = "redis-cluster"
	t.Push = !c.nodes.Polls.Load()
	// Slots are assigned in ranges, so names of one lane mostly share a node;
	// each slot has a script of its own in the requests to that node.
	t.Lane = func(name string) uint64 { return uint64(wire.Slot(wire.HoldersKey(c.nodes.Keys.Prefix, name)) / 256) }
	return t
}

// Close implements [driver.Driver], as [Driver.Close] does.
func (c *Cluster) Close() error { return c.nodes.Close() }

// Join implements [driver.Driver].
func (c *Cluster) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	return c.nodes.Join(ctx, t, wait)
}

// Renew implements [driver.Driver]: for each node, what is in its slots.
func (c *Cluster) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return c.nodes.Renew(ctx, refs)
}

// Leave implements [driver.Driver].
func (c *Cluster) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return c.nodes.Leave(ctx, refs)
}

// Watch implements [driver.Driver]. Subscriptions are made with the first wait
// in a slot.
func (c *Cluster) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	return c.nodes.Watch(ctx, notify)
}

// Names implements [driver.Driver]: it works as [Driver.Names] on one primary
// after the other, and once more on all if a slot was moved meanwhile.
func (c *Cluster) Names(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return c.nodes.Names(ctx, prefix)
}

// Identity implements [driver.Identifier]: the id of the node that has the
// cluster's first slot, and the prefix. The identity changes with a failover.
func (c *Cluster) Identity(ctx context.Context) (id string, err error) { return c.nodes.Identity(ctx) }

// Check implements [driver.Checker]: it takes and releases a lock, and judges
// what each primary reports about itself. Where the primaries differ on a
// topic, Check returns the worst finding.
func (c *Cluster) Check(ctx context.Context) ([]driver.Finding, error) { return c.nodes.Check(ctx) }

// Notices implements [driver.Noticer]: it reports the first primary that may
// evict locks.
func (c *Cluster) Notices() []driver.Finding { return c.nodes.Notices() }
