package lockserver

import (
	"context"
	"time"
)

// poll returns where h stands when it holds or has failed, or when the wait is over.
func (h *hold) poll(ctx context.Context, begun time.Time, wait time.Duration) standing {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	waited, atOnce := false, false
	for {
		h.t.mu.Lock()
		if atOnce || h.settledLocked() || waited && placeEndLocked(h).After(time.Now()) {
			defer h.t.mu.Unlock()
			return h.tellLocked(ctx, begun)
		}
		changed := h.changeOfLocked()
		h.t.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			// An answer says where the id stands, so the store's first one is waited for.
			atOnce = waited || answerLimit(h.spec.ttl) <= wait
			waited = true
			timer.Reset(max(answerLimit(h.spec.ttl)-wait, 0))
		case <-h.t.ending:
			atOnce = true
		case <-ctx.Done():
			return standing{unsent: true}
		}
	}
}

// tellLocked returns where h stands, for its client, who may learn of the grant from now
// on unless it is gone.
func (h *hold) tellLocked(ctx context.Context, begun time.Time) standing {
	st := h.standLocked(begun)
	switch {
	case st.state == waiting:
		if until := begun.Add(time.Duration(st.left) * time.Millisecond); until.After(h.keptUntil) {
			h.keptUntil = until
		}
	case !st.holds():
	case ctx.Err() != nil:
		st.unsent = true
	case !st.ended:
		h.sentLocked()
	}
	return st
}
