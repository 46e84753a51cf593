package redlock

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// nodeSet is the set of nodes of a driver, with the goroutines that send
// requests to them. No mutex is taken under mu.
type nodeSet struct {
	all    []*node
	quorum int
	push   bool            // the nodes push grants
	life   context.Context // ends with the driver
	end    context.CancelFunc

	mu      sync.Mutex // taken last, see entry
	closed  bool
	running sync.WaitGroup
}

// begin runs f on a goroutine that Close waits for. It returns false, and does
// not run f, once the driver is closed.
func (ns *nodeSet) begin(f func()) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if ns.closed {
		return false
	}
	ns.running.Go(f)
	return true
}

// checkOpen returns the reason why nothing can be sent, or nil.
func (ns *nodeSet) checkOpen(ctx context.Context) error {
	if ns.life.Err() != nil {
		return driver.ErrClosed
	}
	return driver.Before(ctx)
}

// ended returns the error of a call that ended with its context or with the
// driver.
func (ns *nodeSet) ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return &driver.Error{Class: driver.Unknown, Err: driver.ErrClosed}
	}
	return &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
}

// pause waits for a time, or until the driver ends.
func (ns *nodeSet) pause(wait time.Duration) {
	select {
	case <-ns.life.Done():
	case <-time.After(wait):
	}
}

// close ends what runs, and waits for it. It returns false if that has been done
// before.
func (ns *nodeSet) close() bool {
	ns.mu.Lock()
	first := !ns.closed
	ns.closed = true
	ns.mu.Unlock()
	if first {
		ns.end()
		ns.running.Wait()
	}
	return first
}

// nodeWait returns the time to wait for nodes whose answers are outstanding.
func (ns *nodeSet) nodeWait() time.Duration {
	longest := time.Duration(0)
	for _, n := range ns.all {
		if n.inTime() {
			longest = max(longest, time.Duration(n.trip.Load()))
		}
	}
	return min(max(4*longest, minNodeWait), maxNodeWait)
}

// majority reports whether is holds for a majority of nodes.
func (ns *nodeSet) majority(is func(n *node) bool) bool {
	count := 0
	for _, n := range ns.all {
		if is(n) {
			count++
		}
	}
	return count >= ns.quorum
}

// homes returns the nodes in the order in which they are a name's home.
func (ns *nodeSet) homes(name string) []int {
	h := fnv.New32a()
	h.Write([]byte(name))
	first := int(h.Sum32() % uint32(len(ns.all)))
	order := make([]int, len(ns.all))
	for i := range order {
		order[i] = (first + i) % len(ns.all)
	}
	return order
}

// homeOf returns the first node in the name's order that can be its home and
// that except does not exclude, or -1. With wait, a node whose pushes flow goes
// before one without.
func (ns *nodeSet) homeOf(name string, wait bool, except func(i int) bool) int {
	noPush := -1 // the first node without pushes, where renewals find out the grants
	for _, i := range ns.homes(name) {
		n := ns.all[i]
		if !n.canBeHome() || except(i) {
			continue
		}
		if !wait || n.watched.Load() || !ns.push {
			return i
		}
		if noPush < 0 {
			noPush = i
		}
	}
	return noPush
}

// minorityWait is the time that New waits for the other nodes when a majority
// has answered.
const minorityWait = 500 * time.Millisecond

// greet asks all nodes for their identities. Probes go on asking the silent
// ones.
func (ns *nodeSet) greet(limit time.Duration) error {
	errs := make([]error, len(ns.all))
	type answer struct {
		at  int
		err error
	}
	done := make(chan answer, len(ns.all))
	ctx, cancel := context.WithTimeout(ns.life, limit)
	defer cancel()
	for i, n := range ns.all {
		errs[i] = driver.Errorf(driver.Unavailable, "no answer")
		ns.begin(func() { done <- answer{i, n.identify(ctx)} })
	}
	var enough <-chan time.Time
	for rest, answered := len(ns.all), 0; rest > 0; rest-- {
		select {
		case a := <-done:
			if errs[a.at] = a.err; a.err == nil {
				answered++
			}
			if answered == ns.quorum {
				enough = time.After(minorityWait)
			}
		case <-enough:
			rest = 0
		}
	}
	alive := 0
	var failed []error
	for i, n := range ns.all {
		switch duplicate := n.duplicate.Load(); {
		case duplicate != nil:
			return *duplicate
		case errs[i] == nil:
			alive++
		case driver.ClassOf(errs[i]) == driver.Refused:
			return fmt.Errorf("node %d: %w", i+1, errs[i])
		default:
			failed = append(failed, fmt.Errorf("node %d: %w", i+1, errs[i]))
		}
	}
	if alive < ns.quorum {
		return ns.unavailable(alive, failed, "%d of %d nodes answer: %w", alive, len(ns.all), errors.Join(failed...))
	}
	for i, n := range ns.all {
		if errs[i] != nil {
			n.suspect()
		}
	}
	return nil
}
