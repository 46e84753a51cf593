package dashboard

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// board is what the tests read of docs/grafana/holdfast.json.
type board struct {
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	ID                 int
	Title, Description string
	GridPos            struct{ X, Y, W, H int }
	FieldConfig        struct{ Defaults struct{ Unit string } }
	Targets            []struct{ Expr, LegendFormat string }
}

func readBoard(t *testing.T) board {
	t.Helper()
	data, err := os.ReadFile("../../docs/grafana/holdfast.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// grafana replaces Grafana's variables, with all groups and stores chosen.
var grafana = strings.NewReplacer("$__rate_interval", "1m", "$scheme", ".*", "$group", ".*")

// TestPanelsFindSeries evaluates every expression of every panel on what each of the
// two modules reported: it finds a series, and one that is not always 0.
func TestPanelsFindSeries(t *testing.T) {
	for _, p := range readBoard(t).Panels {
		for _, target := range p.Targets {
			for _, job := range jobs {
				if got := scene(t).evaluate(t, of(t, grafana.Replace(target.Expr), job)); !positive(got) {
					t.Errorf("panel %q finds nothing of %s: %s", p.Title, job, target.Expr)
				}
			}
		}
	}
}

// TestInstrumentsHavePanels checks that a panel shows each metric that the modules
// report, and that both report the same ones.
func TestInstrumentsHavePanels(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range readBoard(t).Panels {
		for _, target := range p.Targets {
			parser.Inspect(parse(t, grafana.Replace(target.Expr)), func(node parser.Node, _ []parser.Node) error {
				if s, ok := node.(*parser.VectorSelector); ok {
					shown[family(s.Name)] = true
				}
				return nil
			})
		}
	}
	want := []string{"holdfast_lock_count", "holdfast_lock_hold_duration_seconds", "holdfast_lock_wait_duration_seconds", "holdfast_store_errors_total"}
	if got := slices.Sorted(maps.Keys(shown)); !slices.Equal(got, want) {
		t.Errorf("the panels show %q, want %q", got, want)
	}
	for _, job := range jobs {
		reported := map[string]bool{}
		for _, series := range scene(t).evaluate(t, `{__name__=~"holdfast_.*", job="`+job+`"}`) {
			reported[family(series.Metric.Get("__name__"))] = true
		}
		if got := slices.Sorted(maps.Keys(reported)); !slices.Equal(got, want) {
			t.Errorf("%s reports %q, want %q", job, got, want)
		}
	}
}

// family returns the name of a metric from the name of one of its series.
func family(series string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && strings.HasSuffix(name, "_seconds") {
			return name
		}
	}
	return series
}

// TestVariablesFindValues evaluates the queries of the dashboard's variables.
func TestVariablesFindValues(t *testing.T) {
	query := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range readBoard(t).Templating.List {
		if v.Type != "query" {
			continue
		}
		parts := query.FindStringSubmatch(v.Definition)
		if parts == nil {
			t.Errorf("the query of %s is %q", v.Name, v.Definition)
			continue
		}
		for _, job := range jobs {
			values := map[string]bool{}
			for _, series := range scene(t).evaluate(t, of(t, grafana.Replace(parts[1]), job)) {
				values[series.Metric.Get(parts[2])] = true
			}
			if len(values) == 0 || values[""] {
				t.Errorf("%s of %s: %v", v.Name, job, values)
			}
		}
	}
}

// TestPanelsDoNotOverlap checks the places, units and texts of the panels.
func TestPanelsDoNotOverlap(t *testing.T) {
	cells, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range readBoard(t).Panels {
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || ids[p.ID] || len(p.Targets) == 0 {
			t.Errorf("panel %d %q lacks its title, description, unit, targets, or an id of its own", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q is at the place of %q, or beyond the 24 columns", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
