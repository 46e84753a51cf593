package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// request is a request to a node that is under way. Its methods work on nil.
//
// Under mu, only the mutex of node.givenUp is taken.
type request struct {
	n      *node
	cancel context.CancelFunc

	mu      sync.Mutex
	over    bool
	givenUp bool
	dropped bool // nothing follows from its error for the node's health
	turn    int  // for unanswered.Requests.End
}

// ask runs a request to a node on a goroutine of its own, and then done. It
// returns nil, and calls neither, when the driver is closed.
func (n *node) ask(limit time.Duration, f func(ctx context.Context) error, done func(err error)) *request {
	ctx, cancel := context.WithTimeout(n.of.life, limit)
	r := &request{n: n, cancel: cancel}
	if !n.of.begin(func() {
		defer cancel()
		begun := time.Now()
		err := f(ctx)
		if took := time.Since(begun); !r.end() {
			n.note(took, err)
		}
		done(err)
	}) {
		cancel()
		return nil
	}
	return r
}

// giveUp notes that nobody waits for the answer any more. The request goes on,
// because its answer may still be of use, unless the node is down and has many
// such requests already.
func (r *request) giveUp() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.givenUp {
		return
	}
	r.dropped = r.n.down.Load() && r.n.givenUp.Full()
	if r.dropped {
		r.cancel()
		return
	}
	r.givenUp, r.turn = true, r.n.givenUp.GiveUp()
}

// end notes that the request has ended, and reports whether it was dropped.
func (r *request) end() (dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.givenUp {
		r.n.givenUp.End(r.turn)
	}
	return r.dropped
}

// nodeBatch is one node's share of a request about many entries: the tickets of
// their votes there.
type nodeBatch struct {
	entries []*entry
	refs    []driver.Ref
}

// askNodes sends each node its batch; the longest TTL of the tickets is ttl. It
// returns once the nodes that are in time have answered and enough returns
// true, and at the latest when all nodes have answered.
func (ns *nodeSet) askNodes(ctx context.Context, batches []nodeBatch, ttl time.Duration, f func(context.Context, *node, nodeBatch) error, enough func() bool) {
	done := make(chan int, len(ns.all))
	need := make([]bool, len(ns.all))
	sent := make([]*request, len(ns.all))
	defer func() {
		for _, r := range sent {
			r.giveUp()
		}
	}()
	waits, rest := 0, 0
	for i, p := range batches {
		if len(p.refs) == 0 {
			continue
		}
		n := ns.all[i]
		if sent[i] = n.ask(n.limit(ttl), func(ctx context.Context) error { return f(ctx, n, p) }, func(error) { done <- i }); sent[i] != nil {
			if rest++; n.inTime() {
				need[i] = true
				waits++
			}
		}
	}
	slow := time.NewTimer(ns.nodeWait())
	defer slow.Stop()
	for rest > 0 {
		select {
		case i := <-done:
			if rest--; need[i] {
				need[i] = false
				waits--
			}
		case <-slow.C:
			for i := range need {
				if need[i] {
					ns.all[i].slow.Store(true)
				}
			}
			waits = 0
		case <-ctx.Done():
			return
		case <-ns.life.Done():
			return
		}
		if waits == 0 && enough() {
			return
		}
	}
}

// inspectWait is the time that a view waits for a node that is not known to be
// down.
const inspectWait = time.Second

// each asks all nodes at once and returns the answers of those that gave one,
// by node. It waits for all nodes that are not known to be down, and for a
// majority; without a majority it returns an error.
func each[A any](ctx context.Context, ns *nodeSet, f func(ctx context.Context, n *node) (A, error)) (map[int]A, error) {
	if err := ns.checkOpen(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		at  int
		a   A
		err error
	}
	answers := make(chan answer, len(ns.all))
	rest, waits := 0, 0
	need := make([]bool, len(ns.all))
	for i, n := range ns.all {
		if !ns.begin(func() {
			both, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			defer context.AfterFunc(ns.life, cancel)()
			a, err := f(both, n)
			answers <- answer{i, a, err}
		}) {
			return nil, driver.ErrClosed
		}
		rest++
		if need[i] = n.usable(); need[i] {
			waits++
		}
	}
	slow := time.NewTimer(inspectWait)
	defer slow.Stop()
	got := make(map[int]A)
	var errs []error
	for rest > 0 && (waits > 0 || len(got) < ns.quorum) {
		select {
		case a := <-answers:
			rest--
			if need[a.at] {
				waits--
			}
			if a.err != nil {
				errs = append(errs, fmt.Errorf("node %d: %w", a.at+1, a.err))
			} else {
				got[a.at] = a.a
			}
		case <-slow.C:
			waits = 0
		case <-ctx.Done():
			return nil, ns.ended(ctx)
		case <-ns.life.Done():
			return nil, ns.ended(ctx)
		}
	}
	if len(got) < ns.quorum {
		if ctx.Err() != nil {
			return nil, ns.ended(ctx)
		}
		for _, err := range errs {
			if driver.ClassOf(err) == driver.Unknown && !ns.refused(errs) {
				return nil, driver.Errorf(driver.Unknown, "%d of %d nodes answer: %w", len(got), len(ns.all), errors.Join(errs...))
			}
		}
		return nil, ns.unavailable(len(got), errs, "%d of %d nodes answer: %w", len(got), len(ns.all), errors.Join(errs...))
	}
	return got, nil
}

// short returns the error of a request that too few nodes have answered: did
// says what n of them did, and some may not have answered at all. If a majority
// refuses, the class is Refused.
func (ns *nodeSet) short(n int, did string, errs []error) error {
	if len(errs) == 0 {
		return driver.Errorf(driver.Unknown, "%d of %d nodes %s, others have not answered", n, len(ns.all), did)
	}
	class := driver.Unknown
	if ns.refused(errs) {
		class = driver.Refused
	}
	return driver.Errorf(class, "%d of %d nodes %s: %w", n, len(ns.all), did, errors.Join(errs...))
}

// refused reports whether errs are from a majority of nodes that refuse.
func (ns *nodeSet) refused(errs []error) bool {
	n := 0
	for _, err := range errs {
		if driver.ClassOf(err) == driver.Refused {
			n++
		}
	}
	return n >= ns.quorum
}

// unavailable returns the error of a request in which able nodes could take
// part; errs are the errors of the others. The error is a temporary one
// (driver.NotReady) if a majority can take part once the nodes are ready that
// are not ready yet. If a majority refuses, the class is Refused.
func (ns *nodeSet) unavailable(able int, errs []error, format string, args ...any) error {
	var after []time.Duration
	for _, err := range errs {
		if wait, ok := driver.IsNotReady(err); ok {
			after = append(after, wait)
		}
	}
	if ns.refused(errs) {
		return driver.Errorf(driver.Refused, format, args...)
	}
	need := ns.quorum - able
	if need < 1 || len(after) < need {
		return driver.Errorf(driver.Unavailable, format, args...)
	}
	slices.Sort(after)
	return driver.NotReady(after[need-1], format, args...)
}
