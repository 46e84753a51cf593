package dashboard

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// positive reports whether a series has a sample above 0.
func positive(m promql.Matrix) bool {
	for _, series := range m {
		for _, point := range series.Floats {
			if point.F > 0 {
				return true
			}
		}
	}
	return false
}

// readAlerts returns the rules of docs/grafana/alerts.yml, as Prometheus reads them.
func readAlerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../../docs/grafana/alerts.yml", false, model.UTF8Validation, language, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	rules := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	return rules
}

// TestAlertsFindSeries evaluates the parts of each alert's expression without their
// comparisons.
func TestAlertsFindSeries(t *testing.T) {
	for name, rule := range readAlerts(t) {
		for _, job := range jobs {
			for _, part := range compared(parse(t, of(t, rule.Expr, job))) {
				if got := scene(t).evaluate(t, part.String()); !positive(got) {
					t.Errorf("%s finds nothing of %s: %s", name, job, part)
				}
			}
		}
	}
}

// compared returns the operands of an expression's set operators, each without its
// comparison.
func compared(e parser.Expr) []parser.Expr {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return compared(e.Expr)
	case *parser.BinaryExpr:
		switch {
		case e.Op.IsSetOperator():
			return append(compared(e.LHS), compared(e.RHS)...)
		case e.Op.IsComparisonOperator():
			return compared(e.LHS)
		}
	}
	return []parser.Expr{e}
}

// firing returns when an alert fires first and last, from the beginning of the scene,
// evaluated with each scrape.
func firing(t *testing.T, rule rulefmt.Rule, job string) (first, last time.Duration, fires bool) {
	t.Helper()
	d := scene(t)
	for _, series := range d.evaluate(t, of(t, rule.Expr, job)) {
		since, before := int64(0), int64(0)
		for _, point := range series.Floats {
			if before == 0 || point.T-before > interval.Milliseconds() {
				since = point.T
			}
			before = point.T
			if point.T-since < time.Duration(rule.For).Milliseconds() {
				continue
			}
			at := time.Duration(point.T-d.first.UnixMilli()) * time.Millisecond
			if !fires || at < first {
				first = at
			}
			last, fires = max(last, at), true
		}
	}
	return first, last, fires
}

// TestAlertsFire checks that each alert fires in the scene where it should, and not
// before.
func TestAlertsFire(t *testing.T) {
	rules := readAlerts(t)
	wants := []struct {
		alert        string
		after, until time.Duration // it fires first in between
	}{
		{"HoldfastLockLost", broken, broken + 2*interval}, // with the first loss of the process
		{"HoldfastStoreErrors", deadFrom, deadUntil},
		{"HoldfastWaitsWithoutGrants", stuckFrom + 5*time.Minute, stuckUntil},
		{"HoldfastHoldsNearMaxHold", 0, lasts},
	}
	for _, want := range wants {
		rule, ok := rules[want.alert]
		if !ok {
			t.Errorf("there is no alert %s", want.alert)
			continue
		}
		for _, job := range jobs {
			first, last, fires := firing(t, rule, job)
			if !fires || first < want.after || first > want.until {
				t.Errorf("%s: %s fires: %v, from %v to %v; want from between %v and %v", job, want.alert, fires, first, last, want.after, want.until)
			}
			t.Logf("%s: %s from %v to %v", job, want.alert, first, last)
		}
	}
	if len(rules) != len(wants) {
		t.Errorf("%d alerts, %d of them are tried", len(rules), len(wants))
	}
}
