package lockserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-go/holdfast"
)

// serveRenew answers POST /v1/renew: for each id its state, in the order of the ids.
func (s *Server) serveRenew(c *call) {
	ids, bad := readIDs(c.w, c.r)
	if bad != nil {
		c.fail(bad)
		return
	}
	entries := s.table.renew(c.r.Context(), &c.sender, ids)
	f := fields{{"holds", entries}}
	if s.table.isEnding() {
		f = f.with("draining", true)
	}
	_ = c.answer(http.StatusOK, f) // a client that is gone asks again
}

// readIDs returns the ids of a renewal.
func readIDs(w http.ResponseWriter, r *http.Request) ([]string, *problem) {
	body, isJSON, bad := readBody(w, r, maxBatchSize)
	if bad != nil {
		return nil, bad
	}
	var ids []string
	if isJSON {
		list, bad := parseList(body)
		if bad != nil {
			return nil, bad
		}
		for _, raw := range list {
			var id string
			if err := json.Unmarshal(raw, &id); err != nil {
				return nil, badRequest("field \"holds\" is a list of ids")
			}
			ids = append(ids, id)
		}
	} else {
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, badRequest("the form cannot be read")
		}
		for name := range values {
			if name != "id" {
				return nil, unknownField(name)
			}
		}
		ids = values["id"]
	}
	if bad := checkBatch(len(ids)); bad != nil {
		return nil, bad
	}
	for _, id := range ids {
		if bad := checkID(id); bad != nil {
			return nil, bad
		}
	}
	return ids, nil
}

// renew renews the holds of ids, and returns an entry for each. A hold that the store does
// not answer for in an eighth of its TTL is in doubt, and its entry has the rest of the
// claim.
func (t *table) renew(ctx context.Context, from *sender, ids []string) []fields {
	entries := make([]fields, len(ids))
	due := make([]renewal, 0, len(ids))
	locks := make([]*holdfast.Hold, 0, len(ids))
	limit := maxWait
	t.mu.Lock()
	for i, id := range ids {
		h, bad := t.findLocked(&from.who, id)
		if bad != nil {
			entries[i] = bad.entry(id)
			continue
		}
		r := renewal{h: h, entry: i}
		if h.state == granted || h.state == held {
			h.sentLocked() // the client has learned of the grant
			r.lock = h.lock
			locks = append(locks, h.lock)
		}
		due = append(due, r)
		limit = min(limit, answerLimit(h.spec.ttl))
	}
	t.mu.Unlock()
	bounded, cancel := requestContext(ctx, limit)
	defer cancel()
	errs := t.store.Renew(bounded, locks...)
	for i := range due {
		r := &due[i]
		if r.lock == nil {
			continue
		}
		r.err, errs = errs[0], errs[1:]
		if r.err == nil {
			r.h.onRenewed(r.lock)
		}
	}
	for _, r := range due {
		entries[r.entry] = r.h.renewed(ctx, bounded, from.begun, r.err)
		t.detach(r.h)
	}
	return entries
}

// renewal is one hold of a batch.
type renewal struct {
	h     *hold
	entry int            // of the answer
	lock  *holdfast.Hold // nil: there is none to renew
	err   error
}

// extend renews a hold that a client asked to resume and that this server has: the client
// wants to go on. A balancer may bring all its renewals to another server, and only these
// requests here. extend returns a problem, with the rest of the claim, if the store has not
// confirmed that: another server may have a way to it.
func (h *hold) extend(ctx context.Context, begun time.Time) *problem {
	t := h.t
	t.mu.Lock()
	lock := h.lock
	if h.state != granted && h.state != held || h.want != 0 && !h.since.Before(begun) { // the owner check has just renewed it
		t.mu.Unlock()
		return nil
	}
	h.sentLocked() // the client has the token
	t.mu.Unlock()
	ctx, cancel := requestContext(ctx, answerLimit(h.spec.ttl))
	defer cancel()
	err := lock.Renew(ctx)
	switch {
	case err == nil:
		h.onRenewed(lock)
	case errors.Is(err, holdfast.ErrLost):
		h.awaitEnd(ctx)
		t.mu.Lock()
		defer t.mu.Unlock()
		_ = h.recheckLocked(0) // the answer says the same
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		if h.lock == lock && lock.Err() == nil {
			return problemOf(err).with("left_ms", h.leftLocked(begun))
		}
	}
	return nil
}

// onRenewed notes the claim of a hold that the store has confirmed.
func (h *hold) onRenewed(lock *holdfast.Hold) {
	t := h.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.lock == lock && h.state == held {
		h.until = lock.Deadline()
		h.queue.noteHoldLocked(h, h.until)
	}
}

// renewed returns the entry of a hold after a renewal, which may have found it lost:
// then an owner check is waited for. The waits end with bounded. ctx is that of the
// request: as long as its client is there, the entry tells it of a grant that came
// meanwhile.
func (h *hold) renewed(ctx, bounded context.Context, begun time.Time, err error) fields {
	t := h.t
	if errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrReleased) { // the latter where this server has ended it
		h.awaitEnd(bounded)
		t.mu.Lock()
		if bad := h.recheckLocked(0); bad != nil {
			t.mu.Unlock()
			return bad.entry(h.id)
		}
		t.mu.Unlock()
		err = nil
	}
	for {
		t.mu.Lock()
		if h.settledLocked() || placeEndLocked(h).After(time.Now()) || bounded.Err() != nil {
			st := h.tellLocked(ctx, begun)
			t.mu.Unlock()
			return st.entry(err)
		}
		changed := h.changeOfLocked()
		t.mu.Unlock()
		select {
		case <-changed:
		case <-bounded.Done():
		}
	}
}

// awaitEnd waits until the server has noted the end of a hold that the client has lost.
func (h *hold) awaitEnd(ctx context.Context) {
	t := h.t
	for {
		t.mu.Lock()
		noted := h.state != granted && h.state != held || h.lock.Err() == nil || h.removed
		changed := h.changeOfLocked()
		t.mu.Unlock()
		if noted {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
