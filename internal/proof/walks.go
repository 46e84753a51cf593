package main

import (
	"maps"
	"slices"
	"strings"
)

// walkLength is the greatest number of requests in a walk, and endsInWalk that of the
// ends of places' times, for each of which a store in real time takes a lease.
const (
	walkLength = 40
	endsInWalk = 3
)

// Walks are walks over all edges of a graph. Each begins with an empty queue; a
// step is a request, its answer and the state that follows.
type Walks struct {
	Name   string `json:"name"`
	Limit  int64  `json:"limit"`
	States int    `json:"states"`
	Edges  int    `json:"edges"`
	// Timeless go over all edges but those of Expire, and Expiring over those.
	Timeless [][]string `json:"timeless"`
	Expiring [][]string `json:"expiring"`
}

// expires reports whether a request is the end of a place's time.
func expires(request string) bool { return strings.HasPrefix(request, "expire ") }

// walks makes walks over all edges that are chosen, by way of edges that are allowed.
func (g *Graph) walks(allowed, chosen func(request string) bool) (all [][]string) {
	type edge struct{ from, request string }
	open := map[edge]bool{}
	for from, requests := range g.Edges {
		for request := range requests {
			if allowed(request) && chosen(request) {
				open[edge{from, request}] = true
			}
		}
	}
	// next returns the shortest way from a state to an open edge, and over it.
	next := func(from string) []edge {
		ways := map[string][]edge{from: nil}
		for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
			s := todo[0]
			requests := slices.Sorted(maps.Keys(g.Edges[s]))
			for _, r := range requests {
				if open[edge{s, r}] {
					return append(slices.Clone(ways[s]), edge{s, r})
				}
			}
			for _, r := range requests {
				to := g.Edges[s][r]
				if _, seen := ways[to]; !seen && allowed(r) {
					ways[to] = append(slices.Clone(ways[s]), edge{s, r})
					todo = append(todo, to)
				}
			}
		}
		return nil
	}
	for len(open) > 0 {
		var walk []string
		ends := 0
		for s := g.Init; ; {
			way := next(s)
			for _, e := range way {
				if expires(e.request) {
					ends++
				}
			}
			if way == nil || len(walk) > 0 && (len(walk)+len(way) > walkLength || ends > endsInWalk) {
				break
			}
			for _, e := range way {
				delete(open, e)
				s = g.Edges[e.from][e.request]
				walk = append(walk, e.request+" "+s)
			}
		}
		if walk == nil {
			return nil // an edge cannot be reached: the caller counts
		}
		all = append(all, walk)
	}
	return all
}

// Walks returns walks over all edges of the graph.
func (g *Graph) Walks(name string, limit int64) *Walks {
	w := &Walks{Name: name, Limit: limit, States: len(g.Edges)}
	for _, requests := range g.Edges {
		w.Edges += len(requests)
	}
	timeless := func(r string) bool { return !expires(r) }
	w.Timeless = g.walks(timeless, timeless)
	w.Expiring = g.walks(func(string) bool { return true }, expires)
	return w
}

// covered counts the edges that walks go over.
func (w *Walks) covered() int {
	seen := map[string]bool{}
	for _, walk := range slices.Concat(w.Timeless, w.Expiring) {
		from := "||"
		for _, step := range walk {
			request, to := step[:strings.LastIndexByte(step, ' ')], step[strings.LastIndexByte(step, ' ')+1:]
			seen[from+" "+request] = true
			from = to
		}
	}
	return len(seen)
}
