package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// vote asks a node for its vote. The entry's lock is held, and the node owes no
// answer. Of several at the home, wait stands in line. An old vote is replaced
// in the same request.
func (d *Driver) vote(e *entry, at int, wait bool, ttl time.Duration, floor uint64, old *driver.Ticket) {
	n, v := d.nodes[at], &e.votes[at]
	t := e.ticket(ttl, floor)
	t.Replaces = old
	*v = vote{t: t, old: old, busy: true}
	sent, mark := time.Now(), d.marks.Add(1)
	if ttl < e.t.TTL {
		mark = 0
	}
	if !d.ask(n, d.limit(e.t.TTL), func(ctx context.Context) (err error) {
		p, err := n.d.Join(ctx, t, wait)
		e.mu.Lock()
		defer e.mu.Unlock()
		d.voted(e, n, v, t, p, err, sent, mark)
		return err
	}, func(error) {}) {
		v.busy, v.err = false, driver.ErrClosed
	}
}

// voted takes the answer to a Join of t. The lock is held.
func (d *Driver) voted(e *entry, n *node, v *vote, t *driver.Ticket, p driver.Place, err error, sent time.Time, mark uint64) {
	defer e.signal()
	if v.t != t {
		return // it was given back meanwhile, as one whose Join is under way
	}
	v.busy, v.err = false, err
	switch {
	case err == nil:
		if v.pushed && p.State == driver.Waiting {
			p.State, p.Token = driver.Held, v.token
		}
		v.state, v.token, v.place, v.old = p.State, p.Token, p, nil
		v.until, v.mark = sent.Add(p.Lease), mark
		if p.State == driver.Held {
			d.tokens.saw(n.at, p.Token, t.Floor, time.Now())
		}
		// From now on it is renewed for the ticket's own TTL, whatever it was
		// taken for.
		full := *t
		full.TTL, full.Replaces = e.t.TTL, nil
		v.t = &full
	case driver.ClassOf(err) == driver.Unknown:
		v.unsure = true
	default:
		v.t = nil
		d.giveBack(e, n.at) // what it was to replace, which may have left or not
		v.err = err
	}
	// The home's place is kept until there is a majority; so is what is unsure.
	if e.left || v.state == driver.Waiting && n.at != e.home || e.stage == granted && (v.state == driver.Waiting || v.unsure) {
		d.giveBack(e, n.at)
	}
}

// giveBack lets a node's ticket leave, until that is confirmed. The lock is held.
func (d *Driver) giveBack(e *entry, at int) {
	n, v := d.nodes[at], &e.votes[at]
	refs := v.refs(false)
	*v = vote{}
	if len(refs) == 0 {
		return
	}
	e.back++
	if !d.ask(n, d.limit(e.t.TTL), func(ctx context.Context) error {
		ps, err := n.d.Leave(ctx, refs)
		for i := range refs {
			if err != nil || ps[i].Err != nil {
				d.clean(n, refs[i])
			}
			if err == nil && ps[i].Err != nil {
				err = ps[i].Err
			}
		}
		return err
	}, func(error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.back--
		e.signal()
	}) {
		e.back--
	}
}

// refs returns what has to leave for the vote to be given back.
func (v *vote) refs(unsure bool) []driver.Ref {
	var refs []driver.Ref
	if v.t != nil && (v.busy || v.unsure || v.state == driver.Held || v.state == driver.Waiting) {
		state := driver.Held
		if v.state == driver.Waiting {
			state = driver.Waiting
		}
		refs = append(refs, driver.Ref{Ticket: v.t, State: state, Unsure: unsure || v.busy || v.unsure})
	}
	if v.old != nil {
		refs = append(refs, driver.Ref{Ticket: v.old, State: driver.Held})
	}
	return refs
}

// giveAllBack gives back all votes but that of keep, which may be -1.
func (d *Driver) giveAllBack(e *entry, keep int) {
	for i := range e.votes {
		if i != keep {
			d.giveBack(e, i)
		}
	}
}

// returned waits until what was given back has arrived at the nodes that answer
// promptly. Those who look then find nothing. The lock is not held.
func (d *Driver) returned(ctx context.Context, e *entry) {
	timer := time.NewTimer(d.patience())
	defer timer.Stop()
	for {
		e.mu.Lock()
		back, changed := e.back, e.changed
		e.mu.Unlock()
		if back == 0 {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		case <-d.life.Done():
			return
		}
	}
}

// cleaner lets tickets leave a node that did not confirm it at first.
type cleaner struct {
	mu      sync.Mutex
	refs    []straggler
	running bool
}

type straggler struct {
	ref   driver.Ref
	until time.Time
}

const (
	// stragglers are bounded: what is dropped ends with its TTL.
	stragglersMost = 1 << 16
	cleanBatch     = 200
	// late is how long after its TTL a ticket may still be about to come.
	late = time.Minute
)

// clean lets a ticket leave in the background, again and again until the node
// has confirmed it, or a minute longer than its TTL. A Join of it may be under
// way still.
func (d *Driver) clean(n *node, ref driver.Ref) {
	ref.Unsure = true
	c := &n.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.refs) >= stragglersMost {
		c.refs = c.refs[1:]
	}
	c.refs = append(c.refs, straggler{ref, time.Now().Add(driver.Keep(ref.TTL) + late)})
	if !c.running {
		c.running = d.begin(func() { d.sweep(n) })
	}
}

// sweep is the cleaner's goroutine; it ends when there is nothing left.
func (d *Driver) sweep(n *node) {
	c := &n.cleaner
	wait := leastProbe
	for {
		c.mu.Lock()
		batch := append([]straggler(nil), c.refs[:min(cleanBatch, len(c.refs))]...)
		c.refs = c.refs[len(batch):]
		if len(batch) == 0 {
			c.refs, c.running = nil, false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		failed := batch
		if !n.prompt() {
			d.pause(wait)
		}
		if n.usable() {
			failed = d.leaveBatch(n, batch)
		}
		if d.life.Err() != nil {
			return
		}
		now := time.Now()
		c.mu.Lock()
		for _, s := range failed {
			if now.Before(s.until) {
				c.refs = append(c.refs, s)
			}
		}
		c.mu.Unlock()
		if len(failed) == 0 {
			wait = leastProbe
			continue
		}
		d.pause(wait)
		wait = min(2*wait, mostProbe)
	}
}

func (d *Driver) leaveBatch(n *node, batch []straggler) (failed []straggler) {
	refs := make([]driver.Ref, len(batch))
	for i := range batch {
		refs[i] = batch[i].ref
	}
	ctx, cancel := context.WithTimeout(d.life, time.Second)
	defer cancel()
	begun := time.Now()
	ps, err := n.d.Leave(ctx, refs)
	d.note(n, time.Since(begun), err)
	for i := range batch {
		if err != nil || ps[i].Err != nil && driver.ClassOf(ps[i].Err) != driver.Refused {
			failed = append(failed, batch[i])
		}
	}
	return failed
}

// pause waits, but not beyond the driver's end.
func (d *Driver) pause(wait time.Duration) {
	select {
	case <-d.life.Done():
	case <-time.After(wait):
	}
}
