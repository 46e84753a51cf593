package drivertest

import "strings"

// EdgeGraph is a graph of case edges: its name, and the edges, each a state, a request,
// its ticket, the ticket that it replaces, and its answer, with the state that follows.
type EdgeGraph struct {
	Name  string
	Edges map[string]string
}

// EdgeGraphs returns the graphs of case edges.
func EdgeGraphs() (all []EdgeGraph, err error) {
	graphs, err := edgeGraphs()
	for _, g := range graphs {
		e := EdgeGraph{g.Name, map[string]string{}}
		for _, walk := range append(g.Timeless, g.Expiring...) {
			from := "||"
			for _, step := range walk {
				i := strings.LastIndexByte(step, ' ')
				e.Edges[from+" "+step[:i]] = step[i+1:]
				from = step[i+1:]
			}
		}
		all = append(all, e)
	}
	return all, err
}
