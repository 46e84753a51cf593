package holdfast

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waiting is the place of a Lock that waits, as the store last answered; see
// WithWaiting.
type Waiting struct {
	// Ahead is the number of places before this one, holders included; -1 where
	// the store does not tell, and without a place. More than 100 may be an upper
	// bound: a store need not look at each place to see which were given up.
	Ahead int
	// Holder is one that keeps the caller waiting; zero where not known.
	Holder Holder
	// Until is when the claim of the place ends unless it is renewed, by this
	// machine's clock. Zero without a place at the store: behind other goroutines
	// of this client, or while the store is asked for a new one.
	Until time.Time
}

// WithWaiting has f called while Lock, RLock, Acquire, Do, Once or Lead waits: at each
// answer of the store about the place, and when the place is lost. f runs on the
// goroutine that waits, outside of all mutexes, and may take and release locks; while
// it blocks, that goroutine takes no grant. f may also call Close or Shutdown: they end
// the wait, and do not wait for f. Shutdown waits for other locks of that goroutine. Panics of f are dropped. Nil, the default, is none.
// Try calls do not wait, and do not call f.
func WithWaiting(f func(w Waiting)) Option {
	return option(func(s *settings) { s.waiting = f })
}

// notePlaceLocked notes an answer of the store about the pending ticket t, which
// waits, for the goroutine at the head of the queue. queue.mu guards both.
func (q *queue) notePlaceLocked(t *ticket, st driver.Status) {
	t.ensureExtra().ahead = int32(st.Ahead)
	q.waiters.news++
	if h := q.waiters.first; h != nil && h.wait.spec.waiting != nil {
		h.wait.wake()
	}
}

// reportPlaceLocked calls the function of WithWaiting if there was an answer since
// its last call. sleeping says that the goroutine is about to sleep, which is due
// to be reported once. It reports whether it has unlocked queue.mu for the call.
func (w *wait) reportPlaceLocked(sleeping bool) bool {
	q := w.hold.queue
	if w.spec.waiting == nil || w.try || q.c.closing() {
		return false
	}
	if w.placeDue {
		if w.newsSeen == q.waiters.news {
			return false
		}
	} else if !sleeping {
		return false
	}
	w.placeDue, w.newsSeen = true, q.waiters.news
	e := Waiting{Ahead: -1, Holder: parseHolder(q.holder())}
	if t := q.pending; t != nil && t.state == driver.Waiting && q.waiters.first == w.hold {
		e.Ahead, e.Until = int(t.extra.ahead), q.c.clock.wall(instant(t.claim.Load()))
	}
	w.inCallback = true
	q.mu.Unlock()
	w.callWaiting(e)
	q.mu.Lock()
	w.inCallback = false
	return true
}

// callWaiting calls the function of WithWaiting, which may end the goroutine. It
// drops a panic.
func (w *wait) callWaiting(e Waiting) {
	returned := false
	defer w.giveUpUnlessReturned(&returned)
	callSafely(w.spec.waiting, e)
	returned = true
}

// callSafely calls f and drops a panic.
func callSafely[E any](f func(E), e E) {
	defer func() { _ = recover() }()
	f(e)
}
