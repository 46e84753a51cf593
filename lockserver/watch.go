package lockserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mark returns a version as clients see it. Versions of another server are of no use, nor
// are those of another scan: what has changed between two scans, neither has seen.
func (v *viewer) mark(version int64) string { return v.origin() + strconv.FormatInt(version, 10) }

// unmark reads a mark, -1 for one of another server or scan.
func (v *viewer) unmark(mark string) int64 {
	rest, own := strings.CutPrefix(mark, v.origin())
	n, err := strconv.ParseInt(rest, 10, 64)
	if !own || err != nil {
		return -1
	}
	return n
}

// origin begins the marks of a viewer's scan.
func (v *viewer) origin() string { return fmt.Sprintf("%s:%d:", v.s.name, v.sc.number) }

var watchParams = map[string]paramType{"prefix": isText, "after": isText}

// serveWatch answers GET /v1/watch: the locks in use, and then their changes.
func (s *Server) serveWatch(c *call) {
	p, bad := parseForm(c.r.URL.RawQuery, watchParams)
	if bad == nil {
		bad = s.quota.beginPoll(c.who.Name)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	defer s.quota.endPoll(c.who.Name)
	sc := s.scans.join()
	if sc == nil {
		c.fail(draining())
		return
	}
	defer s.scans.leave()
	if !s.awaitScan(c, sc) {
		return
	}
	v := &viewer{s: s, c: c, sc: sc, prefix: p.text("prefix")}
	if p.has("after") {
		v.version = v.unmark(p.text("after"))
		if _, known, _ := sc.since(v.version); !known {
			c.fail(newProblem(http.StatusGone, "too_old", "the changes since then are no longer known: ask for a new snapshot"))
			return
		}
	}
	v.run(!p.has("after"))
}

// awaitScan waits for the first look, and answers if there is none, or if the last one has
// failed.
func (s *Server) awaitScan(c *call, sc *scan) bool {
	for {
		ready, changed, err := sc.state()
		switch {
		case err != nil:
			c.fail(problemOf(err))
			return false
		case ready:
			return true
		}
		select {
		case <-changed:
		case <-s.table.ending:
			c.fail(draining())
			return false
		case <-c.r.Context().Done():
			return false
		}
	}
}

// viewer is one client that watches.
type viewer struct {
	s       *Server
	c       *call
	sc      *scan
	prefix  string
	version int64 // of the last change sent
}

// run sends a snapshot, if it is asked for, and then changes and bookmarks.
func (v *viewer) run(snapshot bool) {
	v.c.beginStream()
	if v.c.sendEvent(v.s.sign(fields{{"event", "flowing"}})) != nil {
		return
	}
	if snapshot && !v.sendSnapshot() || !v.bookmark() {
		return
	}
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for {
		if v.c.identifyAgain() != nil {
			return
		}
		changes, known, changed := v.sc.since(v.version)
		if !known {
			_ = v.c.sendEvent(fields{{"event", "too_old"}}) // the client is gone or too slow
			return
		}
		for _, ch := range changes {
			if !v.send(ch) {
				return
			}
			v.version = ch.version
		}
		select {
		case <-changed:
			if _, _, err := v.sc.state(); err != nil {
				return // a stream that goes on would say that nothing has changed
			}
		case <-beat.C:
			if !v.bookmark() {
				return
			}
		case <-v.s.table.ending:
			_ = v.c.sendEvent(fields{{"event", "draining"}}) // the stream ends anyway
			return
		case <-v.c.r.Context().Done():
			return
		}
	}
}

// sendSnapshot sends all locks that the viewer may see, in order.
func (v *viewer) sendSnapshot() bool {
	var locks map[string]string
	locks, v.version = v.sc.snapshot()
	for _, name := range slices.Sorted(maps.Keys(locks)) {
		if !v.send(change{name: name, lock: locks[name]}) {
			return false
		}
	}
	return true
}

// bookmark sends the version from which another watch can go on.
func (v *viewer) bookmark() bool {
	return v.c.sendEvent(fields{{"event", "bookmark"}, {"after", v.mark(v.version)}}) == nil
}

// send sends a change, unless the viewer may not see it. It reports whether the
// connection is of use.
func (v *viewer) send(ch change) bool {
	if !strings.HasPrefix(ch.name, v.prefix) || !v.c.who.may(RightRead, ch.name) {
		return true
	}
	if ch.lock == "" {
		return v.c.sendEvent(fields{{"event", "free"}, {"name", ch.name}}) == nil
	}
	return v.c.sendEvent(fields{{"event", "lock"}, {"lock", encoded(ch.lock)}}) == nil
}

// encoded is a member that is JSON already.
type encoded string

// MarshalJSON returns e.
func (e encoded) MarshalJSON() ([]byte, error) { return []byte(e), nil }
