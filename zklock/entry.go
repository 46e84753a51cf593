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
	"github.com/holdfast-go/holdfast/internal/tracker"
)

// entry is a session's knowledge of one of its tickets. It exists from before
// the ticket can have a node until the node is known to be gone.
type entry struct {
	s             *session
	t             *driver.Ticket
	uuid          string
	queue         string // path of the queue
	born          time.Time
	createUnknown bool // a create had no answer, and may have made nodes; under busy
	wasFirst      bool // when last resolved, it was the first waiter behind several holders; under busy

	// busy is held while requests about the ticket are under way.
	busy sync.Mutex

	// Guarded by session.mu.
	tracker.Ticket        // while MustLeave its node must be deleted, and no push about it is sent
	hasBase        bool   // the token includes the queue's base
	path           string // of its node, "" if it has none
	epoch          int    // the connection in which it was last read
	watched        bool   // its own node is watched
	leaving        bool   // a Leave is under way, which reports the state that it finds
	events         int    // number of events on its target
	resolvedAt     int    // number of events when it was last resolved
	manyAhead      bool
	severalNodes   bool   // see position
	target         string // key in session.watchers
	alone          bool
	ahead          int   // -1 if it is not known
	aheadAt        int64 // the pzxid of the queue at which ahead was counted
	holder         string
}

// nodeData is the content of a ticket's node, as JSON, for people and Inspect.
// The driver decides nothing by it but the token of an owner.
type nodeData struct {
	ID    string `json:"id"`
	Meta  string `json:"meta"`
	Owner string `json:"owner,omitempty"`
	TTL   int64  `json:"ttl"`             // milliseconds
	Token uint64 `json:"token,omitempty"` // of a ticket that shares its owner's place
	Name  string `json:"name,omitempty"`  // if the path has only a hash of the name
}

func dataOf(t *driver.Ticket, token uint64) []byte {
	d := nodeData{ID: t.ID, Meta: t.Meta, Owner: t.Owner, TTL: t.TTL.Milliseconds(), Token: token}
	if isHashed(encodeName(t.Name)) {
		d.Name = t.Name
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and numbers always have a JSON form
	}
	return b
}

// readData parses a node's content. A foreign client's content is taken as
// metadata if it is text; the id of such a ticket is the name of its node.
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

// enter returns the entry of a ticket, and makes one in the session s if there is
// none. It returns nil if the ticket must stay gone.
func (d *Driver) enter(s *session, t *driver.Ticket, uuid string, now time.Time) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	r, _ := d.tickets.Enter(binaryUUID(uuid), func() *entry {
		r := &entry{s: s, t: t, uuid: uuid, queue: d.queuePath(t.Name), born: now}
		r.Until = now.Add(driver.Keep(t.TTL))
		s.entries[r] = true
		d.clients[uuid[:clientLen]] = true
		return r
	})
	return r
}

// find returns the entry of a ticket, or nil if the ticket has none.
func (d *Driver) find(uuid string) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets.Find(binaryUUID(uuid))
}

// tombstoneTTL is the life of a tombstone: longer than any request of a ticket can be
// under way.
const tombstoneTTL = time.Minute

func (d *Driver) addTombstone(uuid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tickets.Tombstones.Add(binaryUUID(uuid))
}

// mustStayGone reports whether a ticket without an entry has a tombstone.
func (d *Driver) mustStayGone(uuid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tickets.Gone(binaryUUID(uuid))
}

// forget ends an entry whose nodes are gone.
func (r *entry) forget() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.unwatch()
	delete(r.s.byPath, r.path)
	r.Left()
	delete(r.s.entries, r)
	r.s.d.mu.Lock()
	defer r.s.d.mu.Unlock()
	r.s.d.tickets.Forget(binaryUUID(r.uuid), false)
}

// setNodeLocked notes the node of a ticket.
func (r *entry) setNodeLocked(name string, token uint64, based bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	delete(r.s.byPath, r.path)
	r.path, r.Token, r.hasBase, r.watched, r.epoch = r.queue+"/"+name, token, based, false, r.s.epoch
	r.s.byPath[r.path] = r
}

