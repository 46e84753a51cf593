package lockserver

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

var releaseParams = map[string]paramType{"id": isText, "name": isText, "moved": isFlag}

// ending is one hold that its client releases.
type ending struct {
	id, name string
	moved    bool
}

// The results of a release.
const (
	resultReleased = "released" // by this request, or by an earlier one
	resultGone     = "gone"     // it had ended before
	resultUnknown  = "unknown"  // the store has not answered: the same request again, or the TTL
)

// serveRelease answers POST /v1/release: a result for each id.
func (s *Server) serveRelease(c *call) {
	endings, bad := readEndings(c)
	if bad != nil {
		c.fail(bad)
		return
	}
	entries := make([]fields, len(endings))
	var group sync.WaitGroup
	if len(endings) == 1 { // as most are: another goroutine would cost more than it does
		entries[0], endings = c.release(endings[0]), nil
	}
	for i, e := range endings {
		group.Go(func() { entries[i] = c.release(e) })
	}
	group.Wait()
	f := append(make(fields, 0, 4), field{"holds", entries})
	if s.table.isEnding() {
		f = f.with("draining", true)
	}
	_ = c.answer(http.StatusOK, f) // a client that is gone asks again
}

func readEndings(c *call) ([]ending, *problem) {
	body, isJSON, bad := readBody(c.w, c.r, maxBatchSize)
	if bad != nil {
		return nil, bad
	}
	var all []params
	if isJSON {
		list, bad := parseList(body)
		if bad != nil {
			return nil, bad
		}
		for _, raw := range list {
			p, bad := parseJSON(raw, releaseParams)
			if bad != nil {
				return nil, bad
			}
			all = append(all, p)
		}
	} else {
		p, bad := parseForm(string(body), releaseParams)
		if bad != nil {
			return nil, bad
		}
		all = append(all, p)
	}
	endings := make([]ending, len(all))
	for i, p := range all {
		endings[i] = ending{id: p.text("id"), name: p.text("name"), moved: p.flag("moved")}
		if bad := checkID(endings[i].id); bad != nil {
			return nil, bad
		}
		if bad := c.s.checkName(endings[i].name); bad != nil {
			return nil, bad
		}
	}
	return endings, nil
}

// release releases for a sender that has the right to.
func (c *call) release(e ending) fields {
	if bad := c.may(RightLock, e.name); bad != nil {
		return bad.entry(e.id)
	}
	return c.s.table.release(c.r.Context(), c.who.Name, e)
}

// release ends the hold or the wait of an id, and remembers that: no acquire that is
// late or doubled takes the lock again at this server.
func (t *table) release(ctx context.Context, who string, e ending) fields {
	key := t.keyOf(who, e.id)
	t.mu.Lock()
	h := t.holds[key]
	if h != nil && h.spec.name != e.name {
		t.mu.Unlock()
		return newProblem(http.StatusConflict, "id_in_use", "the id asks for another name").entry(e.id)
	}
	again := h == nil && t.released.has(key)
	t.released.add(key)
	r := t.releases[key]
	if r != nil && h == nil && r.spec.name == e.name {
		t.mu.Unlock()
		return fields{{"id", e.id}, {"result", t.repeat(context.WithoutCancel(ctx), e, r)}}
	}
	var lock *holdfast.Hold
	ttl := t.longest
	waited := false
	var leaving []<-chan struct{} // closed when the tickets beside that of lock have left
	if h != nil {
		lock, ttl = h.lock, h.spec.ttl
		if h.state == joining || h.state == waiting {
			waited, leaving = true, append(leaving, h.ended)
			h.failed = released()
			h.cancel()
		}
		if h.question != nil {
			leaving = append(leaving, h.question.ended)
		}
		r = t.beginReleaseLocked(h)
		t.removeLocked(h)
	}
	t.mu.Unlock()
	result := t.carryOut(ctx, e, key, ttl, lock, leaving, waited)
	if h != nil {
		t.endRelease(r, result)
	}
	if result == resultGone && again {
		result = resultReleased
	}
	if result == resultReleased && lock != nil {
		h.report(HoldReleased, "")
	}
	return fields{{"id", e.id}, {"result", result}}
}

// carryOut ends the tickets of an id, once those that are leaving have left.
func (t *table) carryOut(ctx context.Context, e ending, key holdKey, ttl time.Duration, lock *holdfast.Hold, leaving []<-chan struct{}, waited bool) string {
	// The core gives the wait up with its ticket left, or after a third of the TTL.
	if !endWithin(leaving, releaseLimit(ttl)*9/10) {
		if lock != nil {
			t.unlock(lock)
		}
		return resultUnknown
	}
	return t.releaseAtStore(context.WithoutCancel(ctx), e, key, ttl, lock, waited)
}

// releaseLimit returns the time that the store has for the release of a place with a TTL.
func releaseLimit(ttl time.Duration) time.Duration {
	return min(max(ttl/3, 100*time.Millisecond), ioTimeout)
}

// endWithin reports whether all of ended are closed within a time.
func endWithin(ended []<-chan struct{}, limit time.Duration) bool {
	if len(ended) == 0 {
		return true
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, e := range ended {
		select {
		case <-e:
		case <-timer.C:
			return false
		}
	}
	return true
}

// releaseAtStore ends the owner's place. The tickets of other servers are broken first, and
// the own one leaves last. Such a server may share the place meanwhile, in an owner check
// for a renewal, so the store is asked until the owner has no ticket. done says that the
// id's wait here has ended.
func (t *table) releaseAtStore(ctx context.Context, e ending, key holdKey, ttl time.Duration, lock *holdfast.Hold, done bool) string {
	moved := t.owners && (e.moved || lock == nil && !done || lock != nil && lock.Err() != nil)
	ctx, cancel := requestContext(ctx, releaseLimit(ttl))
	defer cancel()
	broken := 0
	if moved {
		n, err := t.store.breakOwner(ctx, e.name, key.owner(), lock.Ticket())
		if err != nil {
			if lock != nil {
				t.unlock(lock)
			}
			return resultUnknown
		}
		broken = n
	}
	result := resultOf(lock, broken, done)
	if moved && (lock != nil || broken > 0) {
		if err := t.store.breakAll(ctx, e.name, key.owner()); err != nil {
			return resultUnknown
		}
	}
	return result
}

// resultOf releases the own ticket, if there is one, and returns the result of a release
// that has broken others.
func resultOf(lock *holdfast.Hold, broken int, done bool) string {
	if lock == nil {
		if broken > 0 || done {
			return resultReleased
		}
		return resultGone
	}
	err := lock.Unlock()
	// The goroutine of the next holder answers its request before this one's is answered, and
	// no other thread has to be woken for it.
	runtime.Gosched()
	switch {
	case err == nil || broken > 0:
		return resultReleased
	case errors.Is(err, holdfast.ErrLost), errors.Is(err, holdfast.ErrReleased), errors.Is(err, holdfast.ErrClosed):
		return resultGone
	}
	return resultUnknown
}
