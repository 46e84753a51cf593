package zklock

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

// record is what a session knows of one of its tickets, from before its node
// can exist until the node is known to be gone.
type record struct {
	s     *session
	t     *driver.Ticket
	id    string
	uuid  string
	line  string // path of the line
	born  time.Time
	asked bool // a create went unanswered: there may be nodes; under busy
	first bool // of those who wait in a crowd, when it looked last; under busy

	// busy is held by whoever sends requests about the ticket.
	busy sync.Mutex

	// Guarded by session.mu.
	state   driver.State // 0 until the first answer
	token   uint64
	based   bool   // the token has the line's base in it
	path    string // of its node, "" for none
	until   time.Time
	epoch   int  // the connection in which it was looked at last
	watched bool // its own node is
	left    bool // its node has to go; nobody wants to hear of it
	leaving bool // a Leave is under way, which wants to know what it finds
	moved   int  // how often what it waited for has happened
	seen    int  // how often that was when it was settled last
	crowd   bool
	target  string // key in session.watchers
	alone   bool
	ahead   int
	holder  string
}

// nodeData is the content of a ticket's node, as JSON: what people and Inspect
// want to know. Nothing is decided by it but the token of an owner.
type nodeData struct {
	ID    string `json:"id"`
	Meta  string `json:"meta"`
	Owner string `json:"owner,omitempty"`
	TTL   int64  `json:"ttl"`             // milliseconds
	Token uint64 `json:"token,omitempty"` // of a ticket that shares its owner's place
	Name  string `json:"name,omitempty"`  // when the path has a hash of it
}

func dataOf(t *driver.Ticket, token uint64) []byte {
	d := nodeData{ID: t.ID, Meta: t.Meta, Owner: t.Owner, TTL: t.TTL.Milliseconds(), Token: token}
	if hashed(encodeName(t.Name)) {
		d.Name = t.Name
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return b
}

// readData reads a node's content. A foreign client's is taken as metadata if
// it is text; such a ticket goes by the name of its node.
func readData(name string, b []byte) nodeData {
	var d nodeData
	if err := json.Unmarshal(b, &d); err == nil && d.ID != "" {
		return d
	}
	d = nodeData{ID: name}
	if len(b) <= driver.MaxMeta && utf8.Valid(b) {
		d.Meta = string(b)
	}
	return d
}

// record returns the record of a ticket, made when there is none.
func (s *session) record(t *driver.Ticket, uuid string, now time.Time) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.recs[uuid]
	if r == nil {
		r = &record{s: s, t: t, id: t.ID, uuid: uuid, line: s.d.linePath(t.Name), born: now, until: now.Add(driver.Keep(t.TTL))}
		s.recs[uuid] = r
	}
	return r
}

// forget ends a record whose nodes are gone.
func (s *session) forget(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatch(r)
	if r.path != "" {
		delete(s.byPath, r.path)
	}
	r.state, r.left = driver.Gone, true
	delete(s.recs, r.uuid)
	s.d.disown(r.uuid)
}

// sits notes the node of a ticket. The caller has busy.
func (s *session) sits(r *record, name string, token uint64, based bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.path != "" {
		delete(s.byPath, r.path)
	}
	r.path, r.token, r.based, r.watched, r.epoch = r.line+"/"+name, token, based, false, s.epoch
	s.byPath[r.path] = r
}

func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// answer is what the caller hears of a ticket.
func (s *session) answer(r *record, entry time.Time) (driver.Place, error) {
	lease := s.promise(entry)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := driver.Place{State: r.state, Holder: r.holder}
	switch r.state {
	case driver.Gone:
		return driver.Place{State: driver.Gone}, nil
	case driver.Held:
		p.Token, p.Holder = r.token, ""
	case driver.Waiting:
		p.Ahead = r.ahead
	default:
		return driver.Place{}, driver.Errorf(driver.Unknown, "the ticket's place is not known yet")
	}
	if lease <= 0 {
		return driver.Place{}, driver.Errorf(driver.Unknown, "the session is in doubt: nothing was heard from the leader for %v", s.timeout)
	}
	p.Lease = min(lease, r.t.TTL)
	return p, nil
}

// extend gives the ticket its time anew, counted from entry; false when its
// time was over already.
func (s *session) extend(r *record, entry time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.left || entry.After(r.until) {
		r.left = true
		s.d.bury(r.uuid)
		return false
	}
	r.until = entry.Add(driver.Keep(r.t.TTL))
	return true
}

// verify looks whether the ticket's node is there, and sees to it that its end
// is heard of from now on. The caller has busy.
func (s *session) verify(r *record) error {
	s.mu.Lock()
	path, watched, epoch := r.path, r.watched, s.epoch
	s.mu.Unlock()
	if path == "" {
		return nil
	}
	var err error
	if watched {
		// After a new connection the library sets its watches again.
		var there bool
		if there, _, err = s.conn.Exists(path); err == nil && !there {
			err = zk.ErrNoNode
		}
	} else {
		_, _, _, err = s.conn.GetW(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		r.epoch, r.watched = epoch, true
		return nil
	case errors.Is(err, zk.ErrNoNode):
		s.vanished(r)
		return nil
	}
	return classed("look at "+path, err)
}

// refresh makes what is known of tickets true again, as of now. The answers
// are errors, nil for none.
func (s *session) refresh(rs []*record) []error {
	errs := make([]error, len(rs))
	s.mu.Lock()
	var doubt []int
	for i, r := range rs {
		if r.state != driver.Gone && (!r.watched || r.epoch != s.epoch) {
			doubt = append(doubt, i)
			if r.epoch != s.epoch && r.state == driver.Waiting {
				r.moved++
			}
		}
	}
	s.mu.Unlock()
	each(len(doubt), func(k int) {
		r := rs[doubt[k]]
		r.busy.Lock()
		defer r.busy.Unlock()
		errs[doubt[k]] = s.verify(r)
	})
	if err := s.sync(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	s.mu.Lock()
	var moved []int
	for i, r := range rs {
		if errs[i] == nil && r.state == driver.Waiting && (r.moved != r.seen || r.crowd) {
			moved = append(moved, i)
		}
	}
	s.mu.Unlock()
	each(len(moved), func(k int) {
		r := rs[moved[k]]
		r.busy.Lock()
		defer r.busy.Unlock()
		errs[moved[k]] = s.settle(r)
	})
	return errs
}
