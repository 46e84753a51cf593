package etcdlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher keeps all watches of a driver on one stream, with one goroutine that
// reads and one that writes, however many watches there are.
//
// The server serves a watch that begins now at once. A watch that begins at a
// past revision is served from a list that the server works through every 100
// ms, so no hand-off may depend on beginning one. When the stream breaks, all
// watches begin anew, at the present revision; then each watch, and after them
// the driver, is notified of a gap.
type watcher struct {
	*cluster
	life  *lifetime
	onGap func()

	mu          sync.Mutex // none is taken under it
	last        int64
	all         map[int64]*watch
	out         []*pb.WatchRequest
	wake        chan struct{}
	unconfirmed int  // watches that this stream has not confirmed yet
	gap         bool // there was a stream before this one
	owed        bool // a gap is to be reported once all watches are confirmed
	up          bool // a stream is open: requests go out on it
	refusal     string
}

// watch is one watched key.
type watch struct {
	id   int64
	key  string
	from int64 // the first revision wanted; 0 is the present one
	on   chan struct{}
	ack  bool // confirmed on this stream
	late bool // a caller went on before it was confirmed, and may have missed an event
	fire func(event)
}

// event is one change of the key, or a gap that may hide any change.
type event struct {
	gap     bool
	deleted bool
	value   string
	rev     int64
}

// add watches a key. The goroutine that reads the stream calls fire, which must
// not block.
func (w *watcher) add(key string, from int64, fire func(event)) *watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	x := &watch{id: w.last, key: key, from: from, on: make(chan struct{}), fire: fire}
	w.all[x.id] = x
	if w.up {
		w.createLocked(x)
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
	if w.all[x.id] != x {
		return
	}
	delete(w.all, x.id)
	if w.up {
		if !x.ack {
			w.unconfirmed--
		}
		w.out = append(w.out, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: x.id}}})
		w.kick()
	}
}

// createLocked requests a watch.
func (w *watcher) createLocked(x *watch) {
	x.ack = false
	w.unconfirmed++
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
	life := w.life.ctx
	retry := newStreamBackoff()
	for life.Err() == nil {
		w.mu.Lock()
		idle := len(w.all) == 0
		w.mu.Unlock()
		if idle {
			select {
			case <-w.wake:
			case <-life.Done():
			}
			continue
		}
		if w.stream() {
			retry.Reset()
		}
		retry.Wait(life)
	}
}

// heartbeat is the time for which a stream may be silent before the watcher
// asks whether it lives, and the time that the answer may take.
const heartbeat = 5 * time.Second

// stream runs one stream until it breaks, and reports whether any response
// came.
func (w *watcher) stream() (answered bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(w.life.ctx))
	defer cancel()
	guard := time.AfterFunc(heartbeat, cancel)
	stream, err := w.watches.Watch(ctx)
	if err != nil {
		guard.Stop()
		return false
	}
	w.mu.Lock()
	w.out, w.unconfirmed, w.up, w.owed = nil, 0, true, w.gap
	for _, x := range w.all {
		if w.gap {
			x.from = 0
		}
		w.createLocked(x)
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
		tell := w.owed && w.unconfirmed == 0
		w.owed = w.owed && !tell
		w.mu.Unlock()
		if tell {
			w.notifyGap()
		}
		guard.Reset(heartbeat)
		for _, r := range out {
			if stream.Send(r) != nil {
				return answered
			}
		}
		guard.Stop()
		select {
		case <-came:
			answered, asked = true, false
			quiet.Reset(heartbeat)
		case <-quiet.C:
			if asked {
				return answered
			}
			asked = true
			quiet.Reset(heartbeat)
			w.mu.Lock()
			w.out = append(w.out, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
			w.mu.Unlock()
		case <-w.wake:
		case <-ended:
			return answered
		case <-ctx.Done():
			return answered
		}
	}
}

// take handles a response; false breaks the stream.
func (w *watcher) take(r *pb.WatchResponse) bool {
	w.mu.Lock()
	x := w.all[r.WatchId]
	if x == nil {
		// The watch was removed meanwhile, or the server has answered whether
		// the stream lives. A refusal of the stream itself has no number
		// either.
		w.mu.Unlock()
		return !(r.Canceled && r.WatchId <= 0)
	}
	if r.Canceled {
		// The reason is a compaction (F70), or a right or token that is gone.
		// Compacted events are not needed: the watch begins anew, at the
		// present revision.
		if r.CompactRevision == 0 {
			w.refusal = r.CancelReason
			w.mu.Unlock()
			return false
		}
		if !x.ack {
			w.unconfirmed--
		}
		x.from = 0
		delete(w.all, x.id)
		w.last++
		x.id = w.last
		w.all[x.id] = x
		w.createLocked(x)
		w.kick()
		w.mu.Unlock()
		x.fire(event{gap: true})
		return true
	}
	late := false
	if r.Created && !x.ack {
		x.ack = true
		late, x.late = x.late, false
		w.unconfirmed--
		w.refusal = ""
		select {
		case <-x.on:
		default:
			close(x.on)
		}
	}
	w.mu.Unlock()
	if late {
		w.onGap()
	}
	for _, e := range r.Events {
		x.fire(event{deleted: e.Type == 1, value: string(e.Kv.GetValue()), rev: e.Kv.GetModRevision()})
	}
	return true
}

// notifyGap notifies every watch, and then the driver, of a gap.
func (w *watcher) notifyGap() {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.all))
	w.mu.Unlock()
	for _, x := range all {
		x.fire(event{gap: true})
	}
	w.onGap()
}

// reportLate reports whether a watch is confirmed. If it is not, its confirmation
// will report a gap, because callers go on without it.
func (w *watcher) reportLate(x *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.late = !x.ack
	return x.ack
}

// confirmed reports whether a watch is confirmed and its stream open.
func (w *watcher) confirmed(x *watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up && x.ack
}

// withRefusal adds the server's last reason against a watch to an error.
func (w *watcher) withRefusal(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refusal != "" {
		return fmt.Errorf("the server refuses a watch: %s: %w", w.refusal, err)
	}
	return err
}
