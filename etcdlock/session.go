package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// session is a lease and the places that depend on it. There is one for each
// TTL that the client uses, and one for each place of a named owner, which
// other processes of that owner keep alive, too.
//
// The driver requests a lease that is longer than the TTL by a grace, in whole
// seconds. The promise for a place is its TTL, counted from the start of the
// request. So the last answered keep-alive must have been sent no longer ago
// than the difference. Once half of that has passed, the driver sends another
// keep-alive along with the request.
type session struct {
	d       *Driver
	ttl     time.Duration
	id      int64
	hex     string
	granted time.Duration
	owned   bool // by a named owner: other processes keep it alive too

	// All below is guarded by Driver.mu.
	sent   time.Time     // when the last answered keep-alive was sent
	over   bool          // the server has said that the lease is over
	beat   chan struct{} // closed at the next answer; nil if no caller waits
	asked  bool          // a keep-alive is on its way
	since  time.Time     // when the first unanswered keep-alive was requested
	queues map[string]*place
	places map[*place]struct{}
	used   time.Time // when it last had a place
	wake   *watch
}

// errOver means that the server has reported the end of a session's lease.
var errOver = errors.New("the lease is over")

// leaseFor returns the time to request for a lease: the TTL with its grace, in
// whole seconds.
func leaseFor(ttl time.Duration) time.Duration {
	return (driver.Keep(ttl) + time.Second - 1).Truncate(time.Second)
}

// since returns the time since t, by the clock that shows more.
func since(t time.Time) time.Duration { return between(t, time.Now()) }

// between returns the time from t to now, by the clock that shows more: the
// monotonic clock stands still while the machine sleeps, and the wall clock may
// be set back. An age that is too great costs only one more keep-alive.
func between(t, now time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// fresh reports whether the last keep-alive allows a promise of the whole TTL
// for a request that began at start. The answer stays the same for as long as
// the request lasts: a batch requests all its keep-alives at once, and none
// singly later.
func (s *session) fresh(start time.Time) bool { return between(s.sent, start) <= (s.granted-s.ttl)/2 }

// opening is a session whose lease the driver is requesting.
type opening struct {
	done chan struct{}
	err  error // valid once done is closed
}

// session returns the session of a TTL, and opens one if there is none. The
// opening goes on after its caller gives up: the next caller finds it. If a
// session is over as soon as it is open, another one follows.
func (d *Driver) session(ctx context.Context, ttl time.Duration) (*session, error) {
	for {
		s, op, err := d.openOnce(ttl)
		if s != nil || err != nil {
			return s, err
		}
		select {
		case <-op.done:
		case <-ctx.Done():
			return nil, &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
		}
		if op.err != nil {
			return nil, unsent(op.err)
		}
	}
}

// openOnce returns the session of a TTL, or the opening of one.
func (d *Driver) openOnce(ttl time.Duration) (*session, *opening, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sessions[ttl]; s != nil && !s.over {
		return s, nil, nil
	}
	op := d.opening[ttl]
	if op == nil {
		op = &opening{done: make(chan struct{})}
		if !d.life.run(func() { d.open(op, ttl) }) {
			return nil, nil, driver.ErrClosed
		}
		d.opening[ttl] = op
	}
	return nil, op, nil
}

// The opening of a session ends after openTimes times the time that an answer
// takes, within these bounds, because its callers may have given up.
const (
	openTimes             = 8
	openLeast, openLatest = 2 * time.Second, 30 * time.Second
)

func (d *Driver) open(op *opening, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(d.life.ctx, d.pace.times(openTimes, openLeast, openLatest))
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

// openSession requests a lease. A session of the client's own gets its wake
// key, too: the deletion of that key tells the client at once that the lease is
// over (F81).
func (d *Driver) openSession(ctx context.Context, ttl time.Duration, owned bool) (*session, error) {
	sent := time.Now()
	resp, err := d.grant(ctx, leaseFor(ttl))
	if err != nil {
		return nil, err
	}
	s := d.newSession(ttl, resp.ID, time.Duration(resp.TTL)*time.Second, owned)
	s.sent = sent
	if !owned {
		_, err = toLeader(ctx, d.cluster, d.kv.Put, &pb.PutRequest{Key: []byte(d.keys.wake(s.hex)), Lease: s.id})
	}
	if err == nil {
		_, err = d.awaitWatch(ctx, s)
	}
	if err != nil {
		d.watcher.remove(s.wake)
		d.life.runBriefly(func(ctx context.Context) { d.revoke(ctx, s.id) })
		return nil, err
	}
	d.mu.Lock()
	d.leased[s.id] = s
	d.mu.Unlock()
	d.janitor.kick()
	return s, nil
}

func (d *Driver) newSession(ttl time.Duration, id int64, granted time.Duration, owned bool) *session {
	return &session{d: d, ttl: ttl, id: id, hex: hex(id), granted: granted, owned: owned, used: time.Now(),
		queues: make(map[string]*place), places: make(map[*place]struct{})}
}

// promise returns how long the server surely keeps the session's places, up to
// the TTL, for a request that began at start. It waits for a keep-alive if the
// last one is too old for the whole TTL. A keep-alive that was sent after start
// is never too old, however long its answer takes.
func (d *Driver) promise(ctx context.Context, s *session, start time.Time) (time.Duration, error) {
	for {
		d.mu.Lock()
		if s.over {
			d.mu.Unlock()
			return 0, errOver
		}
		if s.fresh(start) || !s.sent.Before(start) {
			promise := min(s.ttl, s.granted-start.Sub(s.sent))
			d.mu.Unlock()
			return promise, nil
		}
		answered := d.requestKeepAliveLocked(s)
		d.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return 0, &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
		case <-d.life.ctx.Done():
			return 0, driver.ErrClosed
		}
	}
}

// requestKeepAliveLocked requests a keep-alive, unless one is on its way, and returns a
// channel that closes when the keep-alive is answered.
func (d *Driver) requestKeepAliveLocked(s *session) <-chan struct{} {
	if s.beat == nil {
		s.beat = make(chan struct{})
	}
	if !s.asked {
		s.asked, s.since = true, time.Now()
		d.keepAlive.send(s)
	}
	return s.beat
}

// onKeepAlive handles the answer to the keep-alive that was sent at sent.
func (d *Driver) onKeepAlive(s *session, sent time.Time, ttl int64) {
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
		d.onSessionLost(s)
	}
}

