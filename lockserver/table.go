package lockserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

// table has the holds of this server by id, and the ids that were released. It knows no
// HTTP. Its mutex guards every hold in it, too.
type table struct {
	store       *store
	owners      bool // the store has named owners
	realm       string
	longest     time.Duration // TTL
	quota       *quota
	subscribers *subscribers
	onHold      func(e HoldInfo) // nil: nobody listens

	// ending is closed, under mu, when the server drains: polls and streams end.
	ending  chan struct{}
	running sync.WaitGroup // goroutines that take or release locks

	mu       sync.Mutex
	holds    map[holdKey]*hold
	queues   map[queueKey]*localQueue
	released releasedIDs
	releases map[holdKey]*release // under way, or not confirmed
	live     int                  // holds that a drain waits for
	drained  chan struct{}        // closed when the server drains and none is left
}

func newTable(st *store, o Options, traits holdfast.Traits, q *quota, subs *subscribers) *table {
	return &table{
		store: st, owners: traits.Owner, realm: o.Realm, longest: o.Limits.MaxTTL, quota: q, subscribers: subs, onHold: o.Events.Hold,
		ending: make(chan struct{}), holds: make(map[holdKey]*hold), queues: make(map[queueKey]*localQueue), releases: make(map[holdKey]*release), drained: make(chan struct{}),
	}
}

// holdKey identifies a hold: the hash of realm, principal and id.
type holdKey [sha256.Size]byte

// ownerPrefix begins the owners of holds at the store.
const ownerPrefix = "serve:"

func (t *table) keyOf(principal, id string) holdKey {
	b := strconv.AppendQuote(make([]byte, 0, 128), t.realm)
	b = strconv.AppendQuote(append(b, ' '), principal)
	return sha256.Sum256(strconv.AppendQuote(append(b, ' '), id))
}

// owner returns the name at the store that all servers give to a hold.
func (k holdKey) owner() string {
	return string(hex.AppendEncode(append(make([]byte, 0, len(ownerPrefix)+2*len(k)), ownerPrefix...), k[:]))
}

// attach finds the hold of an id, or begins one. The caller ends with detach.
func (t *table) attach(from *sender, a *acquireRequest) (*hold, *problem) {
	key := t.keyOf(from.who.Name, a.id)
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.holds[key]
	if h == nil {
		if t.released.has(key) {
			return nil, released()
		}
		if t.isEnding() && a.resume == 0 {
			return nil, draining()
		}
		if bad := t.quota.checkHold(&from.who, a.spec.name); bad != nil {
			return nil, bad
		}
		h = t.newHold(from, key, a)
		t.addLocked(h)
		h.startLocked(a.resume)
	} else if h.spec != a.spec {
		return nil, newProblem(http.StatusConflict, "id_in_use", "the id asks for another name, kind or TTL than before")
	}
	switch {
	case a.resume == 0 || h.state == over || a.resume == h.token || a.resume == h.want:
	case h.waitsLocked(): // another server has heard of the grant before this one: see hear
	default:
		return nil, lost("gone")
	}
	if bad := h.recheckLocked(a.resume); bad != nil {
		return nil, bad
	}
	h.seen = time.Now()
	h.polls++
	return h, nil
}

// detach ends what attach or findLocked began.
func (t *table) detach(h *hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h.polls--
	h.seen = time.Now()
}

// newHold returns a hold of an id that is new here.
func (t *table) newHold(from *sender, key holdKey, a *acquireRequest) *hold {
	h := &hold{
		t: t, key: key, owner: key.owner(), id: a.id, who: from.who.Name, remote: from.remote, spec: a.spec, asked: time.Now(),
		prefixes: from.who.boundsOf(a.spec.name), try: a.try, maxHold: a.maxHold,
	}
	h.opts = make([]holdfast.Option, 0, len(a.opts)+4) // kept as long as the hold
	h.opts = append(append(h.opts, a.opts...), holdfast.WithTTL(a.spec.ttl), holdfast.WithManualRenewal(), holdfast.WithWaiting(h.onWaiting))
	if !a.spec.pinned {
		h.opts = append(h.opts, holdfast.WithOwner(h.owner))
	}
	return h
}