func (r *entry) list() (view, error) { return queueNode{r.s, r.queue}.list() }

func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// answer returns the status of a ticket for the reply to the core, as soon as the
// session is promised for the ticket's whole TTL after began (Join 9). Usually it is, and
// nothing is sent. After a stall the last confirmed heartbeat is too old: a sync confirms
// those before the stall, and one that is sent confirmAfter later confirms that sync.
func (r *entry) answer(began time.Time) (driver.Status, error) {
	for {
		if p, ok, err := r.answerIfPromised(began); ok || err != nil {
			return p, err
		}
		if err := r.s.sync(); err != nil {
			return driver.Status{}, err
		}
		if p, ok, err := r.answerIfPromised(began); ok || err != nil {
			return p, err
		}
		select {
		case <-time.After(confirmAfter(r.s.d.tick)):
		case <-r.s.stop:
			return driver.Status{}, driver.ErrClosed
		}
	}
}

// answerIfPromised returns the status of a ticket. It reports false if the session is not
// yet promised for the ticket's TTL after began.
func (r *entry) answerIfPromised(began time.Time) (p driver.Status, ok bool, err error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	p = driver.Status{State: r.State, Holder: r.holder, Lease: r.t.TTL}
	switch r.State {
	case driver.Gone:
		return driver.Status{State: driver.Gone}, true, nil
	case driver.Held:
		p.Token, p.Holder = r.Token, ""
	case driver.Waiting:
		p.Ahead = r.ahead
	default:
		return driver.Status{}, false, driver.Errorf(driver.Unknown, "the ticket's place is not known yet")
	}
	return p, r.s.promise(began) >= r.t.TTL, nil
}

// extend starts the ticket's time anew, counted from entry. It returns false if
// the time was over already.
func (r *entry) extend(began time.Time) bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	ok := r.Extend(began, driver.Keep(r.t.TTL))
	if !ok {
		r.s.d.addTombstone(r.uuid)
	}
	return ok
}

// verifyLocked checks that the ticket's node exists, and watches the node, so that
// the driver learns of the node's end from now on.
func (r *entry) verifyLocked() error {
	r.s.mu.Lock()
	path, watched, epoch := r.path, r.watched, r.s.epoch
	r.s.mu.Unlock()
	if path == "" {
		return nil
	}
	var err error
	if watched {
		// The client library sets its watches again after a new connection.
		var there bool
		if there, _, err = r.s.conn.Exists(path); err == nil && !there {
			err = zk.ErrNoNode
		}
	} else {
		_, _, _, err = r.s.conn.GetW(path)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case err == nil:
		r.epoch, r.watched = epoch, true
		return nil
	case errors.Is(err, zk.ErrNoNode):
		r.vanishedLocked()
		return nil
	}
	return classed("look at "+path, err)
}

// refresh brings the entries rs up to date with the server. It returns the
// error of each entry, nil for none.
func (s *session) refresh(rs []*entry) []error {
	errs := make([]error, len(rs))
	s.mu.Lock()
	var doubt []int
	for i, r := range rs {
		if r.State != driver.Gone && (!r.watched || r.epoch != s.epoch) {
			doubt = append(doubt, i)
			if r.epoch != s.epoch && r.State == driver.Waiting {
				r.events++
			}
		}
	}
	s.mu.Unlock()
	inParallel(len(doubt), func(k int) {
		r := rs[doubt[k]]
		r.busy.Lock()
		defer r.busy.Unlock()
		errs[doubt[k]] = r.verifyLocked()
	})
	if err := s.sync(); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	s.mu.Lock()
	var waiting []int
	moved := make(map[int]bool)
	for i, r := range rs {
		if errs[i] == nil && r.State == driver.Waiting {
			waiting = append(waiting, i)
			moved[i] = r.events != r.resolvedAt || r.manyAhead || r.severalNodes
		}
	}
	s.mu.Unlock()
	inParallel(len(waiting), func(k int) {
		i := waiting[k]
		r := rs[i]
		r.busy.Lock()
		defer r.busy.Unlock()
		if moved[i] {
			errs[i] = r.resolveLocked()
		} else {
			errs[i] = r.recountLocked()
		}
	})
	return errs
}
