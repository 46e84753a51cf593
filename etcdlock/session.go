package etcdlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
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
	all   *sessions
	ttl   time.Duration
	id    int64
	hex   string
	owned bool // by a named owner: other processes keep it alive too

	// Guarded by sessions.mu.
	granted time.Duration
	sent    time.Time     // when the last answered keep-alive was sent
	over    bool          // the server has said that the lease is over
	beat    chan struct{} // closed at the next answer; nil if no caller waits
	asked   bool          // a keep-alive is on its way
	since   time.Time     // when the first unanswered keep-alive was requested
	users   int           // the places that depend on it
	used    time.Time     // when it last had a place
	wake    *watch

	// Guarded by places.mu.
	queues map[string]*place // the place with the short key in each queue
	places map[*place]struct{}
}

// sessions has the sessions of a driver. places.mu is never taken under mu; the
// mutexes of keepAlive, watcher and lifetime are.
type sessions struct {
	*cluster
	life      *lifetime
	pushes    *pushes
	watcher   *watcher
	keepAlive keepAlive
	onOpen    func()
	onLost    func(*session) // the end of the lease has deleted every place
	onWake    func(*session, message)

	mu     sync.Mutex
	byTTL  map[time.Duration]*opening
	leased map[int64]*session // by lease, those of owners included
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

// opening is the session of a TTL, whose lease the driver may still be requesting.
type opening struct {
	done chan struct{}
	s    *session // valid once done is closed, and not nil then unless err is
	err  error
}

// session returns the session of a TTL, and opens one if there is none. The
// opening goes on after its caller gives up: the next caller finds it. If a
// session is over as soon as it is open, another one follows.
func (ss *sessions) session(ctx context.Context, ttl time.Duration) (*session, error) {
	for {
		ss.mu.Lock()
		op := ss.byTTL[ttl]
		if op == nil || op.s != nil && op.s.over {
			op = &opening{done: make(chan struct{})}
			if !ss.life.run(func() { ss.open(op, ttl) }) {
				ss.mu.Unlock()
				return nil, driver.ErrClosed
			}
			ss.byTTL[ttl] = op
		}
		ss.mu.Unlock()
		select {
		case <-op.done:
		case <-ctx.Done():
			return nil, &driver.Error{Class: driver.Unavailable, Err: context.Cause(ctx)}
		}
		if op.err != nil {
			return nil, op.err
		}
		if !op.s.isOver() {
			return op.s, nil
		}
	}
}

// The opening of a session ends after openTimes times the time that an answer
// takes, within these bounds, because its callers may have given up.
const (
	openTimes             = 8
	openLeast, openLatest = 2 * time.Second, 30 * time.Second
)

func (ss *sessions) open(op *opening, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(ss.life.ctx, ss.pace.times(openTimes, openLeast, openLatest))
	defer cancel()
	s, err := ss.request(ctx, ttl, false)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if op.s, op.err = s, unsent(err); err != nil {
		delete(ss.byTTL, ttl)
	}
	close(op.done)
}

// request requests a lease. A session of the client's own gets its wake key, too:
// the deletion of that key tells the client at once that the lease is over (F81).
func (ss *sessions) request(ctx context.Context, ttl time.Duration, owned bool) (*session, error) {
	sent := time.Now()
	resp, err := ss.grant(ctx, leaseFor(ttl))
	if err != nil {
		return nil, err
	}
	s := ss.newSession(ttl, resp.ID, time.Duration(resp.TTL)*time.Second, owned)
	s.sent = sent
	if !owned {
		_, err = toLeader(ctx, ss.cluster, ss.kv.Put, &pb.PutRequest{Key: []byte(ss.keys.wake(s.hex)), Lease: s.id})
	}
	if err == nil {
		_, err = s.awaitWatch(ctx)
	}
	if err != nil {
		ss.watcher.remove(s.wake)
		ss.life.runBriefly(func(ctx context.Context) { ss.revoke(ctx, s.id) })
		return nil, err
	}
	ss.mu.Lock()
	ss.leased[s.id] = s
	ss.mu.Unlock()
	ss.onOpen()
	return s, nil
}

// list returns all sessions.
func (ss *sessions) list() []*session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(maps.Values(ss.leased))
}

func (ss *sessions) newSession(ttl time.Duration, id int64, granted time.Duration, owned bool) *session {
	return &session{all: ss, ttl: ttl, id: id, hex: hex(id), granted: granted, owned: owned, used: time.Now(),
		queues: make(map[string]*place), places: make(map[*place]struct{})}
}

