package lockserver

import (
	"regexp"
	"sync"
	"time"
)

// subscriber is a request that receives the events of one client's ids.
type subscriber struct {
	who, client string
	events      chan fields
	slow        chan struct{} // closed when events was full
}

// subscriberBuffer is the number of events that a subscriber may be behind.
const subscriberBuffer = 256

// subscribers passes the events of holds to those who asked for them. No other mutex is
// asked for while its own is held.
type subscribers struct {
	mu    sync.Mutex
	all   map[*subscriber]struct{}
	ended bool // the server drains: there are no new ones
}

// add returns a subscriber to the ids of a client, or nil when the server drains.
func (s *subscribers) add(principal, client string) *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	if s.all == nil {
		s.all = make(map[*subscriber]struct{})
	}
	sub := &subscriber{who: principal, client: client, events: make(chan fields, subscriberBuffer), slow: make(chan struct{})}
	s.all[sub] = struct{}{}
	return sub
}

func (s *subscribers) remove(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sub)
}

// push sends an event about an id of a principal. It reports whether there is a
// subscriber that takes it.
func (s *subscribers) push(principal, id string, e fields) (sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.all {
		if sub.who == principal && sub.client == clientOf(id) && s.sendLocked(sub, e) {
			sent = true
		}
	}
	return sent
}

// end sends a last event to all, and refuses new ones.
func (s *subscribers) end(e fields) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	for sub := range s.all {
		s.sendLocked(sub, e)
	}
}

// sendLocked sends an event to one subscriber, or ends one whose client reads too slowly.
func (s *subscribers) sendLocked(sub *subscriber, e fields) bool {
	select {
	case sub.events <- e:
		return true
	default:
		delete(s.all, sub)
		close(sub.slow)
		return false
	}
}

func (s *subscribers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

var clientPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`) })

var eventsParams = map[string]paramType{"client": isText}

// serveEvents answers GET /v1/events: what happens to the ids of one client, as it
// happens. Events are hints: a client believes only the answers to its own requests.
func (s *Server) serveEvents(c *call) {
	p, bad := parseForm(c.r.URL.RawQuery, eventsParams)
	if bad == nil && !clientPattern().MatchString(p.text("client")) {
		bad = badRequest("client: the part of the ids before the dot, 16 to 64 of A-Z, a-z, 0-9, _ and -")
	}
	if bad == nil {
		bad = s.quota.beginPoll(c.who.Name)
	}
	if bad != nil {
		c.fail(bad)
		return
	}
	defer s.quota.endPoll(c.who.Name)
	sub := s.subscribers.add(c.who.Name, p.text("client"))
	if sub == nil {
		c.fail(draining())
		return
	}
	defer s.subscribers.remove(sub)
	c.beginStream()
	if c.sendEvent(s.sign(fields{{"event", "flowing"}})) != nil {
		return
	}
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for {
		var e fields
		select {
		case e = <-sub.events:
		case <-beat.C:
			e = fields{{"event", "beat"}}
		case <-sub.slow:
			return
		case <-s.table.ending:
			s.subscribers.remove(sub)
			sub.sendRest(c)
			return
		case <-c.r.Context().Done():
			return
		}
		if c.identifyAgain() != nil || c.sendEvent(e) != nil {
			return
		}
	}
}

// sendRest sends the events that are left when the server drains.
func (sub *subscriber) sendRest(c *call) {
	for {
		select {
		case e := <-sub.events:
			if c.sendEvent(e) != nil {
				return
			}
		default:
			return
		}
	}
}
