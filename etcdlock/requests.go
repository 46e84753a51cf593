package etcdlock

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// requests are the rooms of a driver that a request about tickets goes through. A
// goroutine that takes several of their mutexes takes them in the order places.mu,
// sessions.mu, and then one of keepAlive.mu, watcher.mu and lifetime.mu. No mutex is
// held while a request is under way, or while the core is notified.
type requests struct {
	*cluster
	life       *lifetime
	pushes     pushes
	watcher    watcher
	sessions   sessions
	places     places
	tombstones tombstones
}

// answer adds the promise of the lease to the status of a place.
func (r *requests) answer(ctx context.Context, p *place, a driver.Status, start time.Time) (driver.Status, error) {
	if a.State == driver.Gone {
		return a, nil
	}
	now := r.places.snapshot(p)
	lease, err := p.sess.promise(ctx, start)
	if owner := now.owner; err == nil && owner != nil {
		var l time.Duration
		l, err = owner.promise(ctx, start)
		lease = min(lease, max(l, 0))
	}
	if err == errOver {
		r.places.onGone(p)
		return driver.Status{State: driver.Gone}, nil
	}
	if err != nil {
		return driver.Status{}, err
	}
	if !r.places.onAnswer(p) {
		return r.overdue(ctx, p)
	}
	a.Lease = min(lease, p.t.TTL)
	if a.State == driver.Held {
		a.Token = now.held().Token
		a.Ahead, a.Recheck = 0, 0
	} else {
		a.Recheck = p.sess.recheck(a.Recheck)
	}
	return a, nil
}

// overdue answers for a place whose time is over. Gone is the store's word, so
// overdue removes the place there first. Without an answer the state is
// unknown, and overdue returns an error.
func (r *requests) overdue(ctx context.Context, p *place) (driver.Status, error) {
	switch _, phase := r.places.find(p.t); phase {
	case gone, leaving:
	default:
		if _, err := r.leave(ctx, driver.Ref{Ticket: p.t}); err != nil {
			return driver.Status{}, err
		}
	}
	return driver.Status{State: driver.Gone}, nil
}

// errLeaving is the answer about a ticket that leaves: until the store has confirmed that,
// its place may be there.
var errLeaving = driver.Errorf(driver.NotDone, "the store has not confirmed yet that the ticket has left")

// failed returns the first error if every status has one: then the whole call
// has failed.
func failed(answers []driver.Status) error {
	for _, a := range answers {
		if a.Err == nil {
			return nil
		}
	}
	if len(answers) == 0 {
		return nil
	}
	return answers[0].Err
}

// inParallel calls f for the numbers below n, and for that many of them at once.
func inParallel(n, most int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	room := make(chan struct{}, most)
	var wg sync.WaitGroup
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(i)
		})
	}
	wg.Wait()
}
