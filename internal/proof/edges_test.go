package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestEdgesAreOfTheModule checks that the walks which drivertest plays were made
// from the present module: a change of it needs make proof-edges.
func TestEdgesAreOfTheModule(t *testing.T) {
	hash, err := edgesHash("../..")
	if err != nil {
		t.Fatal(err)
	}
	var e Edges
	if err := json.Unmarshal([]byte(readFile(t, "../../"+edgesFile)), &e); err != nil {
		t.Fatal(err)
	}
	if e.Hash != hash {
		t.Errorf("%s is made from another module Seam: run make proof-edges", edgesFile)
	}
	states := map[string]int{"mutex": 38, "owner": 36, "semaphore": 38, "shared": 38, "upgrade": 44}
	for _, w := range e.Graphs {
		if n := w.covered(); n != w.Edges || n < 700 || w.States != states[w.Name] {
			t.Errorf("%s: the walks go over %d of %d edges between %d states", w.Name, n, w.Edges, w.States)
		}
	}
	if len(e.Graphs) != len(states) {
		t.Errorf("%d graphs", len(e.Graphs))
	}
}

const graph = `strict digraph DiskGraph {
nodesep=0.35;
subgraph cluster_graph {
color="white";
1 [label="/\\ gone = {}\n/\\ says = \"-\"\n/\\ queue = <<>>\n/\\ did = <<\"init\", \"-\", \"-\">>\n/\\ held = {}\n/\\ wide = {}",style = filled]
1 -> -2 [label="Does",color="black",fontcolor="black"];
-2 [label="/\\ gone = {}\n/\\ says = \"held\"\n/\\ queue = <<a>>\n/\\ did = <<\"join\", a, \"-\">>\n/\\ held = {a}\n/\\ wide = {a}"];
-2 -> 3 [label="Does",color="black",fontcolor="black"];
3 [label="/\\ gone = {a}\n/\\ says = \"done\"\n/\\ queue = <<>>\n/\\ did = <<\"break\", a, \"-\">>\n/\\ held = {}\n/\\ wide = {}"];
3 -> 4 [label="Does",color="black",fontcolor="black"];
4 [label="/\\ gone = {}\n/\\ says = \"done\"\n/\\ queue = <<>>\n/\\ did = <<\"fresh\", a, \"-\">>\n/\\ held = {}\n/\\ wide = {}"];
4 -> -2 [label="Does",color="black",fontcolor="black"];
{rank = same; 1;}
{rank = same; -2;}
}
}
`

func TestDotIsReadStrictly(t *testing.T) {
	g, err := parseDot(graph, 4)
	if err != nil {
		t.Fatal(err)
	}
	if g.Init != "||" || g.Edges["||"]["join a - held"] != "a|||a" || g.Edges["a|||a"]["break a - done"] != "||a" || len(g.Edges) != 3 {
		t.Errorf("%+v", g)
	}
	w := g.Walks("small", 1)
	if w.covered() != 3 || w.Edges != 3 || len(w.Timeless) != 1 || strings.Join(w.Timeless[0], ", ") != "join a - held a|||a, break a - done ||a, fresh a - done ||" {
		t.Errorf("%+v", w)
	}
	for what, bad := range map[string]string{
		"a line that is none":       strings.Replace(graph, "nodesep", "ranksep", 1),
		"an edge from nowhere":      strings.Replace(graph, "3 -> 4", "7 -> 4", 1),
		"another variable":          strings.Replace(graph, "/\\\\ says", "/\\\\ said", 1) + "x",
		"a holder that is not here": strings.Replace(graph, "queue = <<a>>", "queue = <<b>>", 1),
		"no beginning":              strings.Replace(graph, ",style = filled", "", 1),
		"two ends of one request":   strings.Replace(graph, `did = <<\"fresh\", a`, `did = <<\"break\", b`, 1) + "{",
		"an end that is cut":        graph[:len(graph)-20],
	} {
		if g, err := parseDot(bad, 4); err == nil {
			t.Errorf("%s is read as %+v", what, g)
		}
	}
	if _, err := parseDot(graph, 5); err == nil {
		t.Error("a graph without one of TLC's states is whole")
	}
}
