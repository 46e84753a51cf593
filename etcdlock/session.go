package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A session is a lease and the places that live by it. There is one for each
// TTL that the client uses, and one for each place of a named owner, which
// other processes of that owner keep alive too.
//
// The lease is asked for a grace longer than the TTL, in whole seconds. A
// place is promised its TTL from the moment it is asked about: so a keep-alive
// must have been sent, and was answered, no longer ago than the difference,
// and one is sent along with the request when it was not.
type session struct {
	d       *Driver
	ttl     time.Duration
	id      int64
	hex     string
	granted time.Duration
	owned   bool // by a named owner: other processes keep it alive too

	// All below is guarded by Driver.mu.
	sent   time.Time     // when the last keep-alive that was answered was sent
	over   bool          // the server has said so
	beat   chan struct{} // closed at the next answer; nil when nobody waits
	asked  bool          // a keep-alive is on its way
	lines  map[string]*place
	places map[*place]struct{}
	used   time.Time // when it last had a place
	wake   *watch
}

// errOver is the end of a session that the server has told.
var errOver = errors.New("the lease is over")

// leaseFor is what the server is asked for: whole seconds, and a grace.
func leaseFor(ttl time.Duration) time.Duration {
	return (driver.Keep(ttl) + time.Second - 1).Truncate(time.Second)
}

// since is how long ago t was, by the clock that says more: the monotonic one
// stands still while the machine sleeps, the wall clock may be set back. What
// is taken for too old is only asked for once more.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// fresh says whether a promise of the whole TTL can be made now.
func (s *session) fresh() bool { return since(s.sent) <= (s.granted-s.ttl)/2 }

// opening is a session that the server is asked for.
type opening struct {
	done chan struct{}
	err  error // after done
}

// session returns the session of a TTL, and opens it when there is none. The
// opening goes on when the caller gives up: the next one finds it.
func (d *Driver) session(ctx context.Context, ttl time.Duration) (*session, error) {
	d.mu.Lock()
	if s := d.sessions[ttl]; s != nil && !s.over {
		d.mu.Unlock()
		return s, nil
	}
	if d.closed {
		d.mu.Unlock()
		return nil, driver.ErrClosed
	}
	op := d.opening[ttl]
	if op == nil {
		op = &opening{done: make(chan struct{})}
		d.opening[ttl] = op
		d.busy.Go(func() { d.open(op, ttl) })
	}
	d.mu.Unlock()
	select {
	case <-op.done:
	case <-ctx.Done():
		return nil, &driver.Error{Class: driver.Unavailable, Err: d.refused(context.Cause(ctx))}
	}
	if op.err != nil {
		return nil, unsent(op.err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[ttl]; s != nil {
		return s, nil
	}
	return nil, &driver.Error{Class: driver.NotDone, Err: errOver}
}

// openLimit bounds the opening of a session, which nobody may be waiting for
// any more.
const openLimit = 2 * time.Second

func (d *Driver) open(op *opening, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(d.life, openLimit)
	defer cancel()
	s, err := d.openSession(ctx, ttl, false)
	d.mu.Lock()
	op.err = err
	delete(d.opening, ttl)
	if err == nil {
		d.sessions[ttl] = s
	}
	d.mu.Unlock()
	close(op.done)
}

// refused adds to an error what the server last said against a watch.
func (d *Driver) refused(err error) error {
	if why := d.watcher.why(); why != "" {
		return fmt.Errorf("the server refuses a watch: %s: %w", why, err)
	}
	return err
}

// openSession takes a lease. A session of the client's own gets its wake key
// too: that the key is deleted is how the client hears at once that the lease
// is over (F81).
func (d *Driver) openSession(ctx context.Context, ttl time.Duration, owned bool) (*session, error) {
	sent := time.Now()
	resp, err := d.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(leaseFor(ttl) / time.Second)})
	if err != nil {
		return nil, classed(ctx, err)
	}
	s := d.newSession(ttl, resp.ID, time.Duration(resp.TTL)*time.Second, owned)
	s.sent = sent
	if !owned {
		_, err = d.kv.Put(ctx, &pb.PutRequest{Key: []byte(d.keys.wake(s.hex)), Lease: s.id})
		err = classed(ctx, err)
	}
	if err == nil {
		err = d.listen(ctx, s)
	}
	if err != nil {
		d.watcher.remove(s.wake)
		d.behind(func(ctx context.Context) { d.revoke(ctx, s.id) })
		return nil, err
	}
	d.mu.Lock()
	d.leased[s.id] = s
	d.mu.Unlock()
	d.minder.kick()
	return s, nil
}

