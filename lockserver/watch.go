package lockserver

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	scanInterval = time.Second // between two looks at the store
	scanRate     = 500         // Inspects in a second, after the first look
	maxChanges   = 10_000      // remembered, for those who come back
)

// scan looks at the store on behalf of all who watch, and only while there are any. One
// goroutine looks; Server.mu guards the fields.
type scan struct {
	cancel  context.CancelFunc
	viewers int
	ready   bool              // the first look has ended
	err     error             // of the last look
	locks   map[string]string // the names in use, and their queues, encoded
	changes []change
	version int64         // of the last change
	changed chan struct{} // closed after a look
}

// change is a lock as it was seen, gone if it is no longer in use.
type change struct {
	version int64
	name    string
	lock    string // encoded; empty: gone
}

// joinScanLocked returns the scan, which leaveScan gives back. Server.mu guards it.
func (s *Server) joinScanLocked() *scan {
	if s.scan == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.scan = &scan{cancel: cancel, locks: make(map[string]string), changed: make(chan struct{}), version: time.Now().UnixMilli()}
		sc := s.scan
		s.running.Go(func() { s.runScan(ctx, sc) })
	}
	s.scan.viewers++
	return s.scan
}

func (s *Server) leaveScan(sc *scan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.viewers--
	if sc.viewers == 0 {
		sc.cancel()
		if s.scan == sc {
			s.scan = nil
		}
	}
}

// runScan looks at the store until nobody watches any more.
func (s *Server) runScan(ctx context.Context, sc *scan) {
	for ctx.Err() == nil {
		err := s.look(ctx, sc)
		s.mu.Lock()
		sc.err = err
		sc.ready = sc.ready || err == nil
		close(sc.changed)
		sc.changed = make(chan struct{})
		s.mu.Unlock()
		pause(ctx, scanInterval)
	}
}

// pause waits, or returns when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// look inspects all names in use, and notes what has changed.
func (s *Server) look(ctx context.Context, sc *scan) error {
	seen, names, err := s.store.allNames(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	ready := sc.ready
	for name := range sc.locks {
		if !seen[name] {
			sc.noteLocked(name, "")
		}
	}
	s.mu.Unlock()
	for group := range slices.Chunk(names, parallel) {
		infos, err := s.store.inspectAll(ctx, group)
		if err != nil {
			return err
		}
		s.mu.Lock()
		for _, info := range infos {
			sc.noteLocked(info.Name, encodeLock(info))
		}
		s.mu.Unlock()
		if ready {
			pause(ctx, time.Second*time.Duration(len(group))/scanRate)
		}
	}
	return nil
}

// encodeLock returns a lock without what changes by the mere passing of time, or
// nothing for one that is not in use.
func encodeLock(info holdfast.LockInfo) string {
	if len(info.Holders)+len(info.Waiters) == 0 {
		return ""
	}
	return string(lockFields(info, false).encoded())
}

// noteLocked notes a lock as it was seen. Server.mu guards it.
func (sc *scan) noteLocked(name, lock string) {
	if sc.locks[name] == lock {
		return
	}
	if lock == "" {
		delete(sc.locks, name)
	} else {
		sc.locks[name] = lock
	}
	sc.version++
	sc.changes = append(sc.changes, change{sc.version, name, lock})
	if len(sc.changes) > maxChanges {
		sc.changes = slices.Clone(sc.changes[maxChanges/10:])
	}
}

// sinceLocked returns the changes after a version, or false if they are no longer
// known. Server.mu guards it.
func (sc *scan) sinceLocked(version int64) ([]change, bool) {
	if version > sc.version || version < sc.version-int64(len(sc.changes)) {
		return nil, false
	}
	return slices.Clone(sc.changes[len(sc.changes)-int(sc.version-version):]), true
}

// mark returns a version as clients see it; versions of another server are of no use.
func (s *Server) mark(version int64) string { return s.name + ":" + strconv.FormatInt(version, 10) }

// unmark reads a mark, -1 for one of another server.
func (s *Server) unmark(mark string) int64 {
	rest, own := strings.CutPrefix(mark, s.name+":")
	n, err := strconv.ParseInt(rest, 10, 64)
	if !own || err != nil {
		return -1
	}
	return n
}

var watchParams = map[string]paramType{"prefix": text, "after": text}

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
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		c.fail(draining())
		return
	}
	sc := s.joinScanLocked()
	s.mu.Unlock()
	defer s.leaveScan(sc)
	if !s.awaitScan(c, sc) {
		return
	}
	v := &viewer{s: s, c: c, sc: sc, prefix: p.text("prefix")}
	if p.has("after") {
		v.version = s.unmark(p.text("after"))
		s.mu.Lock()
		_, known := sc.sinceLocked(v.version)
		s.mu.Unlock()
		if !known {
			c.fail(newProblem(http.StatusGone, "too_old", "the changes since then are no longer known: ask for a new snapshot"))
			return
		}
	}
	v.run(!p.has("after"))
}

// awaitScan waits for the first look, and answers if there is none.
func (s *Server) awaitScan(c *call, sc *scan) bool {
	for {
		s.mu.Lock()
		ready, err, changed := sc.ready, sc.err, sc.changed
		s.mu.Unlock()
		switch {
		case ready:
			return true
		case err != nil:
			c.fail(problemOf(err))
			return false
		}
		select {
		case <-changed:
		case <-s.ending:
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
		v.s.mu.Lock()
		changes, known := v.sc.sinceLocked(v.version)
		changed := v.sc.changed
		v.s.mu.Unlock()
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
		case <-beat.C:
			if !v.bookmark() {
				return
			}
		case <-v.s.ending:
			_ = v.c.sendEvent(fields{{"event", "draining"}}) // the stream ends anyway
			return
		case <-v.c.r.Context().Done():
			return
		}
	}
}

// sendSnapshot sends all locks that the viewer may see, in order.
func (v *viewer) sendSnapshot() bool {
	v.s.mu.Lock()
	locks := maps.Clone(v.sc.locks)
	v.version = v.sc.version
	v.s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(locks)) {
		if !v.send(change{name: name, lock: locks[name]}) {
			return false
		}
	}
	return true
}

// bookmark sends the version from which another watch can go on.
func (v *viewer) bookmark() bool {
	return v.c.sendEvent(fields{{"event", "bookmark"}, {"after", v.s.mark(v.version)}}) == nil
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
