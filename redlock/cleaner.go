package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// cleaner repeats leaves that a node did not confirm at first.
//
// Under mu, only nodeSet.mu is taken.
type cleaner struct {
	mu      sync.Mutex
	refs    []pendingLeave
	running bool
}

type pendingLeave struct {
	ref   driver.Ref
	until time.Time
}

const (
	// maxPendingLeaves bounds the pending leaves; a ticket that is dropped ends
	// with its TTL.
	maxPendingLeaves = 1 << 16
	cleanBatch       = 200
	// lateJoin is the time after its TTL in which a ticket's Join may still
	// arrive.
	lateJoin = time.Minute
)

// clean makes tickets leave in the background, or with Close. It repeats the
// Leave until the node has confirmed it, or until a minute after the TTL has
// passed. A Join of a ticket may still be under way.
func (n *node) clean(refs ...driver.Ref) {
	c := &n.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		ref.JoinPending = true
		if len(c.refs) >= maxPendingLeaves {
			c.refs = c.refs[1:]
		}
		c.refs = append(c.refs, pendingLeave{ref, time.Now().Add(driver.Keep(ref.TTL) + lateJoin)})
	}
	if len(refs) > 0 && !c.running {
		c.running = n.of.begin(n.runCleaner)
	}
}

// runCleaner is the cleaner's goroutine. It ends when nothing is left to clean
// up.
func (n *node) runCleaner() {
	c := &n.cleaner
	retry := backoff.Backoff{First: minProbeWait, Last: maxProbeWait}
	wait := retry.Next()
	for {
		c.mu.Lock()
		batch := append([]pendingLeave(nil), c.refs[:min(cleanBatch, len(c.refs))]...)
		c.refs = c.refs[len(batch):]
		if len(batch) == 0 {
			c.refs, c.running = nil, false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		failed := batch
		if !n.inTime() {
			n.of.pause(wait)
		}
		if n.usable() {
			failed = n.leaveBatch(batch)
		}
		now := time.Now()
		c.mu.Lock()
		for _, s := range failed {
			if now.Before(s.until) {
				c.refs = append(c.refs, s)
			}
		}
		c.mu.Unlock()
		if n.of.life.Err() != nil {
			return // Close takes care of the rest
		}
		if len(failed) == 0 {
			retry.Reset()
			wait = retry.Next()
			continue
		}
		n.of.pause(wait)
		wait = retry.Next()
	}
}

func (n *node) leaveBatch(batch []pendingLeave) (failed []pendingLeave) {
	refs := make([]driver.Ref, len(batch))
	for i := range batch {
		refs[i] = batch[i].ref
	}
	ctx, cancel := context.WithTimeout(n.of.life, time.Second)
	defer cancel()
	begun := time.Now()
	ps, err := n.d.Leave(ctx, refs)
	n.note(time.Since(begun), err)
	for i := range batch {
		if err != nil || ps[i].Err != nil && driver.ClassOf(ps[i].Err) != driver.Refused {
			failed = append(failed, batch[i])
		}
	}
	return failed
}

// closeLimit is the time that a node has for the last Leaves, of the half second that a
// driver may take to close (Close 4).
const closeLimit = 300 * time.Millisecond

// leaveRemaining sends the unconfirmed leaves to the nodes once more, when the
// driver is closed. Some of them are of votes that were under way. A node that
// does not answer in time keeps the tickets for their TTL.
func (ns *nodeSet) leaveRemaining() {
	var wg sync.WaitGroup
	for _, n := range ns.all {
		n.cleaner.mu.Lock()
		left := n.cleaner.refs
		n.cleaner.refs = nil
		n.cleaner.mu.Unlock()
		if len(left) == 0 || !n.usable() {
			continue
		}
		wg.Go(func() {
			refs, ttl := make([]driver.Ref, len(left)), time.Duration(0)
			for i := range left {
				refs[i] = left[i].ref
				ttl = max(ttl, refs[i].TTL)
			}
			ctx, cancel := context.WithTimeout(context.Background(), min(n.limit(ttl), closeLimit))
			defer cancel()
			_, _ = n.d.Leave(ctx, refs)
		})
	}
	wg.Wait()
}
