package etcdlock

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher keeps all watches of a driver on one stream, with one goroutine that
// reads and one that writes, however many there are.
//
// A watch that begins now is served at once. One that begins at a past
// revision is served from a queue that the server works off every 100 ms,
// which is why nothing on the way of a hand-over may begin one. When the
// stream breaks, all watches begin anew, now; and each, and then the driver,
// is told that there was a gap.
type watcher struct {
	d *Driver

	mu      sync.Mutex
	last    int64
	watches map[int64]*watch
	out     []*pb.WatchRequest
	wake    chan struct{}
	unheard int  // watches of this stream not yet confirmed
	gap     bool // there was a stream before this one
	owed    bool // that there was a gap has to be told when all are confirmed
	up      bool // a stream is open: requests go out on it
	refusal string
}

// watch is one key watched.
type watch struct {
	id   int64
	key  string
	from int64 // the first revision wanted, 0 means the present one
	on   chan struct{}
	ack  bool // confirmed on this stream
	fire func(event)
}

// event is one change of the key, or a gap in which there may have been any.
type event struct {
	gap     bool
	deleted bool
	value   string
	rev     int64
}

func (w *watcher) start(d *Driver) {
	w.d = d
	w.watches = make(map[int64]*watch)
	w.wake = make(chan struct{}, 1)
	d.goes(w.run)
}

// add watches a key. Fire is called by the goroutine that reads: it must not
// wait.
func (w *watcher) add(key string, from int64, fire func(event)) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	x := &watch{id: w.last, key: key, from: from, on: make(chan struct{}), fire: fire}
	w.watches[x.id] = x
	if w.up {
		w.create(x)
	}
	w.kick()
	return x
}

// remove ends a watch; nil is none.
func (w *watcher) remove(x *watch) {
	if x == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches[x.id] != x {
		return
	}
	delete(w.watches, x.id)
	if w.up {
		if !x.ack {
			w.unheard--
		}
		w.out = append(w.out, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: x.id}}})
		w.kick()
	}
}

// create asks for a watch. The caller has mu.
func (w *watcher) create(x *watch) {
	x.ack = false
	w.unheard++
	w.out = append(w.out, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte(x.key), StartRevision: x.from, WatchId: x.id}}})
}

func (w *watcher) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) run() {
	life := w.d.life
	for fails := 0; life.Err() == nil; {
		w.mu.Lock()
		idle := len(w.watches) == 0
		w.mu.Unlock()
		if idle {
			select {
			case <-w.wake:
			case <-life.Done():
			}
			continue
		}
		if w.stream() {
			fails = 0
		}
		fails++
		pause(life, fails)
	}
}

// heartbeat is how often a stream that says nothing is asked whether it lives,
// and how long it may take to say so.
const heartbeat = 5 * time.Second

// stream runs one stream until it breaks, and says whether anything came.
func (w *watcher) stream() (heard bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(w.d.life))
	defer cancel()
	guard := time.AfterFunc(heartbeat, cancel)
	stream, err := w.d.watches.Watch(ctx)
	if err != nil {
		guard.Stop()
		return false
	}
	w.mu.Lock()
	w.out, w.unheard, w.up, w.owed = nil, 0, true, w.gap
	for _, x := range w.watches {
		if w.gap {
			x.from = 0
		}
		w.create(x)
	}
	w.mu.Unlock()
	ended := make(chan struct{})
	came := make(chan struct{}, 1)
	go func() {
		defer close(ended)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case came <- struct{}{}:
			default:
			}
			if !w.take(r) {
				return
			}
		}
	}()
	defer func() {
		guard.Stop()
		cancel()
		<-ended
		w.mu.Lock()
		w.up, w.gap = false, true
		w.mu.Unlock()
	}()
	quiet := time.NewTimer(heartbeat)
	defer quiet.Stop()
	for asked := false; ; {
		w.mu.Lock()
		out := w.out
		w.out = nil
		tell := w.owed && w.unheard == 0
		w.owed = w.owed && !tell
		w.mu.Unlock()
		if tell {
			w.tellGap()
		}
		guard.Reset(heartbeat)
		for _, r := range out {
			if stream.Send(r) != nil {
				return heard
			}
		}
		guard.Stop()
		select {
		case <-came:
			heard, asked = true, false
			quiet.Reset(heartbeat)
		case <-quiet.C:
			if asked {
				return heard
			}
			asked = true
			quiet.Reset(heartbeat)
			w.mu.Lock()
			w.out = append(w.out, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
			w.mu.Unlock()
		case <-w.wake:
		case <-ended:
			return heard
		case <-ctx.Done():
			return heard
		}
	}
}

// take passes on what the server says; false breaks the stream.
func (w *watcher) take(r *pb.WatchResponse) bool {
	w.mu.Lock()
	x := w.watches[r.WatchId]
	if x == nil {
		// Removed meanwhile, or an answer to whether the stream lives. A
		// refusal of the stream itself has no number either.
		w.mu.Unlock()
		return !(r.Canceled && r.WatchId <= 0)
	}
	if r.Canceled {
		// By compaction (F70), or because a right or a token is gone. What
		// was compacted is not missed: the watch begins anew, now.
		if r.CompactRevision == 0 {
			w.refusal = r.CancelReason
			w.mu.Unlock()
			return false
		}
		if !x.ack {
			w.unheard--
		}
		x.from = 0
		delete(w.watches, x.id)
		w.last++
		x.id = w.last
		w.watches[x.id] = x
		w.create(x)
		w.kick()
		w.mu.Unlock()
		x.fire(event{gap: true})
		return true
	}
	if r.Created && !x.ack {
		x.ack = true
		w.unheard--
		w.refusal = ""
		select {
		case <-x.on:
		default:
			close(x.on)
		}
	}
	w.mu.Unlock()
	for _, e := range r.Events {
		x.fire(event{deleted: e.Type == 1, value: string(e.Kv.GetValue()), rev: e.Kv.GetModRevision()})
	}
	return true
}

// tellGap tells every watch, and then the driver, that there was a gap.
func (w *watcher) tellGap() {
	w.mu.Lock()
	all := make([]*watch, 0, len(w.watches))
	for _, x := range w.watches {
		all = append(all, x)
	}
	w.mu.Unlock()
	for _, x := range all {
		x.fire(event{gap: true})
	}
	w.d.afterGap()
}

// why is what the server last said against a watch.
func (w *watcher) why() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal
}
