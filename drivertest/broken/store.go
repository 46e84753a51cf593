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

	mu      sync.Mutex
	step    time.Duration
	back    bool // the last step was one back
	lines   map[string]*line
	gone    map[string]bool
	clients []*Driver
	paused  chan struct{} // nil while requests are served
}

// NewStore returns an empty store with the flaw of this name, or with [None].
// It panics when there is no such flaw.
func NewStore(flaw string) *Store {
	if flaw != None && !slices.ContainsFunc(flaws, func(f Flaw) bool { return f.Name == flaw }) {
		panic("broken: there is no flaw " + flaw)
	}
	s := &Store{flaw: flaw, start: time.Now()}
	s.empty()
	return s
}

func (s *Store) is(flaw string) bool { return s.flaw == flaw }

func (s *Store) empty() {
	s.lines = make(map[string]*line)
	s.gone = make(map[string]bool)
}

// LoseData empties the store.
func (s *Store) LoseData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.lines
	s.empty()
	if s.is("counter-restored") {
		for name, l := range old {
			s.lines[name] = &line{name: name, last: l.last}
		}
	}
}

// Snapshot returns what brings back the counters of now, without the tickets.
func (s *Store) Snapshot() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := make(map[string]uint64)
	for name, l := range s.lines {
		last[name] = l.last
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.empty()
		for name, n := range last {
			s.lines[name] = &line{name: name, last: n}
		}
	}
}

// StepClock sets the store's clock by d.
func (s *Store) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step += d
	s.back = d < 0
}

