package etcdlock_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/etcdlock"
	"github.com/holdfast-go/holdfast/internal/testkit/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// wire counts the traffic between clients and a server.
type wire struct {
	calls  atomic.Int64 // requests, and watches created
	cancel atomic.Int64 // watches ended
	events atomic.Int64 // changes reported to watches
	beats  atomic.Int64 // keep-alives
	beatStreams,
	watchStreams atomic.Int64
}

func (w *wire) reset() {
	for _, n := range []*atomic.Int64{&w.calls, &w.cancel, &w.events, &w.beats} {
		n.Store(0)
	}
}

// client connects to a server, and counts the traffic if w is not nil.
func client(t testing.TB, s *servers.EtcdServer, w *wire) *clientv3.Client {
	t.Helper()
	if w == nil {
		return dialed(t, s)
	}
	return dialed(t, s,
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			w.calls.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, cc, method, opts...)
			if method == "/etcdserverpb.Lease/LeaseKeepAlive" {
				w.beatStreams.Add(1)
			} else {
				w.watchStreams.Add(1)
			}
			return &countedStream{s, w}, err
		}))
}

type countedStream struct {
	grpc.ClientStream
	w *wire
}

func (s *countedStream) SendMsg(m any) error {
	switch m := m.(type) {
	case *pb.WatchRequest:
		if m.GetCreateRequest() != nil {
			s.w.calls.Add(1)
		} else if m.GetCancelRequest() != nil {
			s.w.cancel.Add(1)
		}
	case *pb.LeaseKeepAliveRequest:
		s.w.beats.Add(1)
	}
	return s.ClientStream.SendMsg(m)
}

func (s *countedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if r, ok := m.(*pb.WatchResponse); ok && err == nil {
		s.w.events.Add(int64(len(r.Events)))
	}
	return err
}

// run is the result of clients that take turns for a while.
type run struct {
	rate           float64 // acquisitions a second
	calls, cancels float64 // per acquisition
	events         float64
	handOver       []time.Duration // from the call of one Unlock to the next Lock's return
	turns          []int
}

