package lockserver

import (
	"errors"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/holdfast-go/holdfast"
)

// holdParams are the fields of POST /v1/hold.
var holdParams = func() map[string]paramType {
	p := maps.Clone(acquireParams)
	p["on_close"] = text
	return p
}()

// maxHoldBeat is the longest time between two events of a hold's stream.
const maxHoldBeat = 3 * time.Second

// serveHold answers POST /v1/hold: a hold that lasts as long as its connection. The
// server renews it while writing works, so a proxy between would keep the lock of a
// client that is dead, and is refused; max_hold_ms bounds what a client that is stopped
// can keep.
func (s *Server) serveHold(c *call) {
	c.withHold(holdParams, c.parseHoldStream, func(h *hold, a *acquireRequest) {
		if s.streamHold(c, h) && a.release {
			s.release(c, ending{id: a.id, name: a.spec.name})
		}
	})
}

func (c *call) parseHoldStream(p params) (*acquireRequest, *problem) {
	for _, header := range []string{"Via", "Forwarded", "X-Forwarded-For"} {
		if c.r.Header.Get(header) != "" {
			return nil, newProblem(http.StatusBadRequest, "unsupported", "a proxy is in between (%s), which would answer for a client that is dead: acquire instead", header)
		}
	}
	switch {
	case !p.has("max_hold_ms"):
		return nil, badRequest("max_hold_ms is missing: it bounds what a client that is stopped can keep")
	case p.has("on_close") && p.text("on_close") != "expire" && p.text("on_close") != "release":
		return nil, badRequest("on_close: expire and release are possible")
	}
	a, bad := c.parseAcquire(p)
	if bad == nil {
		a.release = p.text("on_close") == "release"
	}
	return a, bad
}

// streamHold writes an event at each beat: waiting, held, and lost at the end. It
// returns when the hold has ended or the connection is of no use, and reports whether
// the client has ended it. Otherwise the client may still work, for as long as the last
// event has told.
func (s *Server) streamHold(c *call, h *hold) (left bool) {
	beat := time.NewTicker(min(h.spec.ttl/10, maxHoldBeat))
	defer beat.Stop()
	begun := false
	var renewed time.Time
	for {
		bad := c.identifyAgain()
		if bad == nil {
			bad = c.may(RightLock, h.spec.name)
		}
		if bad != nil {
			if !begun {
				c.fail(bad)
			}
			return false
		}
		s.mu.Lock()
		var e fields
		var lock *holdfast.Hold
		switch {
		case h.state == over || h.removed:
			send := s.answerLocked(c, h)
			last := h.lastEvent()
			s.mu.Unlock()
			if !begun {
				send()
				return false
			}
			_ = c.sendEvent(last) // the connection may be gone
			return false
		case h.settledLocked():
			s.sentLocked(h)
			lock = h.lock
			e = fields{{"event", "held"}, {"id", h.id}, {"token", h.token}, {"left_ms", h.leftLocked(time.Now())}}
		case h.state == waiting:
			e = append(fields{{"event", "waiting"}, {"id", h.id}}, h.waitingLocked(nil, time.Now())[1:]...)
		}
		changed := h.changeOfLocked()
		s.mu.Unlock()
		if e != nil {
			if !begun {
				c.beginStream()
				begun = true
			}
			if err := c.sendEvent(e); err != nil {
				return !errors.Is(err, os.ErrDeadlineExceeded)
			}
		}
		if lock != nil && time.Since(renewed) >= h.spec.ttl/4 {
			if renewed.IsZero() || s.renewStream(c, h, lock) {
				renewed = time.Now()
			}
		}
		select {
		case <-changed:
		case <-beat.C:
		case <-s.ending:
			if begun {
				_ = c.sendEvent(fields{{"event", "draining"}, {"id", h.id}})
			} else {
				c.fail(draining())
			}
			return false
		case <-c.r.Context().Done():
			return true
		}
	}
}

// renewStream renews the hold of a stream, and reports whether the store has confirmed
// that. A failure leaves the claim as it is: the next beat asks again.
func (s *Server) renewStream(c *call, h *hold, lock *holdfast.Hold) bool {
	ctx, cancel := requestContext(c.r.Context(), h.spec.ttl/8)
	defer cancel()
	if lock.Renew(ctx) != nil {
		return false
	}
	s.onRenewed(h, lock)
	return true
}

// lastEvent returns the event of a hold that has ended. Server.mu guards h.
func (h *hold) lastEvent() fields {
	switch {
	case h.failed != nil:
		return append(fields{{"event", "lost"}, {"id", h.id}, {"code", h.failed.code}}, h.failed.more...)
	case h.reason != "":
		return lostEvent(h, h.reason)
	case h.removed:
		return fields{{"event", "released"}, {"id", h.id}}
	}
	return lostEvent(h, "gone")
}
