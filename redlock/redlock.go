package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tracker"
	"github.com/holdfast-go/holdfast/internal/unanswered"
)

// Options are the settings of [New]. The zero value is useful.
type Options struct {
	// Scheme is the store's Traits.Scheme; "redlock" when empty.
	Scheme string
	// OpenLimit bounds the time that New waits for the nodes to identify
	// themselves; five seconds when 0. A minority may be silent for longer.
	OpenLimit time.Duration
}

// Driver makes one store of an odd number of independent stores. It implements
// [driver.Driver], [driver.Identifier] and [driver.Checker].
type Driver struct {
	nodes  *nodeSet
	traits driver.Traits

	watch     atomic.Pointer[watcher]
	tokens    estimate
	contended contendedNames
	marks     atomic.Uint64 // counts requests, to tell which of two came later
	rounds    atomic.Int64  // tries for the majority, counted for tests
	grants    atomic.Int64  // tries that won the majority

	mu      sync.Mutex // taken after an entry's, see entry; none is taken under it
	tickets tracker.Set[string, *entry]
	serial  int // of the last range of ids for nodes' tickets
}

// watcher is the core's Watch: its context, and the function that takes pushes.
type watcher struct {
	ctx    context.Context
	notify func(string, driver.Status)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a driver on nodes, an odd number of at least three, which the
// driver closes with itself. Clients exclude each other only if they give the
// same nodes. Giving them in the same order is best, but nothing depends on it.
//
// New asks the nodes for their identities. It returns an error when two nodes
// are on one server, see [Hosted], when a node refuses, or when no majority has
// answered within Options.OpenLimit. After an error the caller has to close the
// nodes. Options may be nil.
//
// A node has to offer fencing, to be a single store and not a cluster
// (Traits.Lane), and to keep a ticket for the TTL of its latest request. It has
// to remember its grants across a restart, or else to grant nothing for one TTL
// after it: see redislock's restart guard.
func New(nodes []driver.Driver, o *Options) (*Driver, error) {
	if o == nil {
		o = new(Options)
	}
	if len(nodes) < 3 || len(nodes)%2 == 0 {
		return nil, fmt.Errorf("redlock: %d nodes: it takes an odd number of them, at least 3", len(nodes))
	}
	d := &Driver{nodes: &nodeSet{quorum: len(nodes)/2 + 1}}
	d.tickets.Tombstones.Keep = tombstoneTTL
	d.tokens.start, d.tokens.nodes = time.Now(), make([]offsets, len(nodes))
	d.nodes.life, d.nodes.end = context.WithCancel(context.Background())
	for i, n := range nodes {
		if n == nil {
			return nil, fmt.Errorf("redlock: node %d is nil", i+1)
		}
		d.nodes.all = append(d.nodes.all, &node{of: d.nodes, at: i, d: n, givenUp: unanswered.Requests{Most: 4}})
	}
	var err error
	if d.traits, err = traitsOf(nodes); err != nil {
		d.nodes.end()
		return nil, err
	}
	d.nodes.push = d.traits.Push
	if o.Scheme != "" {
		d.traits.Scheme = o.Scheme
	}
	limit := o.OpenLimit
	if limit <= 0 {
		limit = 5 * time.Second
	}
	if err := d.nodes.greet(limit); err != nil {
		d.nodes.end()
		d.nodes.running.Wait()
		return nil, fmt.Errorf("redlock: %w", err)
	}
	return d, nil
}

// traitsOf returns the traits that a majority of such nodes offers.
func traitsOf(nodes []driver.Driver) (driver.Traits, error) {
	tr := driver.Traits{Scheme: "redlock", Fencing: true, Push: true, SurvivesFailover: true, SurvivesRestart: true}
	for i, n := range nodes {
		t := n.Traits()
		switch {
		case !t.Fencing:
			return tr, fmt.Errorf("redlock: node %d has no fencing tokens", i+1)
		case t.Lane != nil:
			return tr, fmt.Errorf("redlock: node %d is a cluster; a node is one server", i+1)
		}
		tr.Push = tr.Push && t.Push && !t.PushLocal
		tr.SurvivesRestart = tr.SurvivesRestart && t.SurvivesRestart
		// A granted waiter asks the other nodes for no more than the rest of
		// its time.
		tr.MinTTL = max(tr.MinTTL, 5*t.MinTTL)
		if tr.MaxTTL == 0 || t.MaxTTL < tr.MaxTTL {
			tr.MaxTTL = t.MaxTTL
		}
		tr.Granularity = max(tr.Granularity, t.Granularity)
	}
	return tr, nil
}

// Traits implements [driver.Driver].
func (d *Driver) Traits() driver.Traits {
	if d.nodes == nil {
		return driver.Traits{Scheme: "redlock", Fencing: true, Push: true, SurvivesFailover: true,
			MinTTL: 500 * time.Millisecond, MaxTTL: 365 * 24 * time.Hour, Granularity: time.Millisecond}
	}
	return d.traits
}

// Close implements [driver.Driver]. It asks the nodes that answer to drop the
// votes that were given back before, and closes the nodes.
func (d *Driver) Close() error {
	if !d.nodes.close() {
		return nil
	}
	d.nodes.leaveRemaining()
	var errs []error
	for _, n := range d.nodes.all {
		errs = append(errs, n.d.Close())
	}
	return errors.Join(errs...)
}

// notify pushes a status to the core. The caller holds no mutex.
func (d *Driver) notify(id string, p driver.Status) {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil && d.nodes.life.Err() == nil {
		w.notify(id, p)
	}
}
