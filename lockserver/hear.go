package lockserver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
)

// question is the owner check of a hold whose id waits here, because its client has heard of
// the grant by another server. The wait goes on until the owner has another ticket here:
// its own may be the only one that holds, since the server that told the client gives its
// ticket up when the client asks it no more.
type question struct {
	h      *hold
	want   uint64 // the token that the client names
	cancel context.CancelFunc
	ended  chan struct{} // closed when no ticket is left but that of the hold
	bad    *problem      // why nobody knows; readable once ended is closed
}

// askLocked begins a question unless one is under way, and returns it. It returns nil if h
// does not wait for a turn.
func (h *hold) askLocked(want uint64) *question {
	if h.removed || !h.waitsLocked() {
		return nil
	}
	if h.question == nil {
		ctx, cancel := context.WithCancel(context.Background())
		h.question = &question{h: h, want: want, cancel: cancel, ended: make(chan struct{})}
		q := h.question
		h.t.running.Go(func() {
			defer close(q.ended)
			defer cancel()
			q.run(ctx)
		})
	}
	return h.question
}

// waitsLocked reports whether h waits for its turn, or is about to.
func (h *hold) waitsLocked() bool {
	return (h.state == joining || h.state == waiting) && h.want == 0
}

// aside is the difference between the TTLs of a wait and of a Try that must not stand behind
// it in the client library, which has a queue for each TTL.
const aside = time.Nanosecond

// run takes the lock beside the wait, and ends the wait. Without an answer, the wait goes on.
func (q *question) run(ctx context.Context) {
	h, t := q.h, q.h.t
	ttl := h.spec.ttl + aside
	if ttl > t.longest {
		ttl = h.spec.ttl - aside
	}
	lock, err := h.take(ctx, q.want, append(slices.Clip(h.opts), holdfast.WithTTL(ttl)))
	t.mu.Lock()
	ended := h.ended
	switch {
	case h.removed || !h.waitsLocked(): // it was released, or the wait has heard of the grant by itself
		ended = nil
	case err != nil && !errors.Is(err, errGone):
		q.bad, ended = problemOf(err), nil
	default:
		h.starts++ // the end of the wait is not the end of the hold
		h.want = q.want
		h.cancel()
		start := h.starts
		t.mu.Unlock()
		h.onTaken(start, lock, err)
		lock = nil
		t.mu.Lock()
	}
	t.mu.Unlock()
	if lock != nil {
		_ = lock.Unlock()
	}
	if ended != nil {
		<-ended
	}
	t.mu.Lock()
	h.question = nil
	t.mu.Unlock()
}

// hear waits until this server has heard of the grant by which a client resumes, for an
// eighth of the TTL at most. It returns a problem if it has not, or has heard of another.
func (t *table) hear(ctx context.Context, h *hold, want uint64) *problem {
	ctx, cancel := requestContext(ctx, answerLimit(h.spec.ttl))
	defer cancel()
	t.mu.Lock()
	q := h.askLocked(want)
	t.mu.Unlock()
	for {
		t.mu.Lock()
		waits := !h.removed && h.waitsLocked()
		other := (h.state == granted || h.state == held) && h.token != want
		changed := h.changeOfLocked()
		t.mu.Unlock()
		switch {
		case q == nil || !waits && !other:
			return nil
		case other || q.want != want:
			return lost("gone")
		}
		select {
		case <-changed:
			continue
		case <-q.ended:
		case <-ctx.Done():
			return newProblem(http.StatusServiceUnavailable, "store_unknown", "the store has not answered in time")
		}
		if q.bad != nil {
			return q.bad
		}
	}
}