// onKeepAliveFailed handles a keep-alive that had no answer, and sends another one if a
// caller waits for it.
func (d *Driver) onKeepAliveFailed(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.asked = false
	if s.beat != nil && !s.over {
		s.asked = true
		d.keepAlive.send(s)
	}
}

// onSessionLost ends a session that the server says is over: the end of the lease has
// deleted every place.
func (d *Driver) onSessionLost(s *session) {
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
		// A place whose Join has no answer yet joins again in another session.
		if p.ownRev() != 0 {
			ps = append(ps, p)
		}
	}
	d.dropSessionLocked(s)
	d.mu.Unlock()
	for _, p := range ps {
		d.onGone(p)
	}
}

// dropSessionLocked forgets a session.
func (d *Driver) dropSessionLocked(s *session) {
	delete(d.leased, s.id)
	if d.sessions[s.ttl] == s {
		delete(d.sessions, s.ttl)
	}
	d.watcher.remove(s.wake)
}

// retireIfRefused returns err, the reason why a place of the session remains. If the user
// may not delete its key, the key ends only with the lease, so stuck keeps new
// places out of the session.
func (d *Driver) retireIfRefused(s *session, err error) error {
	if driver.ClassOf(err) != driver.Refused {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sessions[s.ttl] == s {
		delete(d.sessions, s.ttl)
	}
	return err
}

// onWakeEvent handles an event of a session's wake key.
func (d *Driver) onWakeEvent(s *session, e event) {
	switch {
	case e.gap:
		// The stream was broken and flows again; afterGap deals with all
		// sessions.
	case e.deleted:
		// The key went with the lease, or somebody deleted it: a keep-alive
		// shows which.
		d.mu.Lock()
		if !s.over && !s.owned {
			s.sent = time.Time{}
			d.requestKeepAliveLocked(s)
		}
		d.mu.Unlock()
	default:
		for queue := range splitMessages(e.value) {
			if m, err := decodeMessage(queue); err == nil {
				m.at = e.rev
				d.onWake(s, m)
			}
		}
	}
}
