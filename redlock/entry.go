package redlock

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// stage is how far a ticket has come.
type stage uint8

const (
	fresh   stage = iota // its first Join is not decided
	inLine               // it waits, at home or, between two tries, nowhere
	granted              // it had a majority
	over                 // it is Gone, or has left
)

// An entry is a ticket of this client and its votes.
type entry struct {
	t    *driver.Ticket
	turn chan struct{} // holds a value while somebody goes for the majority

	mu       sync.Mutex
	stage    stage
	left     bool // it leaves, or has left: what comes now is given back
	chasing  bool // a goroutine goes for the majority
	votes    []vote
	home     int // the node in whose line it stands, -1 for none
	gens     int // names of tickets given out
	fails    int // tries for the majority that failed in a row
	rewrites int // rounds to write a token back
	token    uint64
	since    uint64        // the mark of the grant
	changed  chan struct{} // closed and replaced with every answer
	back     int           // votes on their way back
}

// A vote is a node's ticket for an entry, or that there is none.
type vote struct {
	t      *driver.Ticket // nil for none
	old    *driver.Ticket // replaced by t, until that is answered
	state  driver.State   // 0 while nothing is known
	token  uint64
	until  time.Time // the node keeps it as long as this at least
	place  driver.Place
	busy   bool // a Join of it is under way
	unsure bool // a Join of it went unanswered
	pushed bool // granted by a push that came before the answer
	err    error
	leftAs driver.State // what Leave found
	mark   uint64       // of the last request for the whole TTL that was answered, see Driver.marks
}

// generation is how many digits a node's ticket adds to the id; names are how
// many of them an entry may use before others with the same id could.
const (
	generation = 8
	names      = 64
)

// base returns the id of the ticket to which a node's ticket belongs.
func base(id string) string {
	cut := len(id) - generation
	if cut < 1 || strings.Trim(id[cut-1:], "0123456789") != "" {
		return id
	}
	return id[:cut]
}

// ticket makes the next ticket for a node. A ticket that is Gone stays Gone, so
// that each try has an id of its own; one more digit keeps its form.
func (e *entry) ticket(ttl time.Duration, floor uint64) *driver.Ticket {
	t := &driver.Ticket{
		ID:   fmt.Sprintf("%s%0*d", e.t.ID, generation, e.gens%1e8),
		Name: e.t.Name, Units: 1, Limit: 1, TTL: ttl, Meta: e.t.Meta, Floor: max(floor, e.t.Floor),
	}
	e.gens++
	return t
}

// signal wakes all who wait for a change. The lock is held.
func (e *entry) signal() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// holds says whether a vote counts at this time.
func (v *vote) holds(now time.Time) bool {
	return v.state == driver.Held && !v.busy && now.Before(v.until)
}

// tally counts the votes: those held, and those that owe an answer.
func (d *Driver) tally(e *entry, now time.Time) (held, prompt, late int) {
	for i := range e.votes {
		switch v := &e.votes[i]; {
		case v.holds(now):
			held++
		case v.busy && d.nodes[i].prompt():
			prompt++
		case v.busy:
			late++
		}
	}
	return held, prompt, late
}

// tokensHeld returns the tokens of the votes that count.
func (e *entry) tokensHeld(now time.Time) []uint64 {
	var ts []uint64
	for i := range e.votes {
		if v := &e.votes[i]; v.holds(now) {
			ts = append(ts, v.token)
		}
	}
	return ts
}

// kept returns until when a majority of nodes keeps the entry.
func (e *entry) kept(quorum int) time.Time {
	var ends []time.Time
	for i := range e.votes {
		if v := &e.votes[i]; v.state == driver.Held && !v.busy {
			ends = append(ends, v.until)
		}
	}
	if len(ends) < quorum {
		return time.Time{}
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	return ends[quorum-1]
}

// homes returns the nodes in the order in which they are the home of a name.
func (d *Driver) homes(name string) []int {
	h := fnv.New32a()
	h.Write([]byte(name))
	first := int(h.Sum32() % uint32(len(d.nodes)))
	order := make([]int, len(d.nodes))
	for i := range order {
		order[i] = (first + i) % len(d.nodes)
	}
	return order
}

// homeOf returns the first node in the name's order that can be its home, of
// those that except does not exclude, or -1.
func (d *Driver) homeOf(name string, wait bool, except func(i int) bool) int {
	for _, i := range d.homes(name) {
		if n := d.nodes[i]; n.homely() && (!wait || n.watched.Load() || !d.traits.Push) && !except(i) {
			return i
		}
	}
	return -1
}

// find returns the entry of a ticket, or nil.
func (d *Driver) find(id string) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[id]
}

// enter returns the entry of a ticket, which it makes if there is none; nil if
// the ticket must stay Gone.
func (d *Driver) enter(t *driver.Ticket) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[t.ID]; e != nil {
		return e
	}
	if _, dead := d.graves[t.ID]; dead {
		return nil
	}
	e := &entry{t: t, turn: make(chan struct{}, 1), votes: make([]vote, len(d.nodes)), home: -1, changed: make(chan struct{})}
	d.serial = (d.serial + names) % 1e8
	e.gens = d.serial
	d.entries[t.ID] = e
	return e
}

// graveLasts is longer than any request is under way.
const (
	graveLasts = 5 * time.Minute
	gravesMost = 1 << 16
)

// forget drops an entry; buried, its id stays Gone.
func (d *Driver) forget(id string, bury bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.entries, id)
	if !bury {
		return
	}
	now := time.Now()
	if len(d.graves) >= gravesMost {
		for id, until := range d.graves {
			if now.After(until) {
				delete(d.graves, id)
			}
		}
	}
	d.graves[id] = now.Add(graveLasts)
}
