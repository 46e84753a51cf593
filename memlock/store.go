package memlock

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Store is what a server is to other drivers: lines of tickets, and a clock.
// It is safe for concurrent use. The methods are for tests: what happens to
// servers can happen to a Store.
type Store struct {
	name  string
	start time.Time

	mu      sync.Mutex
	step    time.Duration // by how much the clock was set
	lines   map[string]*line
	sweepAt int // how many lines there may be before the idle ones go
	graves  graves
	free    *place // spare places, linked by spare
	spares  int
}

const (
	fewLines  = 1024 // below this number idle lines are left alone
	maxSpares = 256
	// lastToken is where a line's tokens end. The second half of the uint64s
	// is left to those who wait already, so that no counter ever wraps.
	lastToken = math.MaxInt64
)

// NewStore returns an empty store.
func NewStore() *Store {
	s := &Store{start: time.Now()}
	s.empty()
	return s
}

// LoseData empties the store, as a server that crashes without having written
// anything down. The clock stays.
func (s *Store) LoseData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.empty()
}

// StepClock sets the store's clock by d, forward or, when d is negative, back.
// Tokens and the tickets' time both follow this clock.
func (s *Store) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step += d
}

// Clock returns the time on the store's clock.
func (s *Store) Clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start.Add(s.now())
}

// Snapshot returns the function that brings back what the store holds now, as
// a server that is restarted from an older backup: tickets that left since are
// there again, younger ones are not, and token counters are the old ones. The
// clock goes on.
func (s *Store) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := copyLines(s.lines)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.empty()
		s.lines = copyLines(saved)
	}
}

func (s *Store) empty() {
	s.lines = make(map[string]*line)
	s.sweepAt = fewLines
	s.graves = graves{}
}

// now is the store's clock, counted from its start. It never follows the
// machine's wall clock.
func (s *Store) now() time.Duration { return time.Since(s.start) + s.step }

// line returns the line of a name, made when there is none.
func (r *request) line(name string) *line {
	s := r.s
	if l := s.lines[name]; l != nil {
		return l
	}
	if len(s.lines) >= s.sweepAt {
		r.sweep()
	}
	l := &line{name: name, ids: make(map[string]*ticket)}
	s.lines[name] = l
	return l
}

// sweep removes idle lines. It runs when the number of lines has doubled, so
// that a new line pays for the removal of one other. A counter that is not
// below the clock stays: without it, the next grant could repeat a token.
func (r *request) sweep() {
	s := r.s
	clock := driver.NextToken(0, 0, s.start.Add(r.now))
	for name, l := range s.lines {
		r.steps = 0
		r.advance(l, nil)
		if len(l.places) == 0 && l.last < clock {
			delete(s.lines, name)
		}
	}
	r.steps = 0
	s.sweepAt = max(fewLines, 2*len(s.lines))
}

func (r *request) names(prefix string) []string {
	var names []string
	for name, l := range r.s.lines {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		r.steps = 0
		r.advance(l, nil)
		if len(l.places) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (s *Store) newPlace() *place {
	p := s.free
	if p == nil {
		return new(place)
	}
	s.free, p.spare = p.spare, nil
	s.spares--
	return p
}

func (s *Store) freePlace(p *place) {
	*p = place{}
	if s.spares < maxSpares {
		p.spare, s.free = s.free, p
		s.spares++
	}
}
