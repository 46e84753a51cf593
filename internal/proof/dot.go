package main

import (
	"fmt"
	"regexp"
	"strings"
)

// Graph is the graph of module Seam: its states without the request that led
// there, and the requests between them.
type Graph struct {
	Init  string
	Edges map[string]map[string]string // from a state, by request and answer, to a state
}

var (
	dotHead   = []string{"strict digraph DiskGraph {", "nodesep=0.35;", "subgraph cluster_graph {", `color="white";`}
	dotNodeRE = regexp.MustCompile(`^(-?\d+) \[label="(.*)"(,style = filled)?\];?$`)
	dotEdgeRE = regexp.MustCompile(`^(-?\d+) -> (-?\d+) \[label="\w*",color="black",fontcolor="black"\];$`)
	dotRankRE = regexp.MustCompile(`^\{rank = same; (-?\d+;)*\}$`)
	didRE     = regexp.MustCompile(`^<<"(\w+)", (\w|"-"), (\w|"-")>>$`)
)

// parseDot reads what TLC dumps of module Seam, which has to be of as many states.
// A line that it does not know is an error.
func parseDot(text string, states int64) (*Graph, error) {
	type node struct{ state, request string }
	nodes, initial := map[string]node{}, ""
	type edge struct{ from, to string }
	var edges []edge
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < len(dotHead)+2 {
		return nil, fmt.Errorf("a graph of %d lines", len(lines))
	}
	for n, line := range lines {
		last := n >= len(lines)-2
		switch m := dotNodeRE.FindStringSubmatch(line); {
		case n < len(dotHead) && line == dotHead[n], last && line == "}", dotRankRE.MatchString(line):
		case m != nil:
			state, request, err := parseLabel(m[2])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n+1, err)
			}
			if was, ok := nodes[m[1]]; ok && was != (node{state, request}) {
				return nil, fmt.Errorf("line %d: state %s is there twice", n+1, m[1])
			}
			nodes[m[1]] = node{state, request}
			if m[3] != "" {
				initial = state
			}
		case dotEdgeRE.MatchString(line):
			m := dotEdgeRE.FindStringSubmatch(line)
			edges = append(edges, edge{m[1], m[2]})
		default:
			return nil, fmt.Errorf("line %d is not understood: %.200q", n+1, line)
		}
	}
	if int64(len(nodes)) != states || initial == "" {
		return nil, fmt.Errorf("the graph has %d states and begins in %q, and TLC found %d", len(nodes), initial, states)
	}
	g := &Graph{Init: initial, Edges: map[string]map[string]string{}}
	for _, e := range edges {
		from, ok := nodes[e.from]
		to, ok2 := nodes[e.to]
		if !ok || !ok2 {
			return nil, fmt.Errorf("an edge from %s to %s, which are not both there", e.from, e.to)
		}
		if g.Edges[from.state] == nil {
			g.Edges[from.state] = map[string]string{}
		}
		if was, ok := g.Edges[from.state][to.request]; ok && was != to.state {
			return nil, fmt.Errorf("%q leads from %q to %q and to %q", to.request, from.state, was, to.state)
		}
		g.Edges[from.state][to.request] = to.state
	}
	return g, nil
}

// parseLabel reads a state of module Seam: "ab|c|" for a queue in which a and b
// hold and c waits, followed by the ids that stay gone, and "join c - waiting". Where
// the place of an owner has more units than a ticket asks for, the ticket follows, as
// in "b|c||b".
func parseLabel(label string) (state, request string, err error) {
	values := map[string]string{}
	for _, part := range strings.Split(strings.ReplaceAll(label, `\"`, `"`), `\n`) {
		name, value, ok := strings.Cut(strings.TrimPrefix(part, `/\\ `), " = ")
		if !ok {
			return "", "", fmt.Errorf("%q is not the value of a variable", part)
		}
		values[name] = value
	}
	held := letters(values["held"])
	var holders, waiters string
	for _, t := range letters(values["queue"]) {
		if strings.ContainsRune(held, t) {
			holders += string(t)
		} else {
			waiters += string(t)
		}
	}
	did := didRE.FindStringSubmatch(values["did"])
	if len(values) != 6 || did == nil || len(holders) != len(held) {
		return "", "", fmt.Errorf("%q is no state of module Seam", label)
	}
	request = fmt.Sprintf("%s %s %s %s", did[1], strings.Trim(did[2], `"`), strings.Trim(did[3], `"`), strings.ReplaceAll(strings.Trim(values["says"], `"`), " ", "-"))
	state = holders + "|" + waiters + "|" + letters(values["gone"])
	if wide := letters(values["wide"]); wide != "" {
		state += "|" + wide
	}
	return state, request, nil
}

// letters returns the tickets of a set or a sequence.
func letters(value string) string {
	return strings.NewReplacer("{", "", "}", "", "<", "", ">", "", ",", "", " ", "").Replace(value)
}
