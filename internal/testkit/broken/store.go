package broken

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// A Store is a naive store with one flaw, or none.
type Store struct {
	flaw  string
	start time.Time

	mu          sync.Mutex
	clockStep   time.Duration
	steppedBack bool // the last step was one back
	queues      map[string]*queue
	marks       map[string]mark
	goneIDs     map[string]bool
	clients     []*Driver
	paused      chan struct{} // nil while requests are served
	pushesFail  bool          // pushes cannot be written
	lockedRows  int           // rows that another program keeps
}

// NewStore returns an empty store with the flaw of this name, or with [None].
// It panics when there is no such flaw.
func NewStore(flaw string) *Store {
	if flaw != None && !slices.ContainsFunc(flaws, func(f Flaw) bool { return f.Name == flaw }) {
		panic("broken: there is no flaw " + flaw)
	}
	s := &Store{flaw: flaw, start: time.Now()}
	s.reset()
	return s
}

func (s *Store) hasFlaw(flaw string) bool { return s.flaw == flaw }

func (s *Store) reset() {
	s.queues = make(map[string]*queue)
	s.marks = make(map[string]mark)
	s.goneIDs = make(map[string]bool)
}

// LoseData empties the store.
func (s *Store) LoseData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.queues
	s.reset()
	if s.hasFlaw("counter-restored") {
		for name, l := range old {
			s.queues[name] = &queue{name: name, lastToken: l.lastToken}
		}
	}
}

// Snapshot returns a function that restores the token counters, not the tickets.
func (s *Store) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := make(map[string]uint64)
	for name, l := range s.queues {
		last[name] = l.lastToken
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reset()
		for name, n := range last {
			s.queues[name] = &queue{name: name, lastToken: n}
		}
	}
}

// StepClock sets the store's clock by d.
func (s *Store) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockStep += d
	s.steppedBack = d < 0
	for _, l := range s.queues {
		for _, x := range l.tickets {
			switch most := s.now() + s.keepFor(x.TTL); {
			case x.deadline <= most, s.hasFlaw("far-stays"):
			case s.hasFlaw("far-is-over"):
				x.deadline = s.now()
			default:
				x.deadline = most
			}
		}
		aboveClock := l.lastToken > driver.NextToken(0, 0, s.start.Add(l.tokenAt))
		if (s.hasFlaw("idle-forgotten") || s.hasFlaw("floor-forgotten") && aboveClock) && len(l.tickets) == 0 && s.now()-l.tokenAt > time.Hour {
			l.lastToken = 0
		}
	}
}

// Pause makes the store silent until resume is called.
func (s *Store) Pause() (resume func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	s.paused = ch
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.paused = nil
		close(ch)
	}
}

// silenceOf returns a channel that is closed when a store answers again, or nil if it does.
func silenceOf(s *Store) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

func (s *Store) now() time.Duration { return time.Since(s.start) + s.clockStep }

// queue is the tickets of one name. Those of one place are beside each other.
type queue struct {
	name      string
	limit     int64
	lastToken uint64
	foreign   bool          // another program's value is in the queue
	tokenAt   time.Duration // when a token was taken last
	tickets   []*ticket
}

// ticket is one ticket with its place and its deadline.
type ticket struct {
	*place
	driver.Ticket
	client                *Driver
	joins                 int
	deadline, joinedUntil time.Duration // joinedUntil is not renewed
}

// place is the units and the token that the tickets of one owner share.
type place struct {
	held     bool
	owner    string
	units    int64
	token    uint64
	minToken uint64
}

func (l *queue) find(id string) *ticket {
	for _, x := range l.tickets {
		if x.ID == id {
			return x
		}
	}
	return nil
}

func (l *queue) ofOwner(who string) *ticket {
	for _, x := range l.tickets {
		if x.owner == who {
			return x
		}
	}
	return nil
}

// places returns one ticket of each place, in order.
func (l *queue) places() []*ticket {
	var ps []*ticket
	for _, x := range l.tickets {
		if len(ps) == 0 || ps[len(ps)-1].place != x.place {
			ps = append(ps, x)
		}
	}
	return ps
}

func (l *queue) units(s *Store) (units int64) {
	for _, x := range l.places() {
		switch {
		case !x.held:
		case s.hasFlaw("heads-counted"):
			units++
		case s.hasFlaw("units-again"):
			units += x.units * int64(x.joins)
		default:
			units += x.units
		}
	}
	return units
}

// latestDeadline returns the latest deadline of a place.
func (l *queue) latestDeadline(p *place) (until time.Duration) {
	for _, x := range l.tickets {
		if x.place == p {
			until = max(until, x.deadline)
		}
	}
	return until
}

func (s *Store) remove(l *queue, x *ticket) {
	if !s.hasFlaw("left-forgotten") {
		s.goneIDs[x.ID] = true
	}
	l.tickets = slices.DeleteFunc(l.tickets, func(y *ticket) bool { return y == x })
	s.forgetMark(l)
}

func (s *Store) keepFor(ttl time.Duration) time.Duration {
	switch {
	case s.hasFlaw("early"):
		return ttl * 9 / 10
	case s.hasFlaw("late"):
		return ttl * 2
	case s.hasFlaw("immortal"):
		return ttl * 1000
	case s.hasFlaw("ttl-overflows"):
		return time.Duration(int32(driver.Keep(ttl).Milliseconds())) * time.Millisecond
	}
	return driver.Keep(ttl)
}

