package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backoff"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keepAlive sends the keep-alives of all sessions of a driver on one stream. The
// client library's own keep-alive does not report when it sent the request that
// was answered, and a lease has to be counted from that time (F14). So keepAlive
// uses the generated lease client.
//
// keepAlive gives a stream up that does not answer in time, and opens a new one,
// for which the client library takes the next endpoint. In this way keep-alives
// get past a member that hangs behind a leader that does (F72).
type keepAlive struct {
	*cluster
	life *lifetime

	mu   sync.Mutex // none is taken under it
	want []*session
	wake chan struct{}

	doublings int // number of doublings of the time to wait for an answer; for run's goroutine alone
}

// send requests one keep-alive. It does not block.
func (h *keepAlive) send(s *session) {
	h.mu.Lock()
	h.want = append(h.want, s)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *keepAlive) take() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.want
	h.want = nil
	return w
}

// run keeps a stream open as long as the driver lives.
func (h *keepAlive) run() {
	life := h.life.ctx
	retry := newStreamBackoff()
	for fails := 0; life.Err() == nil; {
		h.mu.Lock()
		idle := len(h.want) == 0
		h.mu.Unlock()
		if idle {
			select {
			case <-h.wake:
			case <-life.Done():
			}
			continue
		}
		if h.stream() {
			fails = 0
			retry.Reset()
			continue
		}
		// After several failed streams, the next one gets more time.
		if fails++; fails >= maxFastAttempts {
			h.doublings = min(h.doublings+1, maxDoublings)
		}
		retry.Wait(life)
		if h.closeOverdue() {
			retry.Reset()
		}
	}
}

// newStreamBackoff returns the pauses between attempts to open a stream.
func newStreamBackoff() *backoff.Backoff {
	return &backoff.Backoff{First: 4 * time.Millisecond, Last: time.Second / 2, Factor: 4}
}

const (
	maxFastAttempts = 3 // failed streams in a row before the next one gets more time
	maxDoublings    = 4
)

// keepAliveTimeout returns how long a keep-alive of this session may go unanswered
// before keepAlive tries another stream. The time doubles that many times, but to no
// more than a third of the TTL.
func (s *session) keepAliveTimeout(slow int) time.Duration {
	p := min(max(s.ttl/10, 200*time.Millisecond), 2*time.Second)
	return max(p, min(p<<slow, s.ttl/3))
}

// silenceLimit returns how long keep-alives of this session, each repeated
// meanwhile, may go unanswered before keepAlive gives silent connections up. The
// time leaves enough for another connection before the lease ends, and grows
// with the time that a slow server takes to answer.
func (s *session) silenceLimit() time.Duration {
	return s.all.pace.times(2, max(min(s.ttl/4, 5*time.Second), 300*time.Millisecond), max(s.ttl/3, 300*time.Millisecond))
}

// closeAt returns when keepAlive gives silent connections up, for the keep-alive of
// this session that was requested last.
func (s *session) closeAt() time.Time {
	s.all.mu.Lock()
	since := s.since
	s.all.mu.Unlock()
	return since.Add(s.silenceLimit())
}

// sentKeepAlive is a keep-alive that has no answer yet.
type sentKeepAlive struct {
	s       *session
	at      time.Time
	retryAt time.Time // when keepAlive tries another stream
	closeAt time.Time // when keepAlive gives silent connections up
}

// newSentKeepAlive returns the sentKeepAlive of a keep-alive that is sent at now.
func (s *session) newSentKeepAlive(now time.Time, slow int) sentKeepAlive {
	b := sentKeepAlive{s: s, at: now, retryAt: now.Add(s.keepAliveTimeout(slow)), closeAt: s.closeAt()}
	if b.closeAt.After(now) && b.closeAt.Before(b.retryAt) {
		b.retryAt = b.closeAt
	}
	return b
}

// closeSilentConns closes silent connections if a keep-alive has gone unanswered for too
// long.
func (h *keepAlive) closeSilentConns(inFlight map[int64]sentKeepAlive) {
	now := time.Now()
	for _, b := range inFlight {
		if !now.Before(b.closeAt) {
			h.conns.closeSilent(b.s.silenceLimit() / 2)
		}
	}
}

// closeOverdue closes silent connections between two streams: a keep-alive may have
// become too late in the pause. It reports whether it closed a connection.
func (h *keepAlive) closeOverdue() (closed bool) {
	h.mu.Lock()
	want := slices.Clone(h.want)
	h.mu.Unlock()
	now := time.Now()
	for _, s := range want {
		if !now.Before(s.closeAt()) {
			closed = h.conns.closeSilent(s.silenceLimit()/2) || closed
		}
	}
	return closed
}

// stream runs one stream until it breaks, and reports whether an answer came.
func (h *keepAlive) stream() (answered bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(h.life.ctx))
	defer cancel()
	// Opening the stream can hang, too.
	guard := time.AfterFunc(2*time.Second, cancel)
	stream, err := h.leases.LeaseKeepAlive(ctx)
	guard.Stop()
	if err != nil {
		return false
	}
	answers := make(chan *pb.LeaseKeepAliveResponse)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case answers <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	inFlight := make(map[int64]sentKeepAlive)
	defer func() {
		cancel()
		<-ended
		for _, b := range inFlight {
			b.s.onKeepAliveFailed()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if w := h.take(); len(w) > 0 {
			guard.Reset(2 * time.Second) // Send can hang if the window is full
			for i, s := range w {
				now := time.Now()
				if stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id}) != nil {
					for _, s := range w[i:] {
						h.send(s)
					}
					guard.Stop()
					return answered
				}
				inFlight[s.id] = s.newSentKeepAlive(now, h.doublings)
			}
			guard.Stop()
		}
		var first time.Time
		for _, b := range inFlight {
			if first.IsZero() || b.retryAt.Before(first) {
				first = b.retryAt
			}
		}
		if !first.IsZero() {
			timer.Reset(max(0, time.Until(first)))
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case r := <-answers:
			answered = true
			if b, ok := inFlight[r.ID]; ok {
				delete(inFlight, r.ID)
				if h.doublings > 0 && time.Since(b.at) < b.s.keepAliveTimeout(h.doublings-1) {
					h.doublings--
				}
				b.s.onKeepAlive(b.at, r.TTL)
			}
		case <-h.wake:
		case <-timer.C:
			if !first.IsZero() {
				h.closeSilentConns(inFlight)
				return answered
			}
		case <-ended:
			return answered
		case <-ctx.Done():
			return answered
		}
	}
}