// adopt keeps a lease alive that another process may have requested. It returns
// errOver if the lease is over.
func (ss *sessions) adopt(ctx context.Context, lease int64, ttl time.Duration) (*session, error) {
	ss.mu.Lock()
	s := ss.leased[lease]
	if s == nil {
		s = ss.newSession(ttl, lease, leaseFor(ttl), true)
		ss.leased[lease] = s
	}
	ss.mu.Unlock()
	if _, err := s.awaitWatch(ctx); err != nil {
		return nil, unsent(err)
	}
	_, err := s.promise(ctx, time.Now())
	if err != nil && err != errOver {
		err = unsent(err)
	}
	return s, err
}

// fresh reports whether the last keep-alive allows a promise of the whole TTL
// for a request that began at start. The answer stays the same for as long as
// the request lasts: a batch requests all its keep-alives at once, and none
// singly later. sessions.mu is held.
func (s *session) fresh(start time.Time) bool { return between(s.sent, start) <= (s.granted-s.ttl)/2 }

// refresh requests a keep-alive if the promise for a request that began at start
// needs one.
func (s *session) refresh(start time.Time) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if !s.over && !s.fresh(start) {
		s.requestKeepAliveLocked()
	}
}

// verify asks the server whether the session still lives.
func (s *session) verify() {
	s.all.mu.Lock()
	s.sent = time.Time{}
	s.all.mu.Unlock()
	s.refresh(time.Now())
}

func (s *session) isOver() bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.over
}

// promise returns how long the server surely keeps the session's places, up to
// the TTL, for a request that began at start. It waits for a keep-alive if the
// last one is too old for the whole TTL. A keep-alive that was sent after start
// is never too old, however long its answer takes.
func (s *session) promise(ctx context.Context, start time.Time) (time.Duration, error) {
	for {
		s.all.mu.Lock()
		if s.over {
			s.all.mu.Unlock()
			return 0, errOver
		}
		if s.fresh(start) || !s.sent.Before(start) {
			promise := min(s.ttl, s.granted-start.Sub(s.sent))
			s.all.mu.Unlock()
			return promise, nil
		}
		answered := s.requestKeepAliveLocked()
		s.all.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return 0, &driver.Error{Class: driver.Unknown, Err: context.Cause(ctx)}
		case <-s.all.life.ctx.Done():
			return 0, driver.ErrClosed
		}
	}
}

// requestKeepAliveLocked requests a keep-alive, unless one is on its way, and returns a
// channel that closes when the keep-alive is answered.
func (s *session) requestKeepAliveLocked() <-chan struct{} {
	if s.beat == nil {
		s.beat = make(chan struct{})
	}
	if !s.asked {
		s.asked, s.since = true, time.Now()
		s.all.keepAlive.send(s)
	}
	return s.beat
}

// onKeepAlive handles the answer to the keep-alive that was sent at sent.
func (s *session) onKeepAlive(sent time.Time, ttl int64) {
	s.all.mu.Lock()
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
	lost := ttl <= 0 && !s.over
	if lost {
		s.over = true
		s.dropLocked()
	}
	s.all.mu.Unlock()
	if lost {
		s.all.onLost(s)
	}
}

// onKeepAliveFailed handles a keep-alive that had no answer, and sends another one if a
// caller waits for it.
func (s *session) onKeepAliveFailed() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.asked = false
	if s.beat != nil && !s.over {
		s.asked = true
		s.all.keepAlive.send(s)
	}
}

// use records a place that depends on the session.
func (s *session) use() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.users++
}

// release records the end of a place. An owner's session ends with its last place:
// the ticket that leaves last revokes the lease, or the lease ends.
func (s *session) release() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.users--
	s.used = time.Now()
	if s.owned && s.users == 0 {
		s.dropLocked()
	}
}

// dropLocked forgets the session.
func (s *session) dropLocked() {
	delete(s.all.leased, s.id)
	s.retireLocked()
	s.all.watcher.remove(s.wake)
}

// retireLocked keeps new places out of the session.
func (s *session) retireLocked() {
	if op := s.all.byTTL[s.ttl]; op != nil && op.s == s {
		delete(s.all.byTTL, s.ttl)
	}
}

