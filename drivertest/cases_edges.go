package drivertest

import (
	_ "embed" // the walks
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// edgesText has walks over every edge of module Seam of folder proof. make
// proof-edges writes it, and a test of internal/proof compares it with the module.
//
//go:embed testdata/edges.json
var edgesText []byte

// edgeGraph is the walks over one graph of module Seam. A step is a request, its
// ticket, the ticket that it replaces, its answer, and the state that follows:
// holders, waiters, ids that stay gone, and tickets that ask for less than their
// owner's place has, if any, as in "join c - waiting a|c|".
type edgeGraph struct {
	Name               string
	Limit              int64
	Edges              int
	Timeless, Expiring [][]string
}

func edgeGraphs() ([]edgeGraph, error) {
	var all struct{ Graphs []edgeGraph }
	err := json.Unmarshal(edgesText, &all)
	return all.Graphs, err
}

// walksAtOnce is the number of walks that are played at a time, each on a queue of
// its own.
const walksAtOnce = 32

// edgePatience is the longest time for which a ticket may have been gone when a
// step relies on that: the shortest tombstone lasts a minute.
const edgePatience = 20 * time.Second

// endsAtOnce is that number for walks in which places' times end: in real time these
// wait for leases most of the time.
const endsAtOnce = 64

var edgeCases = []Case{
	{Name: "edges", Rules: "Driver 6, Join 1, 2, 3, 4, 5, 7, 8, 10, Renew 2, 3, Leave 1, 2, 4, Break 1, 3, Inspect 1", run: func(w *world) {
		// Every request in every state of a queue of three tickets: the answer, the
		// order of tokens, and the queue that it leaves. On a store that keeps no
		// order, as RedLock, only states are compared, and a waiter is granted when
		// its client asks: a walk in which another one is granted first ends there.
		graphs, err := edgeGraphs()
		if err != nil || len(graphs) != 5 {
			w.Fatalf("%d graphs: %v", len(graphs), err)
		}
		var taken []*edgeTally
		for i := range graphs {
			g := &graphs[i]
			if need := g.needs(); w.h.has(w.traits)&need != need {
				w.Logf("edges of a %s: none of %d, which need %v", g.Name, g.Edges, need)
				continue
			}
			taken = append(taken, &edgeTally{g: g, edges: map[string]bool{}, why: map[string]int{}})
		}
		w.playGraphs(taken)
		is, of := 0, 0
		for _, t := range taken {
			is, of = is+len(t.edges), of+t.g.Edges
			t.judge(w)
		}
		w.Logf("edges: %d of %d", is, of)
	}},
}

// needs returns what a store has to offer for the graph.
func (g *edgeGraph) needs() (n Needs) {
	if g.Limit > 1 {
		n |= Shared
	}
	if g.owned("a") {
		n |= Owner
	}
	return n
}

// owned reports whether a ticket has the named owner of the graph.
func (g *edgeGraph) owned(ticket string) bool {
	return (g.Name == "owner" || g.Name == "upgrade") && ticket != "c"
}

// writer returns the ticket that takes the whole of a read/write lock's limit, and
// whether there is one.
func (g *edgeGraph) writer() (ticket string, ok bool) {
	switch g.Name {
	case "shared":
		return "c", true
	case "upgrade":
		return "a", true
	}
	return "", false
}

// edgeTally has what came of the walks of a graph.
type edgeTally struct {
	g     *edgeGraph
	mu    sync.Mutex
	walks int
	edges map[string]bool
	wrong []string
	late  int
	why   map[string]int // reasons not to go on, and how many walks ended by them
}

// playGraphs plays the walks of graphs: first those in which no place's time ends.
func (w *world) playGraphs(taken []*edgeTally) {
	w.Helper()
	left, right := w.clientIgnoringPushes(), w.clientIgnoringPushes()
	w.witness()
	type walk struct {
		tally  *edgeTally
		number int
		steps  []string
		ends   bool
	}
	var timeless, expiring []walk
	for _, t := range taken {
		for _, steps := range t.g.Timeless {
			timeless = append(timeless, walk{t, len(timeless), steps, false})
		}
		for _, steps := range t.g.Expiring {
			expiring = append(expiring, walk{t, len(expiring), steps, true})
		}
	}
	for _, walks := range [][]walk{timeless, expiring} {
		todo := make(chan walk)
		var playing sync.WaitGroup
		for range min(len(walks), map[bool]int{false: walksAtOnce, true: endsAtOnce}[len(walks) > 0 && walks[0].ends]) {
			playing.Go(func() {
				for x := range todo {
					for attempt := range edgeAttempts {
						p := &edgePlayer{w: w, g: x.tally.g, clients: map[string]*client{"a": left, "b": left, "c": right}, ttl: w.longTTL(), ends: x.ends}
						p.name = fmt.Sprintf("%s-%d-%v-%d", x.tally.g.Name, x.number, x.ends, attempt)
						if x.tally.g.Name == "upgrade" { // an owner's tickets may be those of several processes
							p.clients["b"] = right
						}
						if x.ends {
							p.ttl = p.shortTTL()
						}
						if edges, stopped, err := p.play(x.steps); x.tally.add(p, edges, stopped, err, attempt == edgeAttempts-1) {
							break
						}
					}
				}
			})
		}
		for _, x := range walks {
			todo <- x
		}
		close(todo)
		playing.Wait()
	}
}

// edgeAttempts bounds how often a walk is played that ends before its time.
const edgeAttempts = 4

// tooSlow is the reason of a walk that ends since the machine stood still for longer
// than a ticket of it lasts.
const tooSlow = "the machine was too slow"

// add notes what came of a walk, and reports whether it need not be played again.
func (t *edgeTally) add(p *edgePlayer, edges []string, stopped string, err error, last bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late += p.late
	for _, e := range edges {
		t.edges[e] = true
	}
	if stopped != "" && !last {
		return false
	}
	t.walks++
	if stopped != "" {
		t.why[stopped]++
	}
	if err != nil {
		t.wrong = append(t.wrong, err.Error())
	}
	return true
}

// judge logs the edges that the walks went over, and fails the case where they went
// wrong, or did not go over all edges for no reason.
func (t *edgeTally) judge(w *world) {
	w.Helper()
	if t.late > 0 {
		w.Logf("edges of a %s: Ahead in %d answers to Renew counts tickets that had left", t.g.Name, t.late)
	}
	if len(t.wrong) > 0 {
		slices.Sort(t.wrong)
		w.Fatalf("%d of %d walks over the edges of a %s go wrong; the first: %s", len(t.wrong), t.walks, t.g.Name, t.wrong[0])
	}
	if len(t.edges) == t.g.Edges {
		w.Logf("edges of a %s: %d of %d", t.g.Name, len(t.edges), t.g.Edges)
		return
	}
	var reasons []string
	for _, r := range slices.Sorted(maps.Keys(t.why)) {
		reasons = append(reasons, fmt.Sprintf("%s (%d walks)", r, t.why[r]))
	}
	w.Logf("edges of a %s: %d of %d; the others are left out: %s", t.g.Name, len(t.edges), t.g.Edges, strings.Join(reasons, ", "))
	if len(reasons) == 0 || 2*len(t.edges) < t.g.Edges {
		w.Errorf("the walks do not go over all edges of a %s", t.g.Name)
	}
}

// edgePlayer plays one walk.
type edgePlayer struct {
	w       *world
	g       *edgeGraph
	name    string
	ttl     time.Duration
	clients map[string]*client // by ticket

	tickets map[string]*edgeTicket
	grants  int // so far
	tokens  []edgeToken
	state   edgeState
	late    int         // answers to Renew that counted places which had left
	expired bool        // a place has ended: the store may count it until it is in the way
	ends    bool        // places end in this walk: tickets are renewed in time, or the machine is too slow
	lapsed  bool        // a ticket was not renewed in time
	ending  *edgeTicket // the one whose place ends
}

// edgeTicket is the ticket that has the name a, b or c now.
type edgeTicket struct {
	*driver.Ticket
	spent  bool      // it has left for certain, and does not join again
	grant  int       // the number of its grant; 0: none
	told   bool      // its client has heard of the grant
	broken bool      // an operator has removed it
	gone   time.Time // when it became one that stays gone

	sent, answered time.Time // of the last request that renewed it
}

// edgeToken is a token with the number of its grant.
type edgeToken struct {
	grant     int
	token     uint64
	exclusive bool
}

// edgeState is a state of the graph: tickets, each a letter.
type edgeState struct{ held, waiting, gone, wide string }

func parseEdgeState(s string) (edgeState, bool) {
	p := strings.Split(s, "|")
	if len(p) == 3 {
		p = append(p, "")
	}
	if len(p) != 4 {
		return edgeState{}, false
	}
	return edgeState{p[0], p[1], p[2], p[3]}, true
}

func (s edgeState) queue() string { return s.held + s.waiting }

func (s edgeState) String() string {
	text := s.held + "|" + s.waiting + "|" + s.gone
	if s.wide != "" {
		text += "|" + s.wide
	}
	return text
}

// play plays a walk. It returns the edges that it went over, and the reason for
// which it stopped before the end, if any.
func (p *edgePlayer) play(walk []string) (edges []string, stopped string, err error) {
	p.tickets = map[string]*edgeTicket{}
	for _, t := range []string{"a", "b", "c"} {
		p.renew(t)
	}
	defer p.end()
	began := time.Now()
	for i, step := range walk {
		f := strings.Fields(step)
		if len(f) != 5 {
			return nil, "", fmt.Errorf("step %q is not understood", step)
		}
		to, ok := parseEdgeState(f[4])
		if !ok {
			return nil, "", fmt.Errorf("step %q is not understood", step)
		}
		x := p.tickets[f[1]]
		late := strings.Contains(p.state.gone, f[1]) && time.Since(x.gone) > edgePatience
		if late || !p.w.h.bubble && time.Since(began) > p.ttl/2 && !p.ends {
			return edges, tooSlow, nil
		}
		from := p.state
		err := p.keep("")
		if err == nil {
			err = p.step(f[0], f[1], f[2], f[3], to)
		}
		switch {
		case p.slow() || p.unanswered(err):
			return edges, tooSlow, nil
		case errors.Is(err, errOtherGrant):
			return edges, err.Error(), nil
		case err != nil:
			return nil, "", fmt.Errorf("%s, after %q: %q: %w", p.name, walk[max(0, i-12):i], step, err)
		}
		edges = append(edges, from.String()+" "+strings.Join(f[:4], " "))
	}
	return edges, "", nil
}

// shortTTL is the TTL of tickets whose time ends in a walk.
func (p *edgePlayer) shortTTL() time.Duration {
	if p.w.h.bubble {
		return max(100*time.Millisecond, p.w.traits.MinTTL)
	}
	return max(2*time.Second, p.w.traits.MinTTL)
}

// renew gives the name of a ticket to a new one.
func (p *edgePlayer) renew(name string) *edgeTicket {
	if old := p.tickets[name]; old != nil {
		p.clients[name].forget(old.Ticket)
	}
	limit, units := p.g.Limit, int64(1)
	if writer, ok := p.g.writer(); ok {
		limit = driver.RWLimit
		if name == writer {
			units = limit
		}
	}
	t := p.clients[name].ticket(p.name, units, limit)
	if p.g.owned(name) {
		t.Owner = "job"
	}
	t.TTL = p.ttl
	p.tickets[name] = &edgeTicket{Ticket: t}
	return p.tickets[name]
}

// end removes what the walk has left.
func (p *edgePlayer) end() {
	ctx, cancel := p.w.limit()
	defer cancel()
	for name, x := range p.tickets {
		if strings.Contains(p.state.queue(), name) && p.clients[name].leaveQuietly(ctx, x.Ticket) != nil {
			continue // the case's end removes it
		}
		p.clients[name].forget(x.Ticket)
	}
}