func (d *Driver) newSession(ttl time.Duration, id int64, granted time.Duration, owned bool) *session {
	return &session{d: d, ttl: ttl, id: id, hex: hex(id), granted: granted, owned: owned, used: time.Now(),
		lines: make(map[string]*place), places: make(map[*place]struct{})}
}

// listen watches the wake key of a session, if pushes are wanted, and returns
// when the server has confirmed it: whoever joins afterwards misses nothing.
func (d *Driver) listen(ctx context.Context, s *session) error {
	d.mu.Lock()
	if d.moved == nil {
		d.mu.Unlock()
		return nil
	}
	if s.wake == nil {
		s.wake = d.watcher.add(d.keys.wake(s.hex), 0, func(e event) { d.woken(s, e) })
	}
	w := s.wake
	d.mu.Unlock()
	select {
	case <-w.on:
		return nil
	case <-ctx.Done():
		return &driver.Error{Class: driver.Unavailable, Err: d.refused(context.Cause(ctx))}
	case <-d.life.Done():
		return driver.ErrClosed
	}
}

// promise returns how long the server surely keeps the session's places, for a
// request that began at start, up to the TTL. It waits for a keep-alive where
// the last one is too old for the whole TTL; one that was sent after start never
// is, however long its answer takes.
func (d *Driver) promise(ctx context.Context, s *session, start time.Time) (time.Duration, error) {
	for {
		d.mu.Lock()
		if s.over {
			d.mu.Unlock()
			return 0, errOver
		}
		if s.fresh() || !s.sent.Before(start) {
			promise := min(s.ttl, s.granted-start.Sub(s.sent))
			d.mu.Unlock()
			return promise, nil
		}
		answered := d.askBeat(s)
		d.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return 0, &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
		case <-d.life.Done():
			return 0, driver.ErrClosed
		}
	}
}

// askBeat asks for a keep-alive, if none is on its way, and returns what is
// closed when it was answered. The caller has Driver.mu.
func (d *Driver) askBeat(s *session) <-chan struct{} {
	if s.beat == nil {
		s.beat = make(chan struct{})
	}
	if !s.asked {
		s.asked = true
		d.heart.send(s)
	}
	return s.beat
}

// beaten takes the answer to the keep-alive sent at that time.
func (d *Driver) beaten(s *session, sent time.Time, ttl int64) {
	d.mu.Lock()
	s.asked = false
	if ttl > 0 {
		s.granted = time.Duration(ttl) * time.Second
		if sent.After(s.sent) {
			s.sent = sent
		}
	}
	if s.beat != nil {
		close(s.beat)
		s.beat = nil
	}
	d.mu.Unlock()
	if ttl <= 0 {
		d.lost(s)
	}
}

// unbeaten: the keep-alive was sent in vain, and may be sent again.
func (d *Driver) unbeaten(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.asked = false
	if s.beat != nil && !s.over {
		s.asked = true
		d.heart.send(s)
	}
}

// lost ends a session that the server says is over: with the lease, it has
// deleted every place.
func (d *Driver) lost(s *session) {
	d.mu.Lock()
	if s.over {
		d.mu.Unlock()
		return
	}
	s.over = true
	if s.beat != nil {
		close(s.beat)
		s.beat = nil
	}
	ps := make([]*place, 0, len(s.places))
	for p := range s.places {
		// One whose Join is not answered yet joins again in another session.
		if p.ownRev() != 0 {
			ps = append(ps, p)
		}
	}
	d.dropSession(s)
	d.mu.Unlock()
	for _, p := range ps {
		d.goneNow(p)
	}
}

// dropSession forgets a session. The caller has Driver.mu.
func (d *Driver) dropSession(s *session) {
	delete(d.leased, s.id)
	if d.sessions[s.ttl] == s {
		delete(d.sessions, s.ttl)
	}
	d.watcher.remove(s.wake)
}

// revoke gives a lease back. Should it fail, the lease ends by itself.
func (d *Driver) revoke(ctx context.Context, id int64) {
	_, _ = d.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
}

// woken takes an event of a session's wake key.
func (d *Driver) woken(s *session, e event) {
	switch {
	case e.gap:
		// The stream was broken and flows again; the minder asks for all.
	case e.deleted:
		// With the lease, or by somebody's hand: the lease knows.
		d.mu.Lock()
		if !s.over && !s.owned {
			s.sent = time.Time{}
			d.askBeat(s)
		}
		d.mu.Unlock()
	default:
		for line := range splitLines(e.value) {
			if m, err := decodeMessage(line); err == nil {
				m.at = e.rev
				d.told(s, m)
			}
		}
	}
}
