package lockserver

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// stream is a request that receives events as they happen.
type stream struct {
	who, client string
	events      chan fields
	slow        chan struct{} // closed when events was full
}

// pushLocked sends an event to the streams of a hold's client. It reports whether there
// is one that takes it. Server.mu guards them.
func (s *Server) pushLocked(h *hold, e fields) (sent bool) {
	for st := range s.streams {
		if st.who == h.who && st.client == clientOf(h.id) && s.sendLocked(st, e) {
			sent = true
		}
	}
	return sent
}

// pushAllLocked sends an event to all streams. Server.mu guards them.
func (s *Server) pushAllLocked(e fields) {
	for st := range s.streams {
		s.sendLocked(st, e)
	}
}

// sendLocked sends an event to one stream, or ends a stream whose client reads too
// slowly. Server.mu guards it.
func (s *Server) sendLocked(st *stream, e fields) bool {
	select {
	case st.events <- e:
		return true
	default:
		delete(s.streams, st)
		close(st.slow)
		return false
	}
}

// streamBuffer is the number of events that a stream's client may be behind.
const streamBuffer = 256

// beginStream writes the head of an answer without an end.
func (c *call) beginStream() {
	kind := "application/x-ndjson"
	if c.text {
		kind = "text/plain; charset=utf-8"
	}
	c.status = http.StatusOK
	c.w.Header().Set("Content-Type", kind)
	c.w.WriteHeader(http.StatusOK)
}

// sendEvent writes one event of a stream. It blocks for at most ioTimeout where the
// connection allows a bound, and returns an error if the connection is of no use.
func (c *call) sendEvent(e fields) error {
	control := http.NewResponseController(c.w)
	_ = control.SetWriteDeadline(time.Now().Add(ioTimeout)) // not every server can
	out := e.encoded()
	if c.text {
		out = e.words()
	}
	if _, err := c.w.Write(out); err != nil {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// words returns an event for a shell: its name, and then key=value for each member.
func (f fields) words() []byte {
	var b bytes.Buffer
	f.writeWords(&b, "")
	b.WriteByte('\n')
	return b.Bytes()
}

func (f fields) writeWords(b *bytes.Buffer, prefix string) {
	for _, m := range f {
		switch v := m.value.(type) {
		case fields:
			v.writeWords(b, prefix+m.name+"_")
		case []fields:
			for i, e := range v {
				e.writeWords(b, prefix+m.name+strconv.Itoa(i+1)+"_")
			}
		default:
			word := plain(fmt.Sprint(v))
			if strings.ContainsAny(word, " \"'\\") {
				word = strconv.Quote(word)
			}
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			if m.name != "event" {
				b.WriteString(prefix + m.name + "=")
			}
			b.WriteString(word)
		}
	}
}

var clientPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{16,64}$`)

var eventsParams = map[string]paramType{"client": text}

// serveEvents answers GET /v1/events: what happens to the ids of one client, as it
// happens. Events are hints: a client believes only the answers to its own requests.
func (s *Server) serveEvents(c *call) {
	p, bad := parseForm(c.r.URL.RawQuery, eventsParams)
	if bad == nil && !clientPattern.MatchString(p.text("client")) {
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
	st := &stream{who: c.who.Name, client: p.text("client"), events: make(chan fields, streamBuffer), slow: make(chan struct{})}
	s.mu.Lock()
	ending := s.draining
	if !ending {
		s.streams[st] = struct{}{}
	}
	s.mu.Unlock()
	if ending {
		c.fail(draining())
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, st)
	}()
	c.beginStream()
	if c.sendEvent(s.sign(fields{{"event", "flowing"}})) != nil {
		return
	}
	beat := time.NewTicker(beatInterval)
	defer beat.Stop()
	for {
		var e fields
		select {
		case e = <-st.events:
		case <-beat.C:
			e = fields{{"event", "beat"}}
		case <-st.slow:
			return
		case <-s.ending:
			s.sendRest(c, st)
			return
		case <-c.r.Context().Done():
			return
		}
		if c.identifyAgain() != nil || c.sendEvent(e) != nil {
			return
		}
	}
}

// sendRest sends the events that a stream still has, when the server drains.
func (s *Server) sendRest(c *call, st *stream) {
	s.mu.Lock() // Drain's own event is among them afterwards
	delete(s.streams, st)
	s.mu.Unlock()
	for {
		select {
		case e := <-st.events:
			if c.sendEvent(e) != nil {
				return
			}
		default:
			return
		}
	}
}
