package redlock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Watch implements [driver.Driver]: it listens to all nodes. Those that cannot
// be listened to now are asked again in the background, and are the home of no
// line until then. It returns when a majority of them is heard.
func (d *Driver) Watch(ctx context.Context, moved func(id string, p driver.Place)) error {
	if err := d.before(ctx); err != nil {
		return err
	}
	w := &watcher{ctx, moved}
	d.watch.Store(w)
	type answer struct {
		n   *node
		err error
	}
	answers := make(chan answer, len(d.nodes))
	for _, n := range d.nodes {
		if !d.begin(func() { answers <- answer{n, d.listen(ctx, n)} }) {
			return driver.ErrClosed
		}
	}
	heard, rest := 0, len(d.nodes)
	slow := time.NewTimer(d.patience())
	defer slow.Stop()
	patient := true
	var err error
	for rest > 0 && (heard < d.quorum || patient) {
		select {
		case a := <-answers:
			rest--
			if a.err == nil {
				heard++
				continue
			}
			err = a.err
			d.begin(func() { d.listenAgain(ctx, a.n) })
		case <-slow.C:
			patient = false
		case <-ctx.Done():
			return d.ended(ctx)
		case <-d.life.Done():
			return driver.ErrClosed
		}
	}
	if heard < d.quorum {
		return driver.Errorf(driver.Unavailable, "%d of %d nodes can be listened to: %w", heard, len(d.nodes), err)
	}
	if rest > 0 {
		d.begin(func() {
			for range rest {
				if a := <-answers; a.err != nil {
					d.begin(func() { d.listenAgain(ctx, a.n) })
				}
			}
		})
	}
	return nil
}

// listen subscribes to one node.
func (d *Driver) listen(ctx context.Context, n *node) error {
	if n.watched.Load() {
		return nil
	}
	both, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.life, cancel)
	err := n.d.Watch(both, func(id string, p driver.Place) { d.moved(n, id, p) })
	if err != nil {
		stop()
		cancel()
		return err
	}
	n.watched.Store(true)
	context.AfterFunc(both, func() {
		stop()
		cancel()
		n.watched.Store(false)
	})
	return nil
}

// listenAgain subscribes to a node that could not be heard.
func (d *Driver) listenAgain(ctx context.Context, n *node) {
	for wait := leastProbe; ; wait = min(2*wait, mostProbe) {
		select {
		case <-ctx.Done():
			return
		case <-d.life.Done():
			return
		case <-time.After(wait):
		}
		if n.usable() && d.listen(ctx, n) == nil {
			d.tell("", driver.Place{})
			return
		}
	}
}

// moved hears what a node says.
func (d *Driver) moved(n *node, id string, p driver.Place) {
	if id == "" {
		d.tell("", driver.Place{})
		return
	}
	e := d.find(base(id))
	if e == nil {
		return
	}
	e.mu.Lock()
	v := &e.votes[n.at]
	if v.t == nil || v.t.ID != id || e.left {
		e.mu.Unlock()
		return
	}
	gone := false
	switch p.State {
	case driver.Held:
		v.token = p.Token
		if v.busy {
			v.pushed = true
		} else if v.state == driver.Waiting {
			v.state = driver.Held
		}
		if n.at == e.home && e.stage == inLine && !v.busy {
			d.chase(e)
		}
	case driver.Gone:
		v.state = driver.Gone
		gone = d.lost(e, n.at)
	}
	e.signal()
	if gone {
		d.finish(e)
	}
	e.mu.Unlock()
	if gone {
		d.tell(e.t.ID, driver.Place{State: driver.Gone})
	}
}

// lost says whether an entry is Gone now that one of its votes is.
func (d *Driver) lost(e *entry, at int) bool {
	switch e.stage {
	case inLine:
		return at == e.home
	case granted:
		possible := 0
		for i := range e.votes {
			if v := &e.votes[i]; v.busy || v.t != nil && v.state == driver.Held {
				possible++
			}
		}
		return possible < d.quorum
	}
	return false
}

// chase goes for the majority with an entry whose turn at home has come, until
// it has it or is there no more, on a goroutine that ends with that. The lock
// is held.
func (d *Driver) chase(e *entry) {
	if e.chasing {
		return
	}
	e.chasing = d.begin(func() {
		for d.tryOnce(e) {
			e.mu.Lock()
			wait := e.backOff()
			e.mu.Unlock()
			d.pause(wait)
		}
	})
}

// tryOnce is one try of a chase; false when it is over.
func (d *Driver) tryOnce(e *entry) (more bool) {
	if d.take(d.life, e) != nil {
		return false
	}
	defer e.release()
	e.mu.Lock()
	told := false
	now := time.Now()
	if e.stage == inLine && e.home >= 0 && e.votes[e.home].holds(now) {
		ctx, cancel := context.WithTimeout(d.life, 2*d.limit(e.t.TTL))
		p, err := d.pursue(ctx, e, true, now)
		cancel()
		told = err == nil && p.State == driver.Held
		more = e.stage == inLine && e.home >= 0 && e.votes[e.home].holds(time.Now()) && d.life.Err() == nil
	}
	lost := e.stage == inLine && !more // it stands nowhere, or elsewhere: the core asks
	e.chasing = more
	token := e.token
	e.mu.Unlock()
	switch {
	case told:
		d.tell(e.t.ID, driver.Place{State: driver.Held, Token: token})
	case lost:
		d.tell("", driver.Place{})
	}
	return more
}

// backOff is how long to wait before the next try for the majority: longer
// after each, and by chance, so that two do not go on meeting. The lock is held.
func (e *entry) backOff() time.Duration {
	most := min(2*time.Millisecond<<min(e.fails, 6), e.t.TTL/8)
	return most/4 + rand.N(most)
}
