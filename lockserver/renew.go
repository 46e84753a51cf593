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
	entries := make([]fields, len(ids))
	due := make([]*hold, 0, len(ids))
	at := make([]int, 0, len(ids))
	limit := maxWait
	s.mu.Lock()
	for i, id := range ids {
		h, bad := s.findLocked(c, id)
		if bad != nil {
			entries[i] = bad.entry(id)
			continue
		}
		h.polls++ // asked for until the answer
		due, at = append(due, h), append(at, i)
		limit = min(limit, h.spec.ttl/8)
	}
	ending := s.draining
	s.mu.Unlock()
	ctx, cancel := requestContext(c.r.Context(), limit)
	defer cancel()
	for i, e := range s.renew(ctx, c, due) {
		entries[at[i]] = e
	}
	f := fields{{"holds", entries}}
	if ending {
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

// findLocked finds the hold of an id, and begins an owner check if it was lost here.
// Server.mu guards it.
func (s *Server) findLocked(c *call, id string) (*hold, *problem) {
	key := s.keyOf(c.who.Name, id)
	h := s.holds[key]
	switch {
	case h == nil && s.released.has(key):
		return nil, released()
	case h == nil:
		return nil, unknownHold()
	case !c.who.may(RightLock, h.spec.name):
		return nil, forbidden(RightLock, h.spec.name)
	}
	if bad := s.recheckLocked(h, 0); bad != nil {
		return nil, bad
	}
	h.seen = time.Now()
	return h, nil
}

// renew renews holds whose polls findLocked's caller has counted, and returns an entry
// for each. A hold that the store does not answer for in time is in doubt, and its entry
// has the rest of the claim.
func (s *Server) renew(ctx context.Context, c *call, hs []*hold) []fields {
	locks := make([]*holdfast.Hold, 0, len(hs))
	of := make([]int, 0, len(hs))
	s.mu.Lock()
	for i, h := range hs {
		if h.state == granted || h.state == held {
			s.sentLocked(h) // the client has learned of the grant
			locks, of = append(locks, h.lock), append(of, i)
		}
	}
	s.mu.Unlock()
	failed := make([]error, len(hs))
	for i, err := range s.store.Renew(ctx, locks...) {
		failed[of[i]] = err
		if err == nil {
			s.onRenewed(hs[of[i]], locks[i])
		}
	}
	entries := make([]fields, len(hs))
	for i, h := range hs {
		entries[i] = s.renewed(ctx, c, h, failed[i])
		s.detach(h)
	}
	return entries
}

// extend renews a hold that a client asked to resume and that this server has: the client
// wants to go on. A balancer may bring all its renewals to another server, and only these
// requests here. extend returns a problem, with the rest of the claim, if the store has not
// confirmed that: another server may have a way to it.
func (s *Server) extend(c *call, h *hold) *problem {
	s.mu.Lock()
	lock := h.lock
	if h.state != granted && h.state != held || !h.since.Before(c.begun) { // the owner check has just renewed it
		s.mu.Unlock()
		return nil
	}
	s.sentLocked(h) // the client has the token
	s.mu.Unlock()
	ctx, cancel := requestContext(c.r.Context(), h.spec.ttl/8)
	defer cancel()
	err := s.store.Renew(ctx, lock)[0]
	switch {
	case err == nil:
		s.onRenewed(h, lock)
	case errors.Is(err, holdfast.ErrLost):
		s.awaitEnd(ctx, h)
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.recheckLocked(h, 0) // the answer says the same
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		if h.lock == lock && lock.Err() == nil {
			return problemOf(err).with("left_ms", h.leftLocked(c.begun))
		}
	}
	return nil
}

// onRenewed notes the claim of a hold that the store has confirmed.
func (s *Server) onRenewed(h *hold, lock *holdfast.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lock == lock && h.state == held {
		h.until = lock.Deadline()
	}
}

// renewed returns the entry of a hold after a renewal, which may have found it lost:
// then an owner check is waited for.
func (s *Server) renewed(ctx context.Context, c *call, h *hold, err error) fields {
	if errors.Is(err, holdfast.ErrLost) {
		s.awaitEnd(ctx, h)
		s.mu.Lock()
		if bad := s.recheckLocked(h, 0); bad != nil {
			s.mu.Unlock()
			return bad.entry(h.id)
		}
		s.mu.Unlock()
		err = nil
	}
	for {
		s.mu.Lock()
		settled := h.settledLocked() || h.state == waiting
		changed := h.changeOfLocked()
		if settled || ctx.Err() != nil {
			defer s.mu.Unlock()
			return s.entryLocked(c, h, err)
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// awaitEnd waits until the server has noted the end of a hold that the client has lost.
func (s *Server) awaitEnd(ctx context.Context, h *hold) {
	for {
		s.mu.Lock()
		noted := h.state != granted && h.state != held || h.lock.Err() == nil || h.removed
		changed := h.changeOfLocked()
		s.mu.Unlock()
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

// entryLocked returns the state of h as an entry of a batch. Server.mu guards h.
func (s *Server) entryLocked(c *call, h *hold, err error) fields {
	switch {
	case h.state == over || h.removed:
		switch {
		case h.failed != nil:
			return h.failed.entry(h.id)
		case h.reason != "":
			return lost(h.reason).entry(h.id)
		case !s.released.has(h.key):
			return unknownHold().entry(h.id)
		}
		return released().entry(h.id)
	case h.state == waiting:
		return h.waitingLocked(fields{{"id", h.id}}, c.begun)
	case h.state == joining || h.lock.Err() != nil:
		return newProblem(http.StatusServiceUnavailable, "store_unknown", "the store has not answered in time").entry(h.id)
	case err != nil:
		return problemOf(err).with("left_ms", h.leftLocked(c.begun)).entry(h.id)
	}
	return fields{{"id", h.id}, {"state", "held"}, {"token", h.token}, {"left_ms", h.leftLocked(c.begun)}, {"resumable", h.resumable()}}
}
