package memlock

import (
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Store is the part of a server: it keeps queues of tickets, and a clock. It is
// safe for concurrent use. Its methods are for tests: they let a Store suffer
// the accidents of servers.
type Store struct {
	name  string
	start time.Time

	mu          sync.Mutex
	clockOffset time.Duration // sum of the steps of the clock
	queues      map[string]*queue
	marks       map[string]driver.Mark
	sweepAt     int // number of queues at which the idle ones are removed
	tombstones  tombstones
	freePlaces  *place // spare places, linked by spare
	freeCount   int
}

const (
	minSweep      = 1024 // below this number idle queues are kept
	maxFreePlaces = 256
	// maxToken is the last token of a queue. The second half of the uint64s is
	// left to the present waiters, so that no counter ever wraps.
	maxToken = math.MaxInt64
)

// NewStore returns an empty store.
func NewStore() *Store {
	s := &Store{start: time.Now()}
	s.clear()
	return s
}

// LoseData empties the store, as the crash of a server that has written nothing
// to disk does. The clock stays.
func (s *Store) LoseData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

// StepClock sets the store's clock by d, forward or, if d is negative, back.
// Tokens and expiries both follow this clock. A ticket that would expire later
// than if it were renewed now counts as renewed now: it has not expired, and
// without a renewal it blocks its queue no longer than its TTL.
func (s *Store) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockOffset += d
	now := s.now()
	for _, q := range s.queues {
		for _, t := range q.ids {
			t.expiry = min(t.expiry, now+driver.Keep(t.ttl))
		}
		q.nextCheck = min(q.nextCheck, now)
	}
}

// Clock returns the time on the store's clock.
func (s *Store) Clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.start.Add(s.now())
}

// Snapshot returns a function that restores the present content of the store,
// as a restart of a server from an older backup does: tickets that left since
// are there again, younger ones are not, and token counters are the old ones.
// The clock goes on.
func (s *Store) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved, marks := copyQueues(s.queues), maps.Clone(s.marks)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear()
		s.queues, s.marks = copyQueues(saved), maps.Clone(marks)
	}
}

func (s *Store) clear() {
	s.queues = make(map[string]*queue)
	s.marks = make(map[string]driver.Mark)
	s.sweepAt = minSweep
	s.tombstones = tombstones{}
}

// now returns the time on the store's clock, counted from its start. It never
// follows the machine's wall clock.
func (s *Store) now() time.Duration { return time.Since(s.start) + s.clockOffset }

// queueOf returns the queue of a name, and creates it if there is none.
func (r *request) queueOf(name string) *queue {
	s := r.s
	if q := s.queues[name]; q != nil {
		return q
	}
	if len(s.queues) >= s.sweepAt {
		r.sweep()
	}
	q := &queue{name: name, ids: make(map[string]*ticket)}
	s.queues[name] = q
	return q
}

// sweep removes idle queues. It runs when the number of queues has doubled, so
// that a new queue pays for the removal of one other. A queue whose token
// counter is not below the clock stays: without the counter, the next grant
// could repeat a token.
func (r *request) sweep() {
	s := r.s
	clock := driver.NextToken(0, 0, s.start.Add(r.now))
	for name, q := range s.queues {
		r.steps, r.drops = 0, 0
		r.advance(q, nil)
		if len(q.places) == 0 && q.lastToken < clock {
			delete(s.queues, name)
		}
	}
	r.steps, r.drops = 0, 0
	s.sweepAt = max(minSweep, 2*len(s.queues))
}

func (r *request) names(prefix string) []string {
	var names []string
	for name, q := range r.s.queues {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		r.steps, r.drops = 0, 0
		r.advance(q, nil)
		if len(q.places) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (s *Store) newPlace() *place {
	p := s.freePlaces
	if p == nil {
		return new(place)
	}
	s.freePlaces, p.nextFree = p.nextFree, nil
	s.freeCount--
	return p
}

func (s *Store) freePlace(p *place) {
	*p = place{}
	if s.freeCount < maxFreePlaces {
		p.nextFree, s.freePlaces = s.freePlaces, p
		s.freeCount++
	}
}
