package etcdlock

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// heart sends the keep-alives of all sessions of a driver on one stream. The
// client library's own keep-alive does not tell when it sent what was
// answered, and a lease has to be counted from then (F14); so this speaks to
// the generated lease client.
//
// A stream that does not answer in time is given up, and a new one is opened:
// the client library takes the next endpoint for it. That is the way past a
// member that hangs behind a leader which does (F72).
type heart struct {
	d *Driver

	mu   sync.Mutex
	want []*session
	wake chan struct{}

	slow int // by how many doublings answers are waited for longer; run's own
}

func (h *heart) start(d *Driver) {
	h.d = d
	h.wake = make(chan struct{}, 1)
	d.goes(h.run)
}

// send asks for one keep-alive. It does not block.
func (h *heart) send(s *session) {
	h.mu.Lock()
	h.want = append(h.want, s)
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *heart) take() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.want
	h.want = nil
	return w
}

func (h *heart) back(ss []*session) {
	h.mu.Lock()
	h.want = append(ss, h.want...)
	h.mu.Unlock()
}

// run keeps a stream as long as the driver lives.
func (h *heart) run() {
	life := h.d.life
	for fails := 0; life.Err() == nil; {
		w := h.take()
		if len(w) == 0 {
			select {
			case <-h.wake:
			case <-life.Done():
			}
			continue
		}
		h.back(w)
		if h.stream() {
			fails = 0
			continue
		}
		// Where no way is quick, the next one is given longer.
		if fails++; fails >= ways {
			h.slow = min(h.slow+1, maxSlow)
		}
		pause(life, fails)
	}
}

// pause waits before something is tried again.
func pause(ctx context.Context, fails int) {
	t := time.NewTimer(min(time.Millisecond<<min(fails*2, 10), time.Second/2))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

const (
	ways    = 3 // in vain, one after the other, before the next is given longer
	maxSlow = 4
)

// patience is how long a keep-alive of this session may go unanswered before
// another way is tried, with some doublings, of which a third of the TTL is the
// most.
func (s *session) patience(slow int) time.Duration {
	p := min(max(s.ttl/10, 200*time.Millisecond), 2*time.Second)
	return max(p, min(p<<slow, s.ttl/3))
}

// sentBeat is a keep-alive on its way.
type sentBeat struct {
	s    *session
	at   time.Time
	late time.Time
}

// stream runs one stream until it breaks, and says whether anything came back.
func (h *heart) stream() (answered bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(h.d.life))
	defer cancel()
	// Opening can hang as well.
	guard := time.AfterFunc(2*time.Second, cancel)
	stream, err := h.d.leases.LeaseKeepAlive(ctx)
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
	flying := make(map[int64]sentBeat)
	defer func() {
		cancel()
		<-ended
		for _, b := range flying {
			h.d.unbeaten(b.s)
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if w := h.take(); len(w) > 0 {
			guard.Reset(2 * time.Second) // Send can hang, if the window is full
			for i, s := range w {
				now := time.Now()
				if stream.Send(&pb.LeaseKeepAliveRequest{ID: s.id}) != nil {
					h.back(w[i:])
					guard.Stop()
					return answered
				}
				flying[s.id] = sentBeat{s, now, now.Add(s.patience(h.slow))}
			}
			guard.Stop()
		}
		var first time.Time
		for _, b := range flying {
			if first.IsZero() || b.late.Before(first) {
				first = b.late
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
			if b, ok := flying[r.ID]; ok {
				delete(flying, r.ID)
				if h.slow > 0 && time.Since(b.at) < b.s.patience(h.slow-1) {
					h.slow--
				}
				h.d.beaten(b.s, b.at, r.TTL)
			}
		case <-h.wake:
		case <-timer.C:
			if !first.IsZero() {
				return answered
			}
		case <-ended:
			return answered
		case <-ctx.Done():
			return answered
		}
	}
}
