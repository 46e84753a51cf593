package redlock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
	"github.com/holdfast-go/holdfast/internal/unanswered"
)

// node is one of the stores, and an estimate of its health. The estimate
// decides how long a call waits for the node, never which client holds.
type node struct {
	of        *nodeSet
	at        int // index in the set
	d         driver.Driver
	down      atomic.Bool // a request failed: until it is back, only probes are sent
	slow      atomic.Bool // an answer is outstanding for longer than the others took
	hung      atomic.Bool // an answer is outstanding for longer than any call waits; not the home of a queue
	watched   atomic.Bool // its pushes flow
	trip      atomic.Int64
	identity  atomic.Pointer[string] // its identity; nil until known
	duplicate atomic.Pointer[error]  // an error that it is the same store as another node; else nil
	cleaner   cleaner
	givenUp   unanswered.Requests // those of its requests for which nobody waits any more
}

const (
	// minNodeWait and maxNodeWait bound the time that a call with a majority
	// waits for a node that is not known to be slow.
	minNodeWait = 10 * time.Millisecond
	maxNodeWait = 50 * time.Millisecond
	// minProbeWait is the wait before the first probe of a node that is down.
	// The wait doubles with each probe, up to maxProbeWait.
	minProbeWait = 50 * time.Millisecond
	maxProbeWait = time.Second
)

// limit returns the time that one request to a node may take. It is far below
// the TTL, so that several requests fit in the TTL, and is the same for a
// hanging node as for a working one. When most nodes miss the limit, waiting
// longer helps more than another try. A node that is slow, but not silent, gets
// the time that its answers take.
func (n *node) limit(ttl time.Duration) time.Duration {
	most := min(ttl/4, 4*time.Second)
	if n.of.majority((*node).up) {
		least := min(max(ttl/10, 100*time.Millisecond), time.Second)
		return max(least, min(3*time.Duration(n.trip.Load()), most))
	}
	return most
}

// The estimates exclude a minority at most. When more nodes than that seem slow
// or down, this process itself may well be slow or cut off, and all nodes are
// asked as before.

func (n *node) known() bool      { return n.duplicate.Load() == nil && n.identity.Load() != nil }
func (n *node) up() bool         { return n.known() && !n.down.Load() }
func (n *node) responsive() bool { return n.up() && !n.slow.Load() }
func (n *node) notHung() bool    { return n.up() && !n.hung.Load() }

// usable reports whether joins are sent to the node.
func (n *node) usable() bool { return n.known() && (n.up() || !n.of.majority((*node).up)) }

// inTime reports whether calls wait for the node's answer.
func (n *node) inTime() bool {
	return n.usable() && (n.responsive() || !n.of.majority((*node).responsive))
}

// canBeHome reports whether the node can be the home of a queue.
func (n *node) canBeHome() bool {
	return n.usable() && (n.notHung() || !n.of.majority((*node).notHung))
}

// note updates the estimate of a node's health with an answer.
func (n *node) note(took time.Duration, err error) {
	_, guarded := driver.IsNotReady(err) // the node answers, so it is not down
	if err == nil || guarded || driver.ClassOf(err) == driver.Refused || driver.ClassOf(err) == driver.NotDone {
		n.givenUp.Answer()
		old := n.trip.Load()
		n.trip.Store(old + (int64(took)-old)/8)
		// A node that answers late each time must not count as responsive in
		// between.
		if took <= maxNodeWait {
			n.slow.Store(false)
		}
		if took <= 2*maxNodeWait {
			n.hung.Store(false)
		}
		return
	}
	if driver.ClassOf(err) == driver.Unknown { // it may answer later: the next limit allows more
		n.trip.Store(max(n.trip.Load(), int64(took/2)))
	}
	n.suspect()
}

// suspect marks a node as down until it answers a probe.
func (n *node) suspect() {
	if n.of.life.Err() == nil && n.down.CompareAndSwap(false, true) {
		n.of.begin(func() { n.probe(minProbeWait) })
	}
}

// probe asks a node again and again until it answers.
func (n *node) probe(wait time.Duration) {
	for retry := (backoff.Backoff{First: wait, Last: maxProbeWait}); retry.Wait(n.of.life); {
		ctx, cancel := context.WithTimeout(n.of.life, max(time.Second, min(3*time.Duration(n.trip.Load()), 4*time.Second)))
		begun := time.Now()
		err := n.identify(ctx)
		cancel()
		if _, guarded := driver.IsNotReady(err); err == nil || guarded && n.identity.Load() != nil {
			n.trip.Store((n.trip.Load() + int64(time.Since(begun))) / 2)
			n.slow.Store(false)
			n.hung.Store(false)
			n.down.Store(false)
			return
		}
	}
}

// Hosted is implemented by nodes that can identify their server. Two databases
// of one server are two stores, but they fail as one.
type Hosted interface {
	// Server returns a text that is equal for two nodes exactly if they are on
	// the same server. It may block for a round trip. Errors are those of
	// [driver.Identifier].
	Server(ctx context.Context) (string, error)
}

// identify asks a node for its identity, and compares it with those of the
// others. A server that restarted may be another one.
func (n *node) identify(ctx context.Context) error {
	id, err := identityOf(ctx, n.d)
	if err != nil {
		return err
	}
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	n.identity.Store(&id)
	n.duplicate.Store(nil)
	for _, other := range n.of.all {
		if identity := other.identity.Load(); other != n && identity != nil && *identity == id && other.duplicate.Load() == nil {
			err := fmt.Errorf("nodes %d and %d are one and the same server: they would fail together", min(n.at, other.at)+1, max(n.at, other.at)+1)
			n.duplicate.Store(&err)
		}
	}
	return nil
}

// identityOf returns the identity of a node, which must differ between two
// nodes.
func identityOf(ctx context.Context, n driver.Driver) (string, error) {
	if h, ok := n.(Hosted); ok {
		return h.Server(ctx)
	}
	if named, ok := n.(driver.Identifier); ok {
		return named.Identity(ctx)
	}
	_, err := n.Inspect(ctx, "holdfast")
	return fmt.Sprintf("node:%p", n), err
}
