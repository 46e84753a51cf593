package lockserver

import (
	"context"
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
	p["on_close"] = isText
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
		if h.maxHold == 0 || h.maxHold > a.maxHold {
			c.fail(newProblem(http.StatusConflict, "id_in_use", "the id holds or waits with a longer max_hold_ms, or with none"))
			return
		}
		if holdsSince(h, c.begun) {
			_ = h.extend(c.r.Context(), c.begun) // the first event tells what is left
		}
		if c.streamHold(h, a.resume) && a.release {
			c.release(ending{id: a.id, name: a.spec.name})
		}
	})
}

// holdsSince reports whether h held before then.
func holdsSince(h *hold, then time.Time) bool {
	h.t.mu.Lock()
	defer h.t.mu.Unlock()
	return (h.state == granted || h.state == held) && h.since.Before(then)
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
// event has told. With resume, the store is asked again at each beat until this server has
// heard of that grant.
func (c *call) streamHold(h *hold, resume uint64) (left bool) {
	t := c.s.table
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
		t.mu.Lock()
		if resume != 0 {
			h.askLocked(resume)
		}
		st := h.tellLocked(c.r.Context(), time.Now())
		lock, changed := h.lock, h.changeOfLocked()
		t.mu.Unlock()
		if st.state == over && !begun {
			c.stand(st)
			return false
		}
		e := st.event()
		if e != nil {
			if !begun {
				c.beginStream()
				begun = true
			}
			if err := c.sendEvent(e); err != nil {
				return st.state != over && !errors.Is(err, os.ErrDeadlineExceeded)
			}
		}
		if st.state == over {
			return false
		}
		if st.holds() && !st.ended && st.left < h.spec.ttl.Milliseconds()*3/4 && time.Since(renewed) >= h.spec.ttl/4 && h.renewStream(c.r.Context(), lock) {
			renewed = time.Now()
		}
		select {
		case <-changed:
		case <-beat.C:
		case <-t.ending:
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
func (h *hold) renewStream(ctx context.Context, lock *holdfast.Hold) bool {
	ctx, cancel := requestContext(ctx, answerLimit(h.spec.ttl))
	defer cancel()
	if lock.Renew(ctx) != nil {
		return false
	}
	h.onRenewed(lock)
	return true
}