// retireIfRefused returns err, the reason why a place of the session remains. If the user
// may not delete its key, the key ends only with the lease, so retireIfRefused keeps new
// places out of the session.
func (s *session) retireIfRefused(err error) error {
	if driver.ClassOf(err) != driver.Refused {
		return err
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.retireLocked()
	return err
}

// idleTTLs is the number of its TTLs for which a session without a place is
// kept.
const idleTTLs = 20

// maxLeaseDelay bounds the time by which a lease ends late.
const maxLeaseDelay = 2 * Granularity

// tend keeps the sessions alive, revokes those that have been without a place for
// long, and returns the time of the next round. The places of abandoned sessions
// are all to go, but may not be deleted.
func (ss *sessions) tend(abandoned map[*session]bool) time.Time {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	at := time.Now().Add(time.Hour)
	for _, s := range ss.leased {
		if s.users == 0 && !s.owned && since(s.used) > idleTTLs*s.ttl {
			s.dropLocked()
			s.over = true
			ss.life.runBriefly(func(ctx context.Context) { ss.revoke(ctx, s.id) })
			continue
		}
		every := s.granted / 3
		if abandoned[s] {
			// The lease ends, and takes with it the keys that may not be
			// deleted. The answer to one keep-alive after that reports the end.
			every = s.granted + maxLeaseDelay
		}
		next := s.sent.Add(every)
		if since(s.sent) >= every {
			s.requestKeepAliveLocked()
			next = time.Now().Add(every / 4)
		}
		if next.Before(at) {
			at = next
		}
	}
	return at
}

// revokeIdle revokes the leases that no place uses.
func (ss *sessions) revokeIdle(ctx context.Context) {
	ss.mu.Lock()
	var idle []int64
	for _, s := range ss.leased {
		if s.users == 0 && !s.owned {
			idle = append(idle, s.id)
		}
	}
	ss.mu.Unlock()
	for _, id := range idle {
		ss.revoke(ctx, id)
	}
}

// A lock needs its watch only to learn of its turn at once. So Join waits only
// for a while for the watch on its session's wake key, and goes on without it.
// Such a ticket is renewed more often. When the watch is confirmed at last, the
// driver reports a gap, and the core renews all waiting tickets once.
const (
	watchTimes            = 8 // in multiples of the time that an answer takes
	watchLeast, watchMost = 500 * time.Millisecond, 2 * time.Second
	// unwatchedTimes is the time between two renewals of a ticket that gets no
	// pushes, in multiples of the time that an answer takes.
	unwatchedTimes                = 20
	unwatchedLeast, unwatchedMost = 250 * time.Millisecond, 5 * time.Second
)

var errNoWatch = errors.New("the server has not confirmed a watch")

// watchAll watches the wake keys of all sessions. It returns an error unless the
// server confirms each watch.
func (ss *sessions) watchAll(ctx context.Context) error {
	for _, s := range ss.list() {
		confirmed, err := s.awaitWatch(ctx)
		if err == nil && !confirmed {
			err = driver.Wrap(driver.Unavailable, ss.watcher.withRefusal(errNoWatch))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitWatch watches the wake key of the session if pushes are wanted, and reports
// whether the server has confirmed the watch: a Join after that misses no
// wake-up.
func (s *session) awaitWatch(ctx context.Context) (confirmed bool, err error) {
	if !s.all.pushes.wanted() {
		return true, nil
	}
	s.all.mu.Lock()
	if s.wake == nil {
		s.wake = s.all.watcher.add(s.all.keys.wake(s.hex), 0, s.onWakeEvent)
	}
	w := s.wake
	s.all.mu.Unlock()
	timer := time.NewTimer(s.all.pace.times(watchTimes, watchLeast, watchMost))
	defer timer.Stop()
	select {
	case <-w.on:
		return true, nil
	case <-timer.C:
		return s.all.watcher.reportLate(w), nil
	case <-ctx.Done():
		return false, &driver.Error{Class: driver.Unavailable, Err: s.all.watcher.withRefusal(context.Cause(ctx))}
	case <-s.all.life.ctx.Done():
		return false, driver.ErrClosed
	}
}

// recheck brings the recheck of a waiting ticket forward if the session gets no
// pushes.
func (s *session) recheck(recheck time.Duration) time.Duration {
	s.all.mu.Lock()
	w := s.wake
	s.all.mu.Unlock()
	if w == nil || s.all.watcher.confirmed(w) {
		return recheck
	}
	soon := s.all.pace.times(unwatchedTimes, unwatchedLeast, unwatchedMost)
	if recheck > 0 {
		return min(recheck, soon)
	}
	return soon
}

// onWakeEvent handles an event of the session's wake key.
func (s *session) onWakeEvent(e event) {
	switch {
	case e.gap:
		// The stream was broken and flows again; afterGap deals with all
		// sessions.
	case e.deleted:
		// The key went with the lease, or somebody deleted it: a keep-alive
		// shows which.
		if !s.owned {
			s.verify()
		}
	default:
		for text := range strings.SplitSeq(e.value, "\n") {
			if m, err := decodeMessage(text); err == nil {
				m.at = e.rev
				s.all.onWake(s, m)
			}
		}
	}
}

// afterGap reports that pushes may have been lost: the core renews all its
// waiting tickets. The driver asks for keep-alives of its sessions, too,
// because it may have missed the end of one.
func (ss *sessions) afterGap() {
	ss.mu.Lock()
	for _, s := range ss.leased {
		if !s.over && s.users > 0 {
			s.sent = s.sent.Add(-s.ttl) // no longer fresh
			s.requestKeepAliveLocked()
		}
	}
	ss.mu.Unlock()
	ss.pushes.push("", driver.Status{})
}
