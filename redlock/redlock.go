package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Options for [New]. The zero value is useful.
type Options struct {
	// Scheme is what Traits call the store; "redlock" when empty.
	Scheme string
	// OpenLimit bounds how long New waits for the nodes to say who they are;
	// five seconds when 0. A minority may be silent for longer.
	OpenLimit time.Duration
}

// Driver makes one store of an odd number of independent ones. It implements
// [driver.Driver], [driver.Identifier] and [driver.Checker].
type Driver struct {
	nodes  []*node
	quorum int
	traits driver.Traits
	life   context.Context // ends with the driver
	end    context.CancelFunc

	watch   atomic.Pointer[watcher]
	tokens  estimate
	crowded hints
	marks   atomic.Uint64 // counts requests, so that each knows which came after it
	rounds  atomic.Int64  // tries for the majority, for tests
	grants  atomic.Int64  // that were won

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	entries map[string]*entry    // by the ticket's id
	serial  int                  // of the names of nodes' tickets
	graves  map[string]time.Time // ids that must stay Gone, and until when
}

// watcher is who listens.
type watcher struct {
	ctx   context.Context
	moved func(string, driver.Place)
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Identifier = (*Driver)(nil)
	_ driver.Checker    = (*Driver)(nil)
)

// New returns a driver on nodes, an odd number of at least three, which it
// closes with itself. All who shall exclude each other give the same nodes;
// that they give them in the same order is best, but nothing depends on it.
//
// It asks the nodes who they are and returns an error when two are at one
// server, see [Hosted], when a node refuses, or when no majority has answered within
// Options.OpenLimit. After an error the nodes are the caller's again. Options
// may be nil.
//
// A node has to offer fencing, has to be a store of its own and not a cluster
// (Traits.Lane), and has to keep a ticket for the TTL that its latest request
// asks for. It has to remember what it granted across a restart, or else grant
// nothing for one TTL after it: see redislock's restart guard.
func New(nodes []driver.Driver, o *Options) (*Driver, error) {
	if o == nil {
		o = new(Options)
	}
	if len(nodes) < 3 || len(nodes)%2 == 0 {
		return nil, fmt.Errorf("redlock: %d nodes: it takes an odd number of them, at least 3; an even one survives no more failures than one less", len(nodes))
	}
	d := &Driver{
		quorum:  len(nodes)/2 + 1,
		entries: make(map[string]*entry),
		graves:  make(map[string]time.Time),
	}
	d.tokens.start, d.tokens.nodes = time.Now(), make([]offsets, len(nodes))
	d.life, d.end = context.WithCancel(context.Background())
	for i, n := range nodes {
		if n == nil {
			return nil, fmt.Errorf("redlock: node %d is nil", i+1)
		}
		d.nodes = append(d.nodes, &node{of: d, at: i, d: n})
	}
	var err error
	if d.traits, err = traitsOf(nodes); err != nil {
		d.end()
		return nil, err
	}
	if o.Scheme != "" {
		d.traits.Scheme = o.Scheme
	}
	limit := o.OpenLimit
	if limit <= 0 {
		limit = 5 * time.Second
	}
	if err := d.greet(limit); err != nil {
		d.end()
		d.running.Wait()
		return nil, fmt.Errorf("redlock: %w", err)
	}
	return d, nil
}

// traitsOf returns what a majority of such nodes can do.
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
		// A waiter that is granted asks the other nodes for what is left of
		// its time only.
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
	if len(d.nodes) == 0 {
		return driver.Traits{Scheme: "redlock", Fencing: true, Push: true, SurvivesFailover: true,
			MinTTL: 500 * time.Millisecond, MaxTTL: 365 * 24 * time.Hour, Granularity: time.Millisecond}
	}
	return d.traits
}

// Close implements [driver.Driver]. It closes the nodes.
func (d *Driver) Close() error {
	d.mu.Lock()
	first := !d.closed
	d.closed = true
	d.mu.Unlock()
	if !first {
		return nil
	}
	d.end()
	d.running.Wait()
	var errs []error
	for _, n := range d.nodes {
		errs = append(errs, n.d.Close())
	}
	return errors.Join(errs...)
}

// begin runs f on a goroutine that Close waits for; false when it is too late.
func (d *Driver) begin(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running.Go(f)
	return true
}

// before returns why nothing can be sent, if so.
func (d *Driver) before(ctx context.Context) error {
	if d.life.Err() != nil {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// ended is the error of a call that its context or the driver's end ended.
func (d *Driver) ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}
	}
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// tell pushes to the core. No lock is held.
func (d *Driver) tell(id string, p driver.Place) {
	if w := d.watch.Load(); w != nil && w.ctx.Err() == nil && d.life.Err() == nil {
		w.moved(id, p)
	}
}
