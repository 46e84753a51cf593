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
	"id": isText, "name": isText, "ttl_ms": isNumber, "kind": isText, "permits": isNumber, "of": isNumber, "try": isFlag,
	"wait_ms": isNumber, "max_hold_ms": isNumber, "pinned": isFlag, "resume": isNumber, "note": isText, "host": isText, "pid": isNumber,
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
	maxHold time.Duration     // 0: no bound
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
	a.maxHold = longest
	a.opts = []holdfast.Option{
		holdfast.WithNote(note), holdfast.WithMaxHold(longest),
		holdfast.WithHolder(holdfast.Holder{Host: host, PID: int(pid), Via: via(c.s.name, c.remote, c.who.Name)}),
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
			bad := s.table.hear(c.r.Context(), h, a.resume)
			if bad == nil {
				bad = h.extend(c.r.Context(), c.begun)
			}
			if bad != nil {
				c.fail(bad)
				return
			}
		}
		c.stand(h.poll(c.r.Context(), c.begun, a.wait))
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
	h, bad := c.s.table.attach(&c.sender, a)
	if bad != nil {
		c.fail(bad)
		return
	}
	defer c.s.table.detach(h)
	serve(h, a)
}