// Restart ends all subscriptions; the drivers take them up again and say so.
func (s *Store) Restart() {
	s.mu.Lock()
	clients := slices.Clone(s.clients)
	s.mu.Unlock()
	for _, d := range clients {
		if s.is("silent-restart") {
			d.deaf.Store(true)
		} else {
			d.push("", driver.Place{})
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

func (s *Store) now() time.Duration { return time.Since(s.start) + s.step }

// A line is the seats of one name, those of one place beside each other.
type line struct {
	name  string
	limit int64
	last  uint64
	seats []*seat
}

// A seat is one ticket.
type seat struct {
	*place
	driver.Ticket
	until  time.Duration
	d      *Driver
	joined int
}

// A place is what the tickets of one owner share.
type place struct {
	held  bool
	who   string
	takes int64
	token uint64
	floor uint64
}

func (l *line) find(id string) *seat {
	for _, x := range l.seats {
		if x.ID == id {
			return x
		}
	}
	return nil
}

func (l *line) of(who string) *seat {
	for _, x := range l.seats {
		if x.who == who {
			return x
		}
	}
	return nil
}

// places returns one seat of each place, in order.
func (l *line) places() []*seat {
	var ps []*seat
	for _, x := range l.seats {
		if len(ps) == 0 || ps[len(ps)-1].place != x.place {
			ps = append(ps, x)
		}
	}
	return ps
}

func (l *line) used(s *Store) (units int64) {
	for _, x := range l.places() {
		switch {
		case !x.held:
		case s.is("heads-counted"):
			units++
		case s.is("units-again"):
			units += x.takes * int64(x.joined)
		default:
			units += x.takes
		}
	}
	return units
}

// until is the latest deadline of a place.
func (l *line) until(p *place) (until time.Duration) {
	for _, x := range l.seats {
		if x.place == p {
			until = max(until, x.until)
		}
	}
	return until
}

func (s *Store) remove(l *line, x *seat) {
	if !s.is("left-forgotten") {
		s.gone[x.ID] = true
	}
	l.seats = slices.DeleteFunc(l.seats, func(y *seat) bool { return y == x })
}

func (s *Store) keep(ttl time.Duration) time.Duration {
	switch {
	case s.is("early"):
		return ttl * 9 / 10
	case s.is("late"):
		return ttl * 2
	case s.is("immortal"):
		return ttl * 1000
	case s.is("ttl-overflows"):
		return time.Duration(int32(driver.Keep(ttl).Milliseconds())) * time.Millisecond
	}
	return driver.Keep(ttl)
}

// advance brings a line up to date and returns the seats that were granted.
func (s *Store) advance(l *line) (granted []*seat) {
	now := s.now()
	dead := 0
	dying := make(map[*place]bool)
	for _, x := range l.seats {
		dying[x.place] = dying[x.place] || x.until <= now
	}
	for i := 0; i < len(l.seats); {
		x := l.seats[i]
		over := x.until <= now
		switch {
		case s.is("owner-dies"):
			over = dying[x.place]
		case s.is("dead-granted") && !x.held:
			over = false
		case s.is("one-step") && over:
			dead++
			over = dead == 1
		}
		if !over {
			i++
			continue
		}
		s.remove(l, x)
		if len(l.seats) == 0 && s.is("expiry-restarts") {
			l.last = 0
		}
	}
	if len(l.seats) == 0 && s.is("idle-restarts") {
		l.last = 0
	}
	ps := l.places()
	if s.is("last-come") {
		slices.Reverse(ps)
	}
	for _, x := range ps {
		if x.held {
			continue
		}
		if !s.room(l, x.takes) {
			if s.is("readers-overtake") && x.Limit == driver.RWLimit {
				continue
			}
			break
		}
		granted = append(granted, s.grant(l, x.place)...)
	}
	return granted
}

func (s *Store) room(l *line, units int64) bool {
	limit := l.limit
	if s.is("two-holders") {
		limit++
	}
	return l.used(s)+units <= limit
}

// grant makes a place hold and returns its seats.
func (s *Store) grant(l *line, p *place) (seats []*seat) {
	p.held = true
	p.token = s.token(l, p)
	for _, x := range l.seats {
		if x.place == p {
			seats = append(seats, x)
			if s.is("grant-extends") || s.is("dead-granted") {
				x.until = s.now() + s.keep(x.TTL)
			}
		}
	}
	return seats
}

func (s *Store) token(l *line, p *place) uint64 {
	clock := s.start.Add(s.now())
	switch {
	case s.is("counter-only"), s.is("idle-restarts"), s.is("expiry-restarts"):
		l.last++
	case s.is("counter-restored") && l.last > 0:
		l.last++
	case s.is("clock-only"):
		l.last = driver.NextToken(0, p.floor, clock)
	case s.is("readers-untold") && p.takes < l.limit && l.last > 0:
	case s.is("no-floor"):
		l.last = driver.NextToken(l.last, 0, clock)
	default:
		l.last = driver.NextToken(l.last, p.floor, clock)
	}
	return l.last
}

// line returns the line of a name.
func (s *Store) line(name string) *line {
	key := s.key(name)
	l := s.lines[key]
	if l == nil {
		l = &line{name: key}
		s.lines[key] = l
	}
	return l
}

func (s *Store) key(name string) string {
	switch {
	case s.is("names-folded"):
		return strings.ToLower(name)
	case s.is("names-zero"):
		name, _, _ = strings.Cut(name, "\x00")
	case s.is("names-short"):
		name = name[:min(len(name), 255)]
	case s.is("names-nested"):
		name, _, _ = strings.Cut(name, "/")
	case s.is("names-escaped"):
		name = strings.ReplaceAll(name, "%2F", "/")
	case s.is("names-trimmed"):
		name = strings.TrimSpace(name)
	}
	return name
}

func (s *Store) who(t *driver.Ticket) string {
	switch {
	case t.Owner == "" || s.is("owner-ignored"):
		return "ticket " + t.ID
	case s.is("owners-folded"):
		return "owner " + strings.ToLower(strings.TrimSpace(t.Owner))
	case s.is("owners-cut"):
		return "owner " + t.Owner[:min(len(t.Owner), 200)]
	}
	return "owner " + t.Owner
}

// answer says where a seat stands.
func (s *Store) answer(l *line, x *seat) driver.Place {
	p := driver.Place{State: driver.Held, Token: x.token, Lease: x.TTL}
	if s.is("no-lease") {
		p.Lease = 0
	}
	if x.held {
		return p
	}
	p.State, p.Token = driver.Waiting, 0
	now := s.now()
	p.Recheck = time.Hour
	var before *seat
	for _, y := range l.places() {
		if y.place == x.place {
			break
		}
		if p.Ahead++; y.held {
			p.Recheck = min(p.Recheck, l.until(y.place)-now)
			p.Holder = y.Meta
		}
		before = y
	}
	if before != nil && !before.held {
		p.Recheck = l.until(before.place) - now
	}
	p.Recheck = max(p.Recheck, time.Millisecond)
	switch {
	case s.is("no-recheck"):
		p.Recheck = 0
	case s.is("ahead-off"):
		p.Ahead++
	}
	return p
}
