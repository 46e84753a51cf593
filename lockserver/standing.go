package lockserver

import (
	"net/http"
	"time"

	"github.com/holdfast-go/holdfast"
)

// standing is a copy of the state of an id at one moment. It becomes the answer to an
// acquire, an entry in the answer to a renewal, or an event of a stream.
type standing struct {
	id        string
	state     state // over for a hold that is forgotten
	settled   bool  // see settledLocked
	failed    *problem
	reason    string
	removed   bool // forgotten
	released  bool // by its client
	token     uint64
	place     holdfast.Waiting
	left      int64 // milliseconds of the claim, or of that of the place
	ended     bool  // the library has lost it, which is about to be noted
	resumable bool
	draining  bool
	unsent    bool // its client is gone, and does not learn of the hold
}

// standLocked returns where h stands. A claim is what is left of it at the begin of a
// request. The time for which the machine was suspended since the last renewal is missing
// in until, and the client library counts it.
func (h *hold) standLocked(begun time.Time) standing {
	st := standing{
		id: h.id, state: h.state, settled: h.settledLocked(), failed: h.failed, reason: h.reason, token: h.token, place: knownOf(h.place),
		resumable: h.resumable(), draining: h.t.isEnding(),
	}
	switch {
	case h.state == over || h.removed:
		st.state, st.removed, st.released = over, h.removed, h.t.released.has(h.key)
	case h.state == granted || h.state == held:
		st.left, st.ended = h.leftLocked(begun), h.lock.Err() != nil
	default:
		st.left = leftMS(placeEndLocked(h), begun)
		if h.maxHold > 0 { // a grant that an event tells is believed for no longer
			st.left = min(st.left, h.maxHold.Milliseconds())
		}
	}
	return st
}

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

// holds reports whether the id holds.
func (st *standing) holds() bool { return st.state == granted || st.state == held }

// end returns why there is no hold, or otherwise where nobody knows.
func (st *standing) end(otherwise *problem) *problem {
	switch {
	case st.failed != nil:
		return st.failed
	case st.reason != "":
		return lost(st.reason)
	case st.released:
		return released()
	}
	return otherwise
}

// answer returns the answer to an acquire.
func (st *standing) answer() (status int, f fields, bad *problem) {
	switch {
	case st.state == over:
		return 0, nil, st.end(justEnded())
	case st.ended:
		return 0, nil, justEnded()
	case st.holds():
		status, f = http.StatusOK, append(make(fields, 0, 8), field{"state", "held"}, field{"token", st.token}, field{"left_ms", st.left})
	case st.left == 0 && st.draining:
		return 0, nil, draining()
	case st.left == 0: // the client asks the next server, which may reach the store
		return 0, nil, unanswered()
	default:
		status, f = http.StatusAccepted, st.waiting(nil)
	}
	f = f.with("resumable", st.resumable)
	if st.draining {
		f = f.with("draining", true)
	}
	return status, f, nil
}

// waiting adds what is known of the place.
func (st *standing) waiting(f fields) fields {
	f = f.with("state", "waiting")
	if st.place.Ahead >= 0 && st.state == waiting {
		f = f.with("ahead", st.place.Ahead)
	}
	if by := holderOf(st.place.Holder); len(by) > 0 {
		f = f.with("holder", by)
	}
	return f.with("left_ms", st.left)
}

// entry returns an entry of a batch of renewals, of which one ended with err.
func (st *standing) entry(err error) fields {
	switch {
	case st.state == over:
		return st.end(unknownHold()).entry(st.id)
	case st.state == waiting && st.left > 0:
		return st.waiting(fields{{"id", st.id}})
	case st.state == joining || st.state == waiting || st.ended:
		return unanswered().entry(st.id)
	case err != nil:
		return problemOf(err).with("left_ms", st.left).entry(st.id)
	}
	return fields{{"id", st.id}, {"state", "held"}, {"token", st.token}, {"left_ms", st.left}, {"resumable", st.resumable}}
}

// event returns an event of the stream of a hold, nil while there is nothing to tell.
func (st *standing) event() fields {
	switch {
	case st.state == over && st.failed != nil:
		return append(fields{{"event", "lost"}, {"id", st.id}, {"code", st.failed.code}}, st.failed.more...)
	case st.state == over && st.reason != "":
		return lostEvent(st.id, st.reason)
	case st.state == over && st.removed:
		return fields{{"event", "released"}, {"id", st.id}}
	case st.state == over:
		return lostEvent(st.id, "gone")
	case st.state == waiting:
		return append(fields{{"event", "waiting"}, {"id", st.id}}, st.waiting(nil)[1:]...)
	case st.holds() && !st.ended:
		return fields{{"event", "held"}, {"id", st.id}, {"token", st.token}, {"left_ms", st.left}}
	}
	return nil
}

func lostEvent(id, reason string) fields {
	return fields{{"event", "lost"}, {"id", id}, {"reason", reason}}
}
