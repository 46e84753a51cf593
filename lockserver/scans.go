package lockserver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
)

const (
	scanInterval = time.Second // between two looks at the store
	scanRate     = 500         // Inspects in a second, after the first look
	maxChanges   = 10_000      // remembered, for those who come back
)

// scans has the scan that all who watch share, and none while nobody does. No other mutex
// is asked for while its own is held.
type scans struct {
	store   *store
	running sync.WaitGroup // goroutines that scan

	mu      sync.Mutex
	current *scan // nil while nobody watches
	viewers int   // of current
	number  int64 // of current, and of the last one
	ended   bool  // the server drains: there is no new scan
}

// join returns the scan, which leave gives back, or nil when the server drains.
func (s *scans) join() *scan {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	if s.current == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.number++
		sc := &scan{store: s.store, number: s.number, cancel: cancel, locks: make(map[string]string), changed: make(chan struct{}), version: time.Now().UnixMilli()}
		s.current = sc
		s.running.Go(func() { sc.run(ctx) })
	}
	s.viewers++
	return s.current
}

// leave ends a viewer's part. While there is one, its scan is the current one.
func (s *scans) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers--
	if s.viewers == 0 {
		s.current.cancel()
		s.current = nil
	}
}

// end refuses new viewers.
func (s *scans) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *scans) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.viewers
}

// scan looks at the store on behalf of all who watch. One goroutine looks.
type scan struct {
	store  *store
	number int64 // no other scan of the server has it
	cancel context.CancelFunc

	mu      sync.Mutex
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

// run looks at the store until nobody watches any more.
func (sc *scan) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := sc.look(ctx)
		sc.mu.Lock()
		sc.err = err
		sc.ready = sc.ready || err == nil
		close(sc.changed)
		sc.changed = make(chan struct{})
		sc.mu.Unlock()
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
func (sc *scan) look(ctx context.Context) error {
	seen, names, err := sc.store.allNames(ctx)
	if err != nil {
		return err
	}
	sc.mu.Lock()
	ready := sc.ready
	for name := range sc.locks {
		if !seen[name] {
			sc.noteLocked(name, "")
		}
	}
	sc.mu.Unlock()
	for group := range slices.Chunk(names, parallel) {
		infos, err := sc.store.inspectAll(ctx, group)
		if err != nil {
			return err
		}
		sc.mu.Lock()
		for _, info := range infos {
			sc.noteLocked(info.Name, encodeLock(info))
		}
		sc.mu.Unlock()
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

// noteLocked notes a lock as it was seen.
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

// state returns whether the first look has ended, a channel that is closed after the
// next, and the error of the last one.
func (sc *scan) state() (ready bool, changed <-chan struct{}, err error) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.ready, sc.changed, sc.err
}

// since returns the changes after a version, or false if they are no longer known, and a
// channel that is closed after the next look.
func (sc *scan) since(version int64) (changes []change, known bool, changed <-chan struct{}) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if version > sc.version || version < sc.version-int64(len(sc.changes)) {
		return nil, false, sc.changed
	}
	return slices.Clone(sc.changes[len(sc.changes)-int(sc.version-version):]), true, sc.changed
}

// snapshot returns the locks in use, and the version from which changes follow.
func (sc *scan) snapshot() (locks map[string]string, version int64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return maps.Clone(sc.locks), sc.version
}
