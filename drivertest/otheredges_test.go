package drivertest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/drivertest"
	"github.com/holdfast-go/holdfast/memlock"
)

var writeEdges = flag.Bool("edges.write", false, "write the list of edges that no other case takes to "+edgesPage)

// edgesPage lists the edges that case edges alone takes.
const edgesPage = "../docs/proof/edges.md"

// atRandom are the cases that meet other states in each run.
var atRandom = []string{"hammer", "program", "edges"}

// TestEdgesOfOtherCases checks that docs/proof/edges.md names the edges of module Seam
// that no case of the suite takes but case edges.
func TestEdgesOfOtherCases(t *testing.T) {
	graphs, err := drivertest.EdgeGraphs()
	if err != nil || len(graphs) != 5 {
		t.Fatalf("%d graphs: %v", len(graphs), err)
	}
	taken, same := map[string]map[string]bool{}, map[string]map[string][]string{}
	for i := range graphs {
		taken[graphs[i].Name], same[graphs[i].Name] = map[string]bool{}, sameEdges(&graphs[i])
	}
	for _, c := range drivertest.Cases() {
		if slices.ContainsFunc(atRandom, func(p string) bool { return strings.HasPrefix(c.Name, p) }) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			l := &requestLog{store: memlock.NewStore(), graphs: graphs, taken: taken, alike: same, crowded: map[string]bool{}, tickets: map[string]*driver.Ticket{}, wide: map[string]bool{}, gone: map[string][]string{}, last: map[string]seenQueue{}}
			l.witness = memlock.New(l.store)
			drivertest.Record(c.Name, func(r drivertest.T) {
				h := drivertest.InBubble(drivertest.Harness{TTL: 30 * time.Second, Open: func(drivertest.T) driver.Driver {
					return &loggedDriver{memlock.New(l.store), l}
				}})
				if slices.ContainsFunc(drivertest.Chosen(r, h), func(x drivertest.Case) bool { return x.Name == c.Name }) {
					drivertest.RunCase(r, h, c)
				}
			})
			if err := l.witness.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Hour)
		})
	}
	text := edgesText(graphs, taken, same)
	if *writeEdges {
		if err := os.WriteFile(edgesPage, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(edgesPage)
	if err != nil || string(page) != text {
		t.Errorf("%s is not what the cases take: make proof-edges writes it (%v)", edgesPage, err)
	}
}

// edgesText writes the page.
func edgesText(graphs []drivertest.EdgeGraph, taken map[string]map[string]bool, same map[string]map[string][]string) string {
	var b strings.Builder
	b.WriteString(`# The edges that case edges alone takes

[traces.md](traces.md) tells of module Seam: every request in every state of a small
queue. Case ` + "`edges`" + ` of ` + "`drivertest`" + ` goes over all of its edges. Here are those that no other
case of the suite takes on the store in memory; the cases that draw their requests at random
are left out. ` + "`make proof-edges`" + ` writes this page, and ` + "`TestEdgesOfOtherCases`" + ` compares it.

Before the colon stands a state: tickets that hold, tickets that wait, ids that stay gone, and
those whose owner's place has more units than they ask for. After it stand requests, each
with its ticket and its answer. Of edges that differ in the names of tickets alone there
is one, and one that is taken counts for all of them. Of ids that stay gone, a queue has to have
had as many, or more. The step ` + "`fresh`" + ` is no request: a client goes on with another ticket.
`)
	for _, g := range graphs {
		count, missing := 0, map[string][]string{}
		all := 0
		for _, e := range slices.Sorted(maps.Keys(g.Edges)) {
			from, request, _ := strings.Cut(e, " ")
			if strings.HasPrefix(request, "fresh ") {
				continue
			}
			all++
			if taken[g.Name][e] {
				continue
			}
			count++
			if e == slices.Min(same[g.Name][settledEdge(g.Name, e)]) {
				f := strings.Fields(request)
				text := f[0] + " " + f[1]
				if f[2] != "-" {
					text += " for " + f[2]
				}
				missing[from] = append(missing[from], text+" "+f[3])
			}
		}
		fmt.Fprintf(&b, "\n## Graph %s\n\nOther cases take %d of %d edges. The others:\n\n", g.Name, all-count, all)
		for _, from := range slices.Sorted(maps.Keys(missing)) {
			fmt.Fprintf(&b, "- `%s`: %s\n", from, strings.Join(missing[from], ", "))
		}
	}
	return b.String()
}

// letterOrders are the ways to rename the tickets a, b and c.
var letterOrders = []string{"abc", "acb", "bac", "bca", "cab", "cba"}

// kindOf returns what a ticket of a graph is, by its letter: units and owner.
func kindOf(graph string, letter byte) string {
	switch graph {
	case "owner":
		return map[byte]string{'a': "owned", 'b': "owned", 'c': ""}[letter]
	case "shared":
		return map[byte]string{'c': "all", 'a': "", 'b': ""}[letter]
	case "upgrade":
		return map[byte]string{'a': "owned all", 'b': "owned", 'c': ""}[letter]
	}
	return ""
}

// settledEdge returns an edge with its state settled.
func settledEdge(graph, edge string) string {
	from, request, _ := strings.Cut(edge, " ")
	return settled(graph, from) + " " + request
}

// sameEdges returns, by settled edge, the edges that are as it but for the names of
// tickets, with itself.
func sameEdges(g *drivertest.EdgeGraph) map[string][]string {
	settledAs := map[string][]string{}
	for e := range g.Edges {
		settledAs[settledEdge(g.Name, e)] = append(settledAs[settledEdge(g.Name, e)], e)
	}
	all := map[string][]string{}
	for e := range settledAs {
		from, request, _ := strings.Cut(e, " ")
		f := strings.Fields(request)
		for _, order := range letterOrders {
			same := true
			for i := range 3 {
				same = same && kindOf(g.Name, "abc"[i]) == kindOf(g.Name, order[i])
			}
			if same {
				rename := strings.NewReplacer("a", order[:1], "b", order[1:2], "c", order[2:])
				renamed := settled(g.Name, rename.Replace(from)) + " " + f[0] + " " + rename.Replace(f[1]) + " " + rename.Replace(f[2]) + " " + f[3]
				all[e] = append(all[e], settledAs[renamed]...)
			}
		}
	}
	return all
}

// settled returns a state with its tickets sorted, but for those that wait in order.
func settled(graph, state string) string {
	parts := strings.Split(state, "|")
	for i := range parts {
		if i == 1 {
			if kindOf(graph, 'a') == "owned" || graph == "upgrade" {
				parts[i] = strings.Replace(parts[i], "ba", "ab", 1)
			}
			continue
		}
		all := []byte(parts[i])
		slices.Sort(all)
		parts[i] = string(all)
	}
	return strings.Join(parts, "|")
}

// requestLog maps requests to edges.
type requestLog struct {
	store   *memlock.Store
	witness driver.Driver
	graphs  []drivertest.EdgeGraph
	taken   map[string]map[string]bool
	alike   map[string]map[string][]string // by graph and settled edge

	mu      sync.Mutex
	crowded map[string]bool // queues that were too long: they are not looked at any more
	tickets map[string]*driver.Ticket
	wide    map[string]bool
	gone    map[string][]string // by the name of a queue
	last    map[string]seenQueue
}

// seenQueue is the ids in a queue.
type seenQueue struct{ held, waiting []string }

func (q seenQueue) ids() []string { return slices.Concat(q.held, q.waiting) }

// look returns a queue as it is.
func (l *requestLog) look(name string) (s seenQueue) {
	if l.crowded[name] {
		return s
	}
	q, err := l.witness.Inspect(context.Background(), name)
	if l.crowded[name] = err != nil || len(q.Tickets) > 8; l.crowded[name] {
		return s
	}
	for _, e := range q.Tickets {
		switch {
		case e.Left <= 0:
		case e.State == driver.Held:
			s.held = append(s.held, e.ID)
		default:
			s.waiting = append(s.waiting, e.ID)
		}
	}
	return s
}

// before notes the ends of places since the last request, and returns the queue.
func (l *requestLog) before(name string) seenQueue {
	was, is := l.last[name], l.look(name)
	var ended []string
	for _, id := range was.ids() {
		if !slices.Contains(is.ids(), id) {
			ended = append(ended, id)
		}
	}
	if len(ended) == 1 {
		l.take(name, was, "expire", ended[0], "", "done")
	}
	return is
}

// take notes the edges that a request took.
func (l *requestLog) take(name string, from seenQueue, do, id, other, says string) {
	involved := from.ids()
	for _, x := range []string{id, other} {
		if x != "" && !slices.Contains(involved, x) {
			involved = append(involved, x)
		}
	}
	if len(involved) > 3 || l.crowded[name] {
		return
	}
	for i := range l.graphs {
		g := &l.graphs[i]
		for _, order := range letterOrders {
			if letters, ok := l.letters(g.Name, involved, order); ok {
				l.takeAs(g, name, from, letters, do, id, other, says)
			}
		}
	}
}

// letters names tickets by the letters of a graph, and reports whether they are of its
// world.
func (l *requestLog) letters(graph string, ids []string, order string) (map[string]byte, bool) {
	letters, owner := map[string]byte{}, ""
	for i, id := range ids {
		t := l.tickets[id]
		if t == nil {
			return nil, false
		}
		limit := map[string]int64{"mutex": 1, "owner": 1, "semaphore": 2}[graph]
		if limit == 0 {
			limit = driver.RWLimit
		}
		kind := kindOf(graph, order[i])
		units := int64(1)
		if strings.HasSuffix(kind, "all") {
			units = limit
		}
		owned := strings.HasPrefix(kind, "owned")
		if t.Limit != limit || t.Units != units || (t.Owner != "") != owned || owned && owner != "" && t.Owner != owner {
			return nil, false
		}
		if owned {
			owner = t.Owner
		}
		letters[id] = order[i]
	}
	return letters, true
}

// takeAs notes the edges of a graph that a request took, with tickets named by letters.
// A letter that no ticket has may be an id that stays gone, if the queue has had one.
func (l *requestLog) takeAs(g *drivertest.EdgeGraph, name string, from seenQueue, letters map[string]byte, do, id, other, says string) {
	word := func(ids []string) (s string) {
		for _, x := range ids {
			s += string(letters[x])
		}
		return s
	}
	var gone, wide string
	spare := len(l.gone[name])
	for x, letter := range letters {
		if slices.Contains(l.gone[name], x) {
			gone += string(letter)
			spare--
		}
		if l.wide[x] && slices.Contains(from.ids(), x) {
			wide += string(letter)
		}
	}
	var free string
	for _, letter := range "abc" {
		if !slices.Contains(slices.Collect(maps.Values(letters)), byte(letter)) {
			free += string(letter)
		}
	}
	request := " " + do + " " + string(letters[id]) + " -" + " " + says
	if other != "" {
		request = " " + do + " " + string(letters[id]) + " " + string(letters[other]) + " " + says
	}
	for set := range 1 << len(free) {
		more := ""
		for i := range len(free) {
			if set&(1<<i) != 0 {
				more += free[i : i+1]
			}
		}
		if len(more) > spare {
			continue
		}
		state := word(from.held) + "|" + word(from.waiting) + "|" + gone + more
		if wide != "" {
			state += "|" + wide
		}
		e := settled(g.Name, state) + request
		for _, x := range l.alike[g.Name][e] {
			l.taken[g.Name][x] = true
		}
	}
}

// loggedDriver is a driver of the store in memory whose requests are mapped to edges.
type loggedDriver struct {
	*memlock.Driver
	l *requestLog
}

func (d *loggedDriver) Join(ctx context.Context, t *driver.Ticket, wait bool) (driver.Status, error) {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	from := d.l.before(t.Name)
	copied := *t
	d.l.tickets[t.ID] = &copied
	if !slices.Contains(from.ids(), t.ID) {
		d.l.wide[t.ID] = slices.ContainsFunc(from.ids(), func(id string) bool {
			u := d.l.tickets[id]
			return u != nil && t.Owner != "" && u.Owner == t.Owner && (u.Units > t.Units || d.l.wide[id])
		})
	}
	s, err := d.Driver.Join(ctx, t, wait)
	do, other, says := "join", "", s.State.String()
	if !wait {
		do = "try"
	}
	if t.Replaces != nil && slices.Contains(from.held, t.Replaces.ID) && !slices.Contains(from.ids(), t.ID) {
		do, other = "replace", t.Replaces.ID
	}
	if errors.Is(err, driver.ErrUpgrade) {
		says, err = "refused", nil
	}
	if err == nil && s.Err == nil {
		d.l.take(t.Name, from, do, t.ID, other, says)
	}
	d.l.last[t.Name] = d.l.look(t.Name)
	return s, err
}

func (d *loggedDriver) Renew(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.batch(ctx, "renew", refs, d.Driver.Renew)
}

func (d *loggedDriver) Leave(ctx context.Context, refs []driver.Ref) ([]driver.Status, error) {
	return d.batch(ctx, "leave", refs, d.Driver.Leave)
}

func (d *loggedDriver) batch(ctx context.Context, do string, refs []driver.Ref, send func(context.Context, []driver.Ref) ([]driver.Status, error)) ([]driver.Status, error) {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	from := make([]seenQueue, len(refs))
	for i, r := range refs {
		from[i] = d.l.before(r.Ticket.Name)
		if d.l.tickets[r.Ticket.ID] == nil {
			copied := *r.Ticket
			d.l.tickets[r.Ticket.ID] = &copied
		}
	}
	all, err := send(ctx, refs)
	for i, r := range refs {
		name := r.Ticket.Name
		alone := !slices.ContainsFunc(refs, func(x driver.Ref) bool { return x.Ticket.Name == name && x.Ticket != r.Ticket })
		what := do
		if do == "leave" && r.JoinPending {
			what = "pending"
		}
		if err == nil && i < len(all) && all[i].Err == nil {
			if alone || do == "renew" {
				d.l.take(name, from[i], what, r.Ticket.ID, "", all[i].State.String())
			}
			if what == "pending" {
				d.l.gone[name] = append(d.l.gone[name], r.Ticket.ID)
			}
		}
		d.l.last[name] = d.l.look(name)
	}
	return all, err
}

func (d *loggedDriver) Break(ctx context.Context, name, id string) error {
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	from := d.l.before(name)
	err := d.Driver.Break(ctx, name, id)
	switch {
	case err == nil:
		d.l.take(name, from, "break", id, "", "done")
		d.l.gone[name] = append(d.l.gone[name], id)
	case errors.Is(err, driver.ErrNoTicket):
		d.l.take(name, from, "break", id, "", "no-ticket")
	}
	d.l.last[name] = d.l.look(name)
	return err
}
