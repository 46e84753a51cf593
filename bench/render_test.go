package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/cli/bench"
)

func made(scenarios ...string) results {
	all := results{}
	for i, s := range scenarios {
		v := float64(10 * (i + 1))
		figure := func(f float64) map[string]bench.Spread {
			return map[string]bench.Spread{"per_s": {Median: f, Min: f / 2, Max: f * 2}}
		}
		all["redis "+s] = &bench.Report{Rows: []bench.Row{
			{Store: "redis", Scenario: s, Title: "a & b", Implementation: "limit", Role: bench.RoleLimit, Figures: figure(v / 2)},
			{Store: "redis", Scenario: s, Title: "a & b", Implementation: "peer <1>", Role: bench.RolePeer, Figures: figure(v)},
			{Store: "redis", Scenario: s, Title: "a & b", Implementation: "holdfast", Role: bench.RoleHoldfast, Figures: figure(1e5 * v)},
			{Store: "redis", Scenario: s, Implementation: "broken", Role: bench.RolePeer, Failed: "two held"},
		}}
	}
	return all
}

// TestPlot: a picture is XML, has a line for each, and Holdfast's comes first.
func TestPlot(t *testing.T) {
	p := plot{title: "x < y", store: "redis", scenarios: []string{"s1", "s2"}, labels: []string{"1", "2"}, figure: "per_s", floor: 1}
	svg, err := p.draw(made("s1", "s2"))
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	circles := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
		}
	}
	text := string(svg)
	if circles != 6 || strings.Index(text, ">holdfast<") > strings.Index(text, ">peer &lt;1&gt;<") || strings.Contains(text, "NaN") {
		t.Errorf("%d points in\n%s", circles, svg)
	}
	if _, err := p.draw(made("s1")); err == nil {
		t.Error("a scenario that is missing is no error")
	}
}

func TestTables(t *testing.T) {
	page := "a\n<!-- bench:redis s1 -->\nold\n<!-- /bench -->\nb\n<!-- bench:run -->\n<!-- /bench -->\n"
	got, err := fill([]byte(page), made("s1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a\n<!-- bench:redis s1 -->\n| a & b | per s |\n|---|---:|\n| **Holdfast** | 1 M (500 k–2 M) |\n| peer <1> |",
		"\n\nbroken gave no figures: two held\n<!-- /bench -->\nb\n", "- machine: "} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	again, err := fill(got, made("s1"))
	if err != nil || string(again) != string(got) {
		t.Errorf("filled again it is another page (%v):\n%s", err, again)
	}
	if _, err := fill([]byte(strings.ReplaceAll(page, "s1", "s9")), made("s1")); err == nil {
		t.Error("a table without results is no error")
	}
}

// TestTargets: what is missed is said, and so is what nobody measured.
func TestTargets(t *testing.T) {
	all := made("alone-1")
	f := all["redis alone-1"].Rows[2].Figures
	f["requests"], f["allocs"] = bench.Spread{Median: 2.0004}, bench.Spread{Median: 13}
	text := judged(all)
	for _, want := range []string{
		"| Redis, alone: commands | ≤ 2 | 2.00 | met |\n", "| Redis, alone: allocations | ≤ 8 | 13 | **missed** |\n",
		"| Redis, 64 clients: Jain's index | ≥ 0.99 | – | not measured |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, target := range targets {
		if _, ok := target.value(results{}); ok {
			t.Errorf("%s is judged without results", target.what)
		}
	}
}

// TestEveryRowCanBeOpened: what the stages name is there, and so are their
// scenarios.
func TestEveryRowCanBeOpened(t *testing.T) {
	for _, s := range stages {
		if _, err := bench.Choose(s.scenarios); err != nil {
			t.Error(s.name, err)
		}
	}
	for _, p := range plots {
		if _, err := bench.Choose(p.scenarios); err != nil || len(p.labels) != len(p.scenarios) {
			t.Error(p.file, err)
		}
	}
	if _, err := open(t.Context(), bench.Spec{Kind: "nobody"}, bench.Seat{}); err == nil {
		t.Error("an unknown kind is no error")
	}
}

// TestHostEndsServers: also when a start fails.
func TestHostEndsServers(t *testing.T) {
	ended := false
	err := withHost(func(h *host) error {
		h.Cleanup(func() { ended = true })
		h.Fatalf("no %s", "server")
		return nil
	})
	if !ended || err == nil || err.Error() != "no server" {
		t.Errorf("%v, ended: %t", err, ended)
	}
}
