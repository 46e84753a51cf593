package lockserver

import (
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

var acquireParams = map[string]paramType{
	"id": text, "name": text, "ttl_ms": number, "kind": text, "permits": number, "of": number, "try": boolean,
	"wait_ms": number, "max_hold_ms": number, "pinned": boolean, "resume": number, "note": text, "host": text, "pid": number,
}

// acquireRequest is a request to hold, after all checks.
type acquireRequest struct {
	id     string
	spec   spec
	try    bool
	wait   time.Duration
	resume uint64
	// release: the hold ends with the connection of its stream.
	release bool
	opts    []holdfast.Option // beside those that follow from spec and id
}

// parseAcquire checks the fields of POST /v1/acquire and /v1/hold.
func (c *call) parseAcquire(p params) (*acquireRequest, *problem) {
	s, l := c.s, c.s.options.Limits
	a := &acquireRequest{id: p.text("id"), try: p.flag("try"), wait: defaultWait}
	a.spec = spec{name: p.text("name"), kind: kindMutex, ttl: time.Duration(p.number("ttl_ms")) * time.Millisecond}
	if bad := checkID(a.id); bad != nil {
		return nil, bad
	}
	if bad := s.checkName(a.spec.name); bad != nil {
		return nil, bad
	}
	if ms := p.number("ttl_ms"); !p.has("ttl_ms") || ms < l.MinTTL.Milliseconds() || ms > l.MaxTTL.Milliseconds() {
		return nil, newProblem(http.StatusBadRequest, "bad_ttl", "ttl_ms: the server allows %d to %d", l.MinTTL.Milliseconds(), l.MaxTTL.Milliseconds()).
			with("min_ms", l.MinTTL.Milliseconds()).with("max_ms", l.MaxTTL.Milliseconds())
	}
	if p.has("wait_ms") {
		ms := p.number("wait_ms")
		if ms < 0 || ms > maxWait.Milliseconds() {
			return nil, badRequest("wait_ms: 0 to %d are possible", maxWait.Milliseconds())
		}
		a.wait = time.Duration(ms) * time.Millisecond
	}
	if bad := c.parseKind(p, &a.spec); bad != nil {
		return nil, bad
	}
	if p.has("resume") {
		if p.number("resume") <= 0 {
			return nil, badRequest("resume: a token is above 0")
		}
		if a.spec.pinned {
			return nil, newProblem(http.StatusBadRequest, "unsupported", "a pinned hold dies with its server, and cannot be resumed")
		}
		a.resume = uint64(p.number("resume"))
	}
	return a, c.parseHolder(p, a)
}

// parseKind checks kind, permits, of and pinned.
func (c *call) parseKind(p params, sp *spec) *problem {
	if p.has("kind") {
		sp.kind = p.text("kind")
	}
	switch sp.kind {
	case kindMutex, kindPermits:
	case kindRead, kindWrite:
	default:
		return badRequest("kind: mutex, read, write and permits are possible")
	}
	if sp.kind != kindMutex && !c.s.traits.Shared {
		return newProblem(http.StatusBadRequest, "unsupported", "the store has mutexes only")
	}
	if sp.kind != kindPermits && (p.has("permits") || p.has("of")) {
		return badRequest("permits and of are fields of the kind permits")
	}
	if sp.kind == kindPermits {
		sp.permits, sp.of = 1, p.number("of")
		if p.has("permits") {
			sp.permits = p.number("permits")
		}
		if sp.permits < 1 || sp.of < sp.permits || sp.of > 1<<31-1 || sp.of == driver.RWLimit {
			return badRequest("permits: 1 to of, and of at most 2147483647, but not 1073741824")
		}
	}
	owners := c.s.traits.Owner && sp.kind != kindPermits
	sp.pinned = !owners || p.flag("pinned")
	if !owners && p.has("pinned") && !p.flag("pinned") {
		return newProblem(http.StatusBadRequest, "unsupported", "holds of this kind are pinned to their server on this store")
	}
	return nil
}

// parseHolder checks note, host, pid and max_hold_ms.
func (c *call) parseHolder(p params, a *acquireRequest) *problem {
	note, host, pid := p.text("note"), p.text("host"), p.number("pid")
	switch {
	case len(note) > maxNoteSize || strings.ContainsFunc(note, unicode.IsControl):
		return badRequest("note: at most %d bytes without control characters are possible", maxNoteSize)
	case len(host) > 256 || strings.ContainsFunc(host, unicode.IsControl):
		return badRequest("host: at most 256 bytes without control characters are possible")
	case pid < 0 || pid > 1<<31:
		return badRequest("pid: 0 to %d are possible", int64(1)<<31)
	}
	longest := time.Duration(p.number("max_hold_ms")) * time.Millisecond
	const years = 10 * 365 * 24 * time.Hour
	if ms := p.number("max_hold_ms"); p.has("max_hold_ms") && (ms < 1 || ms > years.Milliseconds()) {
		return badRequest("max_hold_ms: 1 to %d are possible", years.Milliseconds())
	}
	if g, _ := c.who.grantOf(RightLock, a.spec.name); g.MaxHold > 0 && (longest == 0 || longest > g.MaxHold) {
		longest = g.MaxHold
	}
	a.opts = []holdfast.Option{
		holdfast.WithNote(note), holdfast.WithMaxHold(longest),
		holdfast.WithHolder(holdfast.Holder{Host: host, PID: int(pid), Via: via(c.s.name, remoteOf(c.r), c.who.Name)}),
	}
	return nil
}

// checkName refuses a name that the server or the store does not take.
func (s *Server) checkName(name string) *problem {
	if len(name) > s.options.Limits.NameSize {
		return newProblem(http.StatusBadRequest, "bad_name", "name: %d bytes; at most %d are possible", len(name), s.options.Limits.NameSize)
	}
	if err := driver.CheckName(name); err != nil {
		return newProblem(http.StatusBadRequest, "bad_name", "%v", err)
	}
	return nil
}

// serveAcquire answers POST /v1/acquire: held, or waiting after wait_ms.
func (s *Server) serveAcquire(c *call) {
	c.withHold(acquireParams, c.parseAcquire, func(h *hold, a *acquireRequest) {
		if a.resume != 0 {
			if bad := s.extend(c, h); bad != nil {
				c.fail(bad)
				return
			}
		}
		s.poll(c, h, a.wait)
	})
}

// withHold reads a request to hold, and calls serve with its hold, or answers why there
// is none. Until serve returns, the request counts as one that waits.
func (c *call) withHold(allowed map[string]paramType, parse func(params) (*acquireRequest, *problem), serve func(*hold, *acquireRequest)) {
	var a *acquireRequest
	p, bad := readParams(c.w, c.r, allowed)
	if bad == nil {
		a, bad = parse(p)
	}
	if bad == nil {
		bad = c.may(RightLock, a.spec.name)
	}
	if bad == nil {
		bad = c.s.quota.beginPoll(c.who.Name)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	defer c.s.quota.endPoll(c.who.Name)
	h, bad := c.s.attach(c, a)
	if bad != nil {
		c.fail(bad)
		return
	}
	defer c.s.detach(h)
	serve(h, a)
}

// attach finds the hold of an id, or begins one. The caller ends with detach.
func (s *Server) attach(c *call, a *acquireRequest) (*hold, *problem) {
	key := s.keyOf(c.who.Name, a.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[key]
	if h == nil {
		if s.released.has(key) {
			return nil, released()
		}
		if s.draining && a.resume == 0 {
			return nil, draining()
		}
		if bad := s.quota.checkHold(&c.who, a.spec.name); bad != nil {
			return nil, bad
		}
		h = s.newHold(c, key, a)
		s.addLocked(h)
		h.try = a.try
		s.startLocked(h, a.resume)
	} else if h.spec != a.spec {
		return nil, newProblem(http.StatusConflict, "id_in_use", "the id asks for another name, kind or TTL than before")
	}
	switch {
	case a.resume == 0 || h.state == over || a.resume == h.token || a.resume == h.want:
	case (h.state == joining || h.state == waiting) && h.want == 0:
		s.startLocked(h, a.resume) // another server has heard of the grant before this one
	default:
		return nil, lost("gone")
	}
	if bad := s.recheckLocked(h, a.resume); bad != nil {
		return nil, bad
	}
	h.seen = time.Now()
	h.polls++
	return h, nil
}

// recheckLocked begins an owner check of a hold that is over here, unless its end is
// known for certain. resume is the token that the client names, 0 for that of the hold.
// Server.mu guards h.
func (s *Server) recheckLocked(h *hold, resume uint64) *problem {
	if h.state != over || h.removed {
		return nil
	}
	if resume == 0 {
		resume = h.token
	}
	if h.reason == "max_hold" || !h.resumable() || resume == 0 {
		return lost(h.reason)
	}
	s.startLocked(h, resume)
	return nil
}

// newHold returns a hold of an id that is new here.
func (s *Server) newHold(c *call, key holdKey, a *acquireRequest) *hold {
	h := &hold{key: key, id: a.id, who: c.who.Name, remote: remoteOf(c.r), spec: a.spec, asked: time.Now(), prefixes: c.who.boundsOf(a.spec.name)}
	h.opts = make([]holdfast.Option, 0, len(a.opts)+4) // kept as long as the hold
	h.opts = append(append(h.opts, a.opts...), holdfast.WithTTL(a.spec.ttl), holdfast.WithManualRenewal(),
		holdfast.WithWaiting(func(w holdfast.Waiting) { s.onWaiting(h, w) }))
	if !a.spec.pinned {
		h.opts = append(h.opts, holdfast.WithOwner(key.owner()))
	}
	return h
}

// detach ends what attach began.
func (s *Server) detach(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.polls--
	h.seen = time.Now()
}

// poll answers when h holds or has failed, or when the wait is over.
func (s *Server) poll(c *call, h *hold, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	waited, atOnce := false, false
	for {
		s.mu.Lock()
		if atOnce || h.settledLocked() || waited && h.state == waiting {
			send := s.answerLocked(c, h)
			s.mu.Unlock()
			send()
			return
		}
		changed := h.changeOfLocked()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			// An answer says where the id stands, so the store's first one is waited for.
			atOnce = waited || h.spec.ttl/8 <= wait
			waited = true
			timer.Reset(max(h.spec.ttl/8-wait, 0))
		case <-s.ending:
			atOnce = true
		case <-c.r.Context().Done():
			return // nothing is sent
		}
	}
}

// settledLocked reports whether h holds, or has no hold and waits for none. Server.mu
// guards h.
func (h *hold) settledLocked() bool {
	switch h.state {
	case granted, held:
		return h.lock.Err() == nil // else its end is about to be noted
	case over:
		return true
	}
	return h.removed
}

// answerLocked returns the function that answers an acquire with the state of h, and
// notes that the client may learn of a grant. Server.mu guards h.
func (s *Server) answerLocked(c *call, h *hold) func() {
	f := fields{}
	status := http.StatusOK
	switch {
	case h.state == over || h.removed:
		p := h.failed
		switch {
		case p != nil:
		case h.reason != "":
			p = lost(h.reason)
		case s.released.has(h.key):
			p = released()
		default:
			p = newProblem(http.StatusServiceUnavailable, "store_unknown", "the hold has just ended here: ask again")
		}
		return func() { c.fail(p) }
	case h.state == granted || h.state == held:
		if c.r.Context().Err() != nil {
			return func() {}
		}
		if h.lock.Err() != nil {
			p := newProblem(http.StatusServiceUnavailable, "store_unknown", "the hold has just ended here: ask again")
			return func() { c.fail(p) }
		}
		s.sentLocked(h)
		f = f.with("state", "held").with("token", h.token).with("left_ms", h.leftLocked(c.begun))
	default:
		status = http.StatusAccepted
		f = h.waitingLocked(f, c.begun)
	}
	f = f.with("resumable", h.resumable())
	if s.draining {
		f = f.with("draining", true)
	}
	return func() { _ = c.answer(status, f) } // a client that is gone asks again
}

// waitingLocked adds what is known of the place of h. Server.mu guards h.
func (h *hold) waitingLocked(f fields, begun time.Time) fields {
	f = f.with("state", "waiting")
	if h.place.Ahead >= 0 && h.state == waiting {
		f = f.with("ahead", h.place.Ahead)
	}
	if by := holderOf(h.place.Holder); len(by) > 0 {
		f = f.with("holder", by)
	}
	return f.with("left_ms", leftMS(h.place.Until, begun))
}

// leftLocked returns what is left of the hold's claim at the begin of a request. The time
// for which the machine was suspended since the last renewal is missing in until, and the
// client library counts it. Server.mu guards h.
func (h *hold) leftLocked(begun time.Time) int64 {
	return min(leftMS(h.until, begun), leftMS(h.lock.Deadline(), begun))
}

// leftMS returns what is left of a claim at the begin of a request, in milliseconds
// rounded down; 0 if there is none.
func leftMS(until, begun time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	return max(0, until.Sub(begun).Milliseconds())
}
