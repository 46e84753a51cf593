package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/backoff"
)

// Watch implements [driver.Driver]: it watches all nodes. Nodes that cannot be
// watched now are asked again in the background, and are the home of waiters
// only if no other node can be. Watch returns once it watches a majority.
func (d *Driver) Watch(ctx context.Context, notify func(id string, p driver.Status)) error {
	if err := d.nodes.checkOpen(ctx); err != nil {
		return err
	}
	d.watch.Store(&watcher{ctx, notify})
	answers := make(chan error, len(d.nodes.all))
	for _, n := range d.nodes.all {
		if !d.nodes.begin(func() {
			err := d.watchNode(ctx, n)
			if answers <- err; err != nil {
				d.watchNodeAgain(ctx, n)
			}
		}) {
			return driver.ErrClosed
		}
	}
	watched, rest := 0, len(d.nodes.all)
	slow := time.NewTimer(d.nodes.nodeWait())
	defer slow.Stop()
	mayWait := true
	var errs []error
	for rest > 0 && (watched < d.nodes.quorum || mayWait) {
		select {
		case err := <-answers:
			if rest--; err == nil {
				watched++
				continue
			}
			errs = append(errs, err)
		case <-slow.C:
			mayWait = false
		case <-ctx.Done():
			return d.nodes.ended(ctx)
		case <-d.nodes.life.Done():
			return driver.ErrClosed
		}
	}
	if watched < d.nodes.quorum {
		return d.nodes.unavailable(watched, errs, "%d of %d nodes can be listened to: %w", watched, len(d.nodes.all), errors.Join(errs...))
	}
	return nil
}

// watchNode subscribes to one node.
func (d *Driver) watchNode(ctx context.Context, n *node) error {
	if n.watched.Load() {
		return nil
	}
	both, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(d.nodes.life, cancel)
	err := n.d.Watch(both, func(id string, p driver.Status) { d.onPush(n, id, p) })
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

// watchNodeAgain subscribes to a node to which watchNode could not, and reports
// the gap.
func (d *Driver) watchNodeAgain(ctx context.Context, n *node) {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.nodes.life, cancel)()
	for retry := (backoff.Backoff{First: minProbeWait, Last: maxProbeWait}); retry.Wait(both); {
		if n.usable() && d.watchNode(ctx, n) == nil {
			d.notify("", driver.Status{})
			return
		}
	}
}

// onPush handles a push of a node.
func (d *Driver) onPush(n *node, id string, p driver.Status) {
	if id == "" {
		d.notify("", driver.Status{})
		return
	}
	e := d.find(baseID(id))
	if e == nil {
		return
	}
	e.mu.Lock()
	v := &e.votes[n.at]
	if v.t == nil || v.t.ID != id || e.MustLeave {
		e.mu.Unlock()
		return
	}
	gone := false
	switch p.State {
	case driver.Held:
		if v.busy || v.State == driver.Waiting {
			v.Push(p)
		}
		if n.at == e.home && e.State == driver.Waiting && !v.busy {
			e.seekInBackgroundLocked()
		}
	case driver.Gone:
		v.Push(p)
		gone = e.lostLocked(n.at)
	}
	e.signalLocked()
	if gone {
		e.endLocked()
	}
	e.mu.Unlock()
	if gone {
		d.notify(e.t.ID, driver.Status{State: driver.Gone})
	}
}

// lostLocked reports whether an entry is Gone now that one of its votes is.
func (e *entry) lostLocked(at int) bool {
	switch e.State {
	case driver.Waiting:
		return at == e.home
	case driver.Held:
		possible := 0
		for i := range e.votes {
			if v := &e.votes[i]; v.busy || v.t != nil && v.State == driver.Held {
				possible++
			}
		}
		return possible < e.nodes.quorum
	}
	return false
}

// seekInBackgroundLocked tries to win the majority for an entry whose turn at
// home has come, on a goroutine of its own. The goroutine ends when the
// majority is won, or the entry no longer holds at home.
func (e *entry) seekInBackgroundLocked() {
	if e.seeking {
		return
	}
	e.seeking = e.nodes.begin(func() {
		for e.seekOnce() {
			e.mu.Lock()
			wait := e.backOffLocked()
			e.mu.Unlock()
			e.nodes.pause(wait)
		}
	})
}

// seekOnce makes one try for the majority. It returns false when no further try
// is needed.
func (e *entry) seekOnce() (more bool) {
	if e.takeTurn(e.nodes.life) != nil {
		return false
	}
	defer e.releaseTurn()
	e.mu.Lock()
	won := false
	now := time.Now()
	if e.State == driver.Waiting && e.home >= 0 && e.votes[e.home].holds(now) {
		ctx, cancel := context.WithTimeout(e.nodes.life, 2*e.nodes.all[e.home].limit(e.t.TTL))
		p, err := seek{e, true, now}.runLocked(ctx)
		cancel()
		won = err == nil && p.State == driver.Held
		more = e.State == driver.Waiting && e.home >= 0 && e.votes[e.home].holds(time.Now()) && e.nodes.life.Err() == nil
	}
	lost := e.State == driver.Waiting && !more // it has no place, or one elsewhere: the core renews it
	e.seeking = more
	token := e.Token
	e.mu.Unlock()
	switch {
	case won:
		e.d.notify(e.t.ID, driver.Status{State: driver.Held, Token: token})
	case lost:
		e.d.notify("", driver.Status{})
	}
	return more
}

// backOffLocked returns the time to wait before the next try for the majority.
// The time grows with each try and is partly random, so that two contenders do
// not keep meeting.
func (e *entry) backOffLocked() time.Duration {
	grow := backoff.Backoff{First: 2 * time.Millisecond, Last: min(128*time.Millisecond, e.t.TTL/8)}
	most := grow.Pause(e.fails)
	return most/4 + rand.N(most)
}