// race lets n clients take turns for a time d.
func race(t *testing.T, n int, d time.Duration, w *wire, lockers []func(context.Context) (func() error, error)) run {
	t.Helper()
	var wg sync.WaitGroup
	var free atomic.Int64 // when the last Unlock was called
	var mu sync.Mutex
	r := run{turns: make([]int, n)}
	base := time.Now()
	begin := make(chan struct{})
	until, stop := context.WithCancel(ctx)
	for i := range n {
		wg.Go(func() {
			<-begin
			for until.Err() == nil {
				unlock, err := lockers[i](ctx)
				if err != nil {
					t.Error(err)
					return
				}
				got := time.Since(base)
				if until.Err() == nil {
					mu.Lock()
					r.turns[i]++
					if f := free.Load(); f > 0 {
						r.handOver = append(r.handOver, got-time.Duration(f))
					}
					mu.Unlock()
				}
				free.Store(int64(time.Since(base)))
				if err := unlock(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	close(begin)
	// Every client has begun, and none has to open a session or a stream any
	// more.
	eventually(t, "everybody had two turns", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Min(r.turns) >= 2
	})
	mu.Lock()
	r.turns, r.handOver = make([]int, n), nil
	mu.Unlock()
	w.reset()
	start := time.Now()
	time.Sleep(d)
	// Of a few turns, those that had begun before would count too much.
	for enough := false; !enough && time.Since(start) < time.Minute; time.Sleep(d / 10) {
		mu.Lock()
		turns := 0
		for _, k := range r.turns {
			turns += k
		}
		mu.Unlock()
		enough = turns >= max(50, 2*n)
	}
	calls, cancels, events := w.calls.Load(), w.cancel.Load(), w.events.Load()
	mu.Lock()
	turns := 0
	for _, k := range r.turns {
		turns += k
	}
	took := time.Since(start)
	stop()
	mu.Unlock()
	wg.Wait()
	k := float64(max(turns, 1))
	r.rate = float64(turns) / took.Seconds()
	r.calls, r.cancels, r.events = float64(calls)/k, float64(cancels)/k, float64(events)/k
	slices.Sort(r.handOver)
	return r
}

func (r run) at(q float64) time.Duration {
	if len(r.handOver) == 0 {
		return 0
	}
	return r.handOver[int(q*float64(len(r.handOver)-1))]
}

// jain returns Jain's index of fairness: 1 if all clients had equally many
// turns.
func (r run) jain() float64 {
	var sum, squares float64
	for _, n := range r.turns {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(r.turns)) * squares)
}

func ours(t *testing.T, s *servers.EtcdServer, n int, w *wire) (ls []func(context.Context) (func() error, error), end func()) {
	var cs []*holdfast.Client
	for range n {
		d, err := etcdlock.New(client(t, s, w), &etcdlock.Options{Prefix: "rate/"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := holdfast.New(d)
		if err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
		m := c.Mutex("contended")
		ls = append(ls, func(ctx context.Context) (func() error, error) {
			h, err := m.Lock(ctx)
			if err != nil {
				return nil, err
			}
			return h.Unlock, nil
		})
	}
	return ls, func() {
		for _, c := range cs {
			c.Close()
		}
	}
}

func theirs(t *testing.T, s *servers.EtcdServer, n int, w *wire) (ls []func(context.Context) (func() error, error), end func()) {
	var ss []*concurrency.Session
	for range n {
		sess, err := concurrency.NewSession(client(t, s, w), concurrency.WithTTL(30))
		if err != nil {
			t.Fatal(err)
		}
		ss = append(ss, sess)
		m := concurrency.NewMutex(sess, "rate/theirs")
		ls = append(ls, func(ctx context.Context) (func() error, error) {
			return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
		})
	}
	return ls, func() {
		for _, s := range ss {
			s.Close()
		}
	}
}

// deletes returns the median time of one Delete, measured one after the other.
func deletes(t *testing.T, s *servers.EtcdServer) time.Duration {
	cli := client(t, s, nil)
	var took []time.Duration
	for range 100 {
		if _, err := cli.Put(ctx, "rate/x", ""); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := cli.Delete(ctx, "rate/x"); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// TestContendedLocksBeatMutex compares Holdfast with concurrency.Mutex in one run, and judges
// by counts. Times depend on the other work of the machine: beside twenty busy
// processes ours took turns 1.6 to 5 times as often with two clients, and a hand-off
// took 28 times as long as a Delete. So the test requires of times only that ours
// are no worse than theirs, and repeats a comparison that misses it.
func TestContendedLocksBeatMutex(t *testing.T) {
	s := servers.SharedEtcd(t, servers.EtcdNewest)
	const span = 250 * time.Millisecond
	for _, c := range []struct {
		n              int
		promise, least float64 // ratio of our acquisitions to theirs
	}{{2, 10, 1}, {16, 5, 1}, {64, 1, 0.6}} {
		for tries := 8; ; tries-- {
			one := deletes(t, s)
			o, th := contend(t, s, c.n, span)
			times := o.rate / th.rate
			t.Logf("%d clients: %.1f times as many, %v are promised for an idle machine", c.n, times, c.promise)
			// Four requests are promised, and the event of one client alone: its own
			// wake-up, and where turns take long that of its predecessor's key.
			if times >= c.least && o.at(0.5) < max(10*one, th.at(0.5)) && o.calls <= 4 && o.events <= 3 {
				break
			}
			if tries == 1 {
				t.Errorf("%d clients: %.1f times as many acquisitions, a hand-over takes %v and one Delete %v, %.2f requests and %.2f events for each acquisition",
					c.n, times, o.at(0.5), one, o.calls, o.events)
				break
			}
		}
	}
}

// contend lets clients of each kind take turns, one kind after the other.
func contend(t *testing.T, s *servers.EtcdServer, n int, span time.Duration) (o, th run) {
	t.Helper()
	var ow, tw wire
	ls, end := ours(t, s, n, &ow)
	o = race(t, n, span, &ow, ls)
	end()
	ls, end = theirs(t, s, n, &tw)
	th = race(t, n, span, &tw, ls)
	end()
	for _, r := range []struct {
		who string
		run
	}{{"ours", o}, {"concurrency.Mutex", th}} {
		t.Logf("%2d clients, %-17s %7.0f/s, %.2f requests (+ %.2f watches ended), %.2f events, hand-over p50 %v p99 %v, fairness %.3f",
			n, r.who, r.rate, r.calls, r.cancels, r.events, r.at(0.5), r.at(0.99), r.jain())
	}
	return o, th
}
