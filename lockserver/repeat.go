package lockserver

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast"
)

// release is the release of a hold, or of a place, that this server had. A request that
// repeats it waits for its result first: of two that ask the store at the same time, each
// finds that the other has taken the ticket away.
type release struct {
	key    holdKey
	spec   spec
	ticket string        // of the hold; empty for a place
	ended  chan struct{} // closed when result is known
	result string        // readable once ended is closed
}

// beginReleaseLocked notes that h is about to be released.
func (t *table) beginReleaseLocked(h *hold) *release {
	r := &release{key: h.key, spec: h.spec, ticket: h.lock.Ticket(), ended: make(chan struct{})}
	t.releases[h.key] = r
	return r
}

// endRelease notes the result of a release. A pinned ticket has no owner by which a
// repeated request finds it. So the release is remembered, if the store has not confirmed
// it, until the lease has ended there.
func (t *table) endRelease(r *release, result string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.result = result
	close(r.ended)
	if result != resultUnknown || !r.spec.pinned {
		delete(t.releases, r.key)
		return
	}
	time.AfterFunc(r.spec.ttl+r.spec.ttl/10+time.Second, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.releases[r.key] == r {
			delete(t.releases, r.key)
		}
	})
}

// repeat returns the result of a request that repeats a release which is under way, or
// which the store has not confirmed.
func (t *table) repeat(ctx context.Context, e ending, r *release) string {
	if !endWithin([]<-chan struct{}{r.ended}, releaseLimit(r.spec.ttl)) {
		return resultUnknown
	}
	switch {
	case !r.spec.pinned && (e.moved || r.result == resultUnknown):
		result := t.releaseAtStore(ctx, e, r.key, r.spec.ttl, nil, false)
		if result == resultGone {
			return resultReleased
		}
		return result
	case r.result != resultUnknown || r.ticket == "":
		return r.result
	}
	ctx, cancel := requestContext(ctx, releaseLimit(r.spec.ttl))
	defer cancel()
	if err := t.store.Break(ctx, r.spec.name, r.ticket); err != nil && !errors.Is(err, holdfast.ErrNoTicket) {
		return resultUnknown
	}
	return resultReleased
}