// advance brings a queue up to date and returns the tickets that were granted.
func (s *Store) advance(l *queue) (granted []*ticket) {
	now := s.now()
	dead := 0
	dying := make(map[*place]bool)
	for _, x := range l.tickets {
		dying[x.place] = dying[x.place] || x.deadline <= now
	}
	for i := 0; i < len(l.tickets); {
		x := l.tickets[i]
		over := x.deadline <= now
		switch {
		case s.hasFlaw("owner-dies"):
			over = dying[x.place]
		case s.hasFlaw("dead-granted") && !x.held:
			over = false
		case s.hasFlaw("one-step") && over:
			dead++
			over = dead == 1
		case s.hasFlaw("few-steps") && over:
			dead++
			over = dead <= 32 // a renewal advances twice
		}
		if !over {
			i++
			continue
		}
		s.remove(l, x)
		if len(l.tickets) == 0 && s.hasFlaw("expiry-restarts") {
			l.lastToken = 0
		}
	}
	if len(l.tickets) == 0 && s.hasFlaw("idle-restarts") {
		l.lastToken = 0
	}
	ps := l.places()
	if s.hasFlaw("last-come") {
		slices.Reverse(ps)
	}
	for _, x := range ps {
		if x.held {
			continue
		}
		if !s.fits(l, x.units) {
			if s.hasFlaw("readers-overtake") && x.Limit == driver.RWLimit {
				continue
			}
			break
		}
		granted = append(granted, s.grant(l, x.place)...)
	}
	return granted
}

func (s *Store) fits(l *queue, units int64) bool {
	limit := l.limit
	if s.hasFlaw("two-holders") {
		limit++
	}
	return l.units(s)+units <= limit
}

// grant makes a place hold and returns its seats.
func (s *Store) grant(l *queue, p *place) (seats []*ticket) {
	p.held = true
	p.token = s.nextToken(l, p)
	for _, x := range l.tickets {
		if x.place == p {
			seats = append(seats, x)
			if s.hasFlaw("grant-extends") || s.hasFlaw("dead-granted") {
				x.deadline = s.now() + s.keepFor(x.TTL)
			}
		}
	}
	return seats
}

func (s *Store) nextToken(l *queue, p *place) uint64 {
	clock := s.start.Add(s.now())
	l.tokenAt = s.now()
	switch {
	case s.hasFlaw("counter-only"), s.hasFlaw("idle-restarts"), s.hasFlaw("expiry-restarts"):
		l.lastToken++
	case s.hasFlaw("counter-restored") && l.lastToken > 0:
		l.lastToken++
	case s.hasFlaw("clock-only"):
		l.lastToken = driver.NextToken(0, p.minToken, clock)
	case s.hasFlaw("readers-untold") && p.units < l.limit && l.lastToken > 0:
	case s.hasFlaw("no-floor"):
		l.lastToken = driver.NextToken(l.lastToken, 0, clock)
	default:
		l.lastToken = driver.NextToken(l.lastToken, p.minToken, clock)
	}
	return l.lastToken
}

// queueOf returns the queue of a name.
func (s *Store) queueOf(name string) *queue {
	key := s.key(name)
	l := s.queues[key]
	if l == nil {
		l = &queue{name: key}
		s.queues[key] = l
	}
	return l
}

func (s *Store) key(name string) string {
	switch {
	case s.hasFlaw("names-folded"):
		return strings.ToLower(name)
	case s.hasFlaw("names-zero"):
		name, _, _ = strings.Cut(name, "\x00")
	case s.hasFlaw("names-short"):
		name = name[:min(len(name), 255)]
	case s.hasFlaw("names-nested"):
		name, _, _ = strings.Cut(name, "/")
	case s.hasFlaw("names-escaped"):
		name = strings.ReplaceAll(name, "%2F", "/")
	case s.hasFlaw("names-trimmed"):
		name = strings.TrimSpace(name)
	}
	return name
}

func (s *Store) ownerKey(t *driver.Ticket) string {
	switch {
	case t.Owner == "" || s.hasFlaw("owner-ignored"):
		return "ticket " + t.ID
	case s.hasFlaw("owners-folded"):
		return "owner " + strings.ToLower(strings.TrimSpace(t.Owner))
	case s.hasFlaw("owners-cut"):
		return "owner " + t.Owner[:min(len(t.Owner), 200)]
	}
	return "owner " + t.Owner
}

// statusOf returns the status of a ticket.
func (s *Store) statusOf(l *queue, x *ticket) driver.Status {
	p := driver.Status{State: driver.Held, Token: x.token, Lease: x.TTL}
	if s.hasFlaw("no-lease") {
		p.Lease = 0
	}
	if x.held {
		return p
	}
	p.State, p.Token = driver.Waiting, 0
	now := s.now()
	p.Recheck = time.Hour
	var before *ticket
	for _, y := range l.places() {
		if y.place == x.place {
			break
		}
		if p.Ahead++; y.held {
			p.Recheck = min(p.Recheck, l.latestDeadline(y.place)-now)
			p.Holder = y.Meta
		}
		before = y
	}
	if before != nil && !before.held {
		p.Recheck = l.latestDeadline(before.place) - now
	}
	p.Recheck = max(p.Recheck, time.Millisecond)
	switch {
	case s.hasFlaw("no-recheck"):
		p.Recheck = 0
	case s.hasFlaw("ahead-off"):
		p.Ahead++
	}
	return p
}
