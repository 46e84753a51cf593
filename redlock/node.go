package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// node is one of the stores, and what is believed of its health. Belief decides
// how long somebody waits for it, never who holds.
type node struct {
	of      *Driver
	at      int // in the driver's nodes
	d       driver.Driver
	down    atomic.Bool // it failed: it is asked nothing but whether it is back
	slow    atomic.Bool // it owes an answer for longer than the others took
	hung    atomic.Bool // it owes one for longer than anybody waits; no line's home
	watched atomic.Bool // its pushes flow
	trip    atomic.Int64
	who     atomic.Pointer[string] // its identity, when known
	twin    atomic.Pointer[error]  // it is the same store as another node
	cleaner cleaner
}

const (
	// leastPatience and mostPatience bound how long a call that has a majority
	// waits for a node that is not known to be slow.
	leastPatience = 10 * time.Millisecond
	mostPatience  = 50 * time.Millisecond
	// A node that is down is asked again after leastProbe, and then at ever
	// greater distances.
	leastProbe = 50 * time.Millisecond
	mostProbe  = time.Second
)

// limit is how long one request to a node may take: far below the TTL, so that
// several fit in it, and the same for a node that hangs as for one that works.
// When most nodes fail to keep it, more patience does more than another try.
func (d *Driver) limit(ttl time.Duration) time.Duration {
	if d.most((*node).up) {
		return min(max(ttl/10, 100*time.Millisecond), time.Second)
	}
	return min(ttl/4, 4*time.Second)
}

// Belief excludes a minority at most: when more nodes are slow or down than
// that, it may well be this process that is, and all are asked as before.

// usable says whether joins are sent to the node.
func (n *node) usable() bool { return n.known() && (n.up() || !n.of.most((*node).up)) }

// prompt says whether its answer is worth waiting for.
func (n *node) prompt() bool { return n.usable() && (n.quick() || !n.of.most((*node).quick)) }

func (n *node) known() bool { return n.twin.Load() == nil && n.who.Load() != nil }
func (n *node) up() bool    { return n.known() && !n.down.Load() }
func (n *node) quick() bool { return n.up() && !n.slow.Load() }
func (n *node) agile() bool { return n.up() && !n.hung.Load() }

// homely says whether it can be the home of a line.
func (n *node) homely() bool { return n.usable() && (n.agile() || !n.of.most((*node).agile)) }

// most says whether a majority of nodes is so.
func (d *Driver) most(is func(n *node) bool) bool {
	count := 0
	for _, n := range d.nodes {
		if is(n) {
			count++
		}
	}
	return count >= d.quorum
}

// patience is how long to wait for the nodes that still owe an answer.
func (d *Driver) patience() time.Duration {
	longest := time.Duration(0)
	for _, n := range d.nodes {
		if n.prompt() {
			longest = max(longest, time.Duration(n.trip.Load()))
		}
	}
	return min(max(4*longest, leastPatience), mostPatience)
}

// ask runs a request to a node on a goroutine of its own, and then done. It
// returns false, and calls neither, when the driver is closed.
func (d *Driver) ask(n *node, limit time.Duration, request func(ctx context.Context) error, done func(err error)) bool {
	return d.begin(func() {
		ctx, cancel := context.WithTimeout(d.life, limit)
		defer cancel()
		begun := time.Now()
		err := request(ctx)
		d.note(n, time.Since(begun), err)
		done(err)
	})
}

// note learns from an answer how a node is.
func (d *Driver) note(n *node, took time.Duration, err error) {
	if err == nil || driver.ClassOf(err) == driver.Refused || driver.ClassOf(err) == driver.NotDone {
		old := n.trip.Load()
		n.trip.Store(old + (int64(took)-old)/8)
		// One that answers late each time is not quick in between.
		if took <= mostPatience {
			n.slow.Store(false)
		}
		if took <= 2*mostPatience {
			n.hung.Store(false)
		}
		return
	}
	d.suspect(n)
}

// suspect takes a node for down until it answers a probe.
func (d *Driver) suspect(n *node) {
	if d.life.Err() == nil && n.down.CompareAndSwap(false, true) {
		d.begin(func() { d.probe(n, leastProbe) })
	}
}

// probe asks a node, again and again, whether it is back.
func (d *Driver) probe(n *node, wait time.Duration) {
	for {
		select {
		case <-d.life.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, mostProbe)
		ctx, cancel := context.WithTimeout(d.life, time.Second)
		err := d.identify(ctx, n)
		cancel()
		if err == nil {
			n.slow.Store(false)
			n.hung.Store(false)
			n.down.Store(false)
			return
		}
	}
}

// Hosted is implemented by nodes that can say which server they are at. Two
// databases of one server are two stores, and fail as one.
type Hosted interface {
	// Server is equal for two nodes exactly if they are at the same server. It
	// may block for a round trip. Errors are those of [driver.Identifier].
	Server(ctx context.Context) (string, error)
}

// identify asks a node who it is, and compares that with the others. A server
// that restarted may be another one.
func (d *Driver) identify(ctx context.Context, n *node) error {
	id, err := who(ctx, n.d)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n.who.Store(&id)
	n.twin.Store(nil)
	for _, other := range d.nodes {
		if who := other.who.Load(); other != n && who != nil && *who == id && other.twin.Load() == nil {
			err := fmt.Errorf("nodes %d and %d are one and the same server: its failure would be that of two", min(n.at, other.at)+1, max(n.at, other.at)+1)
			n.twin.Store(&err)
		}
	}
	return nil
}

// who returns what must differ between two nodes.
func who(ctx context.Context, n driver.Driver) (string, error) {
	if h, ok := n.(Hosted); ok {
		return h.Server(ctx)
	}
	if named, ok := n.(driver.Identifier); ok {
		return named.Identity(ctx)
	}
	_, err := n.Inspect(ctx, "holdfast")
	return fmt.Sprintf("node:%p", n), err
}

var errSilent = driver.Errorf(driver.Unavailable, "it does not answer")

// minority is for how long New waits for the rest when a majority has answered.
const minority = 500 * time.Millisecond

// greet asks all nodes who they are. Those that are silent are asked on.
func (d *Driver) greet(limit time.Duration) error {
	errs := make([]error, len(d.nodes))
	type answer struct {
		at  int
		err error
	}
	done := make(chan answer, len(d.nodes))
	ctx, cancel := context.WithTimeout(d.life, limit)
	defer cancel()
	for i, n := range d.nodes {
		errs[i] = errSilent
		d.begin(func() { done <- answer{i, d.identify(ctx, n)} })
	}
	var enough <-chan time.Time
	for rest, heard := len(d.nodes), 0; rest > 0; rest-- {
		select {
		case a := <-done:
			if errs[a.at] = a.err; a.err == nil {
				heard++
			}
			if heard == d.quorum {
				enough = time.After(minority)
			}
		case <-enough:
			rest = 0
		}
	}
	alive := 0
	var failed []error
	for i, n := range d.nodes {
		switch twin := n.twin.Load(); {
		case twin != nil:
			return *twin
		case errs[i] == nil:
			alive++
		case driver.ClassOf(errs[i]) == driver.Refused:
			return fmt.Errorf("node %d: %w", i+1, errs[i])
		default:
			failed = append(failed, fmt.Errorf("node %d: %w", i+1, errs[i]))
		}
	}
	if alive < d.quorum {
		return driver.Errorf(driver.Unavailable, "%d of %d nodes answer: %w", alive, len(d.nodes), errors.Join(failed...))
	}
	for i, n := range d.nodes {
		if errs[i] != nil {
			d.suspect(n)
		}
	}
	return nil
}
