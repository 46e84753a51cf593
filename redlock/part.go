package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// part is what one node is asked of a request about many entries: the tickets
// of their votes there.
type part struct {
	entries []*entry
	refs    []driver.Ref
}

// askParts sends each node its part, of tickets whose longest TTL is ttl. It
// returns when the nodes that answer promptly have answered and enough says so,
// and at the latest when all have.
func (d *Driver) askParts(ctx context.Context, parts []part, ttl time.Duration, request func(context.Context, *node, part) error, enough func() bool) {
	done := make(chan int, len(d.nodes))
	need := make([]bool, len(d.nodes))
	waits, rest := 0, 0
	for i, p := range parts {
		if len(p.refs) == 0 {
			continue
		}
		n := d.nodes[i]
		if d.ask(n, d.limit(ttl), func(ctx context.Context) error { return request(ctx, n, p) }, func(error) { done <- i }) {
			if rest++; n.prompt() {
				need[i] = true
				waits++
			}
		}
	}
	slow := time.NewTimer(d.patience())
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
					d.nodes[i].slow.Store(true)
				}
			}
			waits = 0
		case <-ctx.Done():
			return
		case <-d.life.Done():
			return
		}
		if waits == 0 && enough() {
			return
		}
	}
}

// short is the error of a request that too few nodes have answered: n of them
// did what it says, and some may not have answered at all.
func (d *Driver) short(n int, did string, errs []error) error {
	if len(errs) == 0 {
		return driver.Errorf(driver.Unknown, "%d of %d nodes %s, others have not answered", n, len(d.nodes), did)
	}
	return driver.Errorf(driver.Unknown, "%d of %d nodes %s: %w", n, len(d.nodes), did, errors.Join(errs...))
}
