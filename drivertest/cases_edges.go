package drivertest

import (
	_ "embed" // the walks
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

var edgeCases = []Case{
	{Name: "edges", Rules: "Driver 6, Join 1, 2, 3, 4, 5, 7, 8, 10, Renew 2, 3, Leave 1, 2, 4, Break 1, 3, Inspect 1", Needs: Fair, run: func(w *world) {
		// Every request in every state of a queue of three tickets: the answer, the
		// order of tokens, and the queue that it leaves. Where queues are not kept in
		// order, as on RedLock, a release is seen by one node after the other, and
		// the next state is any of several.
		graphs, err := edgeGraphs()
		if err != nil || len(graphs) != 5 {
			w.Fatalf("%d graphs: %v", len(graphs), err)
		}
		for _, g := range graphs {
			if need := g.needs(); w.h.has(w.traits)&need != need {
				w.Logf("edges of a %s: none of %d, which need %v", g.Name, g.Edges, need)
				continue
			}
			w.playGraph(&g)
		}
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

// playGraph plays the walks of a graph, and logs the edges that it went over.
func (w *world) playGraph(g *edgeGraph) {
	w.Helper()
	walks := slices.Clone(g.Timeless)
	if w.h.bubble {
		walks = append(walks, g.Expiring...)
	}
	left, right := w.clientIgnoringPushes(), w.clientIgnoringPushes()
	w.witness()
	var (
		mu     sync.Mutex
		taken  = map[string]bool{}
		wrong  []string
		late   int
		why    = map[string]bool{} // reasons not to go on
		next   atomic.Int64
		played sync.WaitGroup
	)
	for range walksAtOnce {
		played.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(walks) {
					return
				}
				p := &edgePlayer{w: w, g: g, name: fmt.Sprintf("%s-%d", g.Name, i), clients: map[string]*client{"a": left, "b": left, "c": right}}
				if g.Name == "upgrade" { // an owner's tickets may be those of several processes
					p.clients["b"] = right
				}
				p.ttl = w.longTTL()
				if i >= len(g.Timeless) {
					p.ttl = max(100*time.Millisecond, w.traits.MinTTL)
				}
				edges, stopped, err := p.play(walks[i])
				mu.Lock()
				late += p.late
				for _, e := range edges {
					taken[e] = true
				}
				if stopped != "" {
					why[stopped] = true
				}
				if err != nil {
					wrong = append(wrong, err.Error())
				}
				mu.Unlock()
			}
		})
	}
	played.Wait()
	if late > 0 {
		w.Logf("edges of a %s: Ahead in %d answers to Renew counts tickets that had left", g.Name, late)
	}
	if !w.h.bubble {
		why["the end of a place's time needs fake time"] = true
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		w.Fatalf("%d of %d walks over the edges of a %s go wrong; the first: %s", len(wrong), len(walks), g.Name, wrong[0])
	}
	if len(taken) == g.Edges {
		w.Logf("edges of a %s: %d of %d", g.Name, len(taken), g.Edges)
		return
	}
	var reasons []string
	for r := range why {
		reasons = append(reasons, r)
	}
	slices.Sort(reasons)
	w.Logf("edges of a %s: %d of %d; the others are left out: %s", g.Name, len(taken), g.Edges, strings.Join(reasons, ", "))
	if len(reasons) == 0 {
		w.Errorf("the walks do not go over all edges of a %s", g.Name)
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
	late    int  // answers to Renew that counted places which had left
	expired bool // a place has ended: the store may count it until it is in the way
}

// edgeTicket is the ticket that has the name a, b or c now.
type edgeTicket struct {
	*driver.Ticket
	spent  bool      // it has left for certain, and does not join again
	grant  int       // the number of its grant; 0: none
	told   bool      // its client has heard of the grant
	broken bool      // an operator has removed it
	gone   time.Time // when it became one that stays gone
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
		if late || !p.w.h.bubble && time.Since(began) > p.ttl/2 {
			return edges, "the machine was too slow", nil
		}
		from := p.state
		if err := p.step(f[0], f[1], f[2], f[3], to); err != nil {
			return nil, "", fmt.Errorf("%s, after %q: %q: %w", p.name, walk[max(0, i-12):i], step, err)
		}
		edges = append(edges, from.String()+" "+strings.Join(f[:4], " "))
	}
	return edges, "", nil
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