// findLocked finds the hold of an id that is renewed, and begins an owner check if it was
// lost here. The caller ends with detach.
func (t *table) findLocked(who *Principal, id string) (*hold, *problem) {
	key := t.keyOf(who.Name, id)
	h := t.holds[key]
	switch {
	case h == nil && t.released.has(key):
		return nil, released()
	case h == nil:
		return nil, unknownHold()
	case !who.may(RightLock, h.spec.name):
		return nil, forbidden(RightLock, h.spec.name)
	}
	if bad := h.recheckLocked(0); bad != nil {
		return nil, bad
	}
	h.seen = time.Now()
	h.polls++
	return h, nil
}

// addLocked makes a hold known; removeLocked forgets it.
func (t *table) addLocked(h *hold) {
	t.holds[h.key] = h
	t.quota.countHold(h.who, 1)
}

func (t *table) removeLocked(h *hold) {
	if h.removed {
		return
	}
	h.removed = true
	delete(t.holds, h.key)
	t.quota.countHold(h.who, -1)
	t.leaveQueueLocked(h)
	t.countWaitLocked(h, false)
	t.countLiveLocked(h, false)
	if h.timer != nil {
		h.timer.Stop()
	}
	if h.question != nil {
		h.question.cancel()
	}
	if h.unwatch != nil {
		h.unwatch()
	}
	h.changeLocked()
}

// countLiveLocked counts h among the holds that a drain waits for, or no longer.
func (t *table) countLiveLocked(h *hold, on bool) {
	if h.live == on {
		return
	}
	h.live = on
	if on {
		t.live++
		return
	}
	t.live--
	t.checkDrainedLocked()
}

// countWaitLocked counts h among the waits of its principal, or no longer.
func (t *table) countWaitLocked(h *hold, on bool) {
	if h.counted == on {
		return
	}
	h.counted = on
	n := 1
	if !on {
		n = -1
	}
	t.quota.countWait(h.who, h.prefixes, n)
}

// unlock releases a lock that no request waits for. The client repeats a release without
// an answer until the lease has ended. The release begins before its hold is noted as ended,
// on which a drain waits for those that have begun.
func (t *table) unlock(lock *holdfast.Hold) { t.running.Go(func() { _ = lock.Unlock() }) }

// isEnding reports whether the server drains.
func (t *table) isEnding() bool {
	select {
	case <-t.ending:
		return true
	default:
		return false
	}
}

// end begins a drain, and returns a channel that is closed once no hold is left. It may be
// called again.
func (t *table) end() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isEnding() {
		close(t.ending)
	}
	t.checkDrainedLocked()
	return t.drained
}

// checkDrainedLocked notes that a server that drains has nothing left.
func (t *table) checkDrainedLocked() {
	if !t.isEnding() || t.live > 0 {
		return
	}
	select {
	case <-t.drained:
	default:
		close(t.drained)
	}
}

// abandon keeps the places of resumable holds at the store, whatever becomes of the
// client, and returns the number of holds and waits of which it cannot.
func (t *table) abandon() (left int) {
	var resumable []*hold
	t.mu.Lock()
	for _, h := range t.holds {
		switch {
		case h.state == held && h.resumable():
			resumable = append(resumable, h)
		case h.state != over:
			left++
		}
	}
	t.mu.Unlock()
	for _, h := range resumable {
		t.mu.Lock()
		lock := h.lock
		h.failed = unknownHold() // for a renewal under way: another server can go on with it
		t.removeLocked(h)
		t.mu.Unlock()
		if lock != nil {
			_ = lock.Detach() // an error says that it has ended
		}
	}
	return left
}

// requestContext bounds what a request asks of the store.
func requestContext(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, limit)
}
